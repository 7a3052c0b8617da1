"""`sluicegate reload`: a running gateway reads its configuration and its users again.

Exit status: 0 it is in force (what needs a restart is named), 64 it is wrong and nothing was
changed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import click

from gateway.cli.errors import EX_USAGE, CliError
from gateway.cli.http_client import Api, api_options

#: What the gateway says of a reload, or of its configuration.
Facts = dict[str, Any]

#: As long as the gateway itself gives an answer: very many addresses follow a few at a time.
_SECONDS: Final = 120.0
_EFFECTS: Final = {
    "at-once": "at once",
    "new-connections": "new connections",
    "new-queues": "new queues",
    "restart": "NEEDS A RESTART",
    "stays": "stays, not deleted",
}


@click.command()
@click.option("--status", is_flag=True, help="Read nothing again; only tell when it was.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@api_options
def reload(*, status: bool, as_json: bool, api: Api) -> None:
    """Have a running gateway read its configuration again, and the users file; SIGHUP does too.

    Options and environment of its start go on winning over the file. A file with a mistake changes
    nothing.
    """
    if status:
        facts: Facts = api.get("/api/v1/config")
    else:
        try:
            facts = api.post("/api/v1/config:reload", {}, seconds=_SECONDS)
        except CliError as error:
            if error.code == "bad-configuration":
                error.status = EX_USAGE
            raise
    if as_json:
        click.echo(json.dumps(facts))
        return
    for line in status_lines(facts) if status else lines_of(facts):
        click.echo(line)


def lines_of(facts: Facts) -> list[str]:
    """Return what a person sees of a reload."""
    items = facts["items"]
    if not items:
        return ["nothing is different"]
    rows = [
        (
            _EFFECTS.get(item["effect"], item["effect"]),
            item["key"],
            f"{_shown(item['old'])} -> {_shown(item['new'])}",
        )
        for item in items
    ]
    wide = max(len(row[0]) for row in rows)
    lines = [f"{effect:<{wide}}  {key}: {values}" for effect, key, values in rows]
    if facts["connectionsClosed"]:
        closed = facts["connectionsClosed"]
        lines.append(f"connections closed, since their users are gone: {closed}")
    count = len(facts["needsRestart"])
    if count == 1:
        lines.append("1 needs a restart and is not in force")
    elif count:
        lines.append(f"{count} need a restart and are not in force")
    return lines


def status_lines(facts: Facts) -> list[str]:
    """Return what a person sees of the configuration that is in force."""
    when = datetime.fromtimestamp(facts["loadedMs"] / 1000, UTC).isoformat(timespec="seconds")
    where = facts["file"] or "no file"
    plural = "" if facts["reloads"] == 1 else "s"
    lines = [f"taken over {when} from {where}; {facts['reloads']} reload{plural} since the start"]
    lines += [f"needs a restart: {key}" for key in facts["needsRestart"]]
    if facts["refused"]:
        lines.append("the last one was refused:")
        lines += [
            "  " + ": ".join(part for part in (p["where"], p["key"], p["message"]) if part)
            for p in facts["refused"]["problems"]
        ]
    users = facts.get("usersRefused") or []
    if users:
        lines.append("the users file is refused, and those of before stay:")
        lines += [f"  {': '.join(p for p in (u['where'], u['message']) if p)}" for u in users]
    return lines


def _shown(value: object) -> str:
    if value is None:
        return "(none)"
    return value if isinstance(value, str) else json.dumps(value)
