"""`sluicegate audit`: verifies the audit trail, and prints it. Beside a running gateway as well.

Exit status of verify: 0 the trail is what was written, 1 it is not, 74 it cannot be read.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.audit.chain import key_id, read_line
from gateway.audit.keys import read_key
from gateway.audit.trail import head_of, time_ms, trail_files
from gateway.audit.verify import Kind, Report, TrailFile, bare_lines, verify
from gateway.cli.errors import EX_FAILED, EX_IOERR, EX_USAGE, CliError
from gateway.cli.settings import config_options, read_config
from storage.files import RealFiles

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"([0-9]+)([smhd])")
#: Fields of a line that the columns of the table show, or that only the chain needs.
_SHOWN: Final = frozenset(["seq", "prev", "hash", "time", "event", "user", "remote", "peer"])
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Facts = dict[str, Any]


@click.group()
def audit() -> None:
    """Verify or print the audit trail: who came in or was refused, and who changed what."""


def _from(
    files: Sequence[str], file: str | None, data: str | None, sets: tuple[str, ...]
) -> tuple[str, list[TrailFile], bytes | None]:
    """Return the path of the newest file, all files, and the key of the configuration."""
    fs = RealFiles()
    config = read_config(file, sets, data)
    key_file = config.audit.key_file
    path = config.audit.path(config.data_directory) if not files else files[0]
    found = trail_files(fs, path)
    if len(files) > 1:
        found = [_alone(name) for name in files]
    if not found:
        attempt = "-c FILE or --data DIR of the gateway, or the path of its newest audit file"
        raise CliError(
            "no-audit", f"there is no audit trail at {path}", attempt=attempt, status=EX_IOERR
        )
    key = None if files or key_file is None else _key(key_file)
    return path, found, key


def _alone(name: str) -> TrailFile:
    ending = name.rpartition(".")[2]
    number = int(ending) if ending.isdigit() else None
    return TrailFile(name=name, number=number, read=lambda: Path(name).read_bytes())


def _key(path: str) -> bytes:
    try:
        return read_key(path)
    except ValueError as error:
        raise CliError("bad-key", str(error), status=EX_USAGE) from None


def _seen(texts: Sequence[str]) -> dict[int, str]:
    found = {}
    for text in texts:
        number, colon, noted = text.partition(":")
        if not (colon and number.isdigit() and re.fullmatch("[0-9a-f]{64}", noted)):
            raise CliError(
                "bad-option", f"--seen {text}: needs LINE:HASH, as verify prints", status=EX_USAGE
            )
        found[int(number)] = noted
    return found


@audit.command("verify", short_help="Show that nothing was changed, removed, moved or cut.")
@click.argument("files", nargs=-1)
@click.option(
    "--key",
    "key_files",
    multiple=True,
    metavar="FILE",
    help="A key that lines are sealed with, beside that of the configuration. May be repeated.",
)
@click.option(
    "--seen",
    multiple=True,
    metavar="LINE:HASH",
    help="A line that verify has printed before, kept elsewhere: it must be in the trail.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@config_options
def verify_command(
    *,
    files: tuple[str, ...],
    key_files: tuple[str, ...],
    seen: tuple[str, ...],
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> int:
    """Walk the chain of the audit trail and say what is not as it was written.

    FILES is the newest file of a trail, whose older ones lie beside it, or several files in their
    order, whose head is not looked at; without it, that of the configuration.

    Exit status: 0 the trail is what was written, 1 it is not, 74 it cannot be read.
    """  # fmt: skip
    path, found, own = _from(files, file, data, sets)
    given = [*([] if own is None else [own]), *map(_key, key_files)]
    fs = RealFiles()
    head = None
    if len(files) <= 1:
        heads = [head_of(fs, path, key) for key in (*given, *([] if given else [None]))]
        head = next((one for one in heads if not isinstance(one, Kind)), heads[0])
    report = verify(found, head, {key_id(one): one for one in given}, _seen(seen))
    if as_json:
        click.echo(json.dumps(_json(report)))
    else:
        _tell(report, keyed=bool(given))
    return 0 if report.sound else EX_FAILED


def _json(report: Report) -> Facts:
    return {
        "sound": report.sound,
        "files": report.files,
        "lines": report.lines,
        "first": report.first,
        "last": report.last,
        "lastHash": report.last_hash,
        "findings": [
            {
                "code": one.kind.value,
                "harmless": one.kind.harmless,
                "file": one.file,
                "line": one.line,
                "text": one.text,
            }
            for one in report.findings
        ],
        "leftOut": report.left_out,
    }


def _tell(report: Report, *, keyed: bool) -> None:
    for one in report.findings:
        where = one.file + (f":{one.line}" if one.line else "")
        colour = "yellow" if one.kind.harmless else "red"
        click.echo(f"{click.style(one.kind.value, fg=colour)}: {where}: {one.text}")
    if report.left_out:
        click.echo(f"and {report.left_out} more")
    click.echo(
        f"{report.lines} lines in {report.files} files, {report.first} to {report.last}; the last"
        f" is {report.last}:{report.last_hash}"
    )
    if report.sound:
        by = "with its key" if keyed else "without a key: whoever has the disk could have made it"
        click.echo(f"{click.style('sound', fg='green')}, {by}")
    else:
        click.echo(click.style("not what was written", fg="red"))


# ---- print


@audit.command("print", short_help="Print what it says, by user, address, event and time.")
@click.argument("files", nargs=-1)
@click.option("--user", metavar="NAME", help="Only what this user did, or what was done to it.")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT",
    help="Only this event, or with a final `.` all that begin so. May be repeated.",
)
@click.option("--address", metavar="NAME", help="Only what is about this address or queue.")
@click.option("--remote", metavar="ADDRESS", help="Only what came from this network address.")
@click.option("--since", metavar="TIME", help="From then on: 2027-01-31T12:00:00Z, or 2h, 3d.")
@click.option("--until", metavar="TIME", help="Up to then, in the same form.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are, one JSON each.")
@config_options
def print_command(
    *,
    files: tuple[str, ...],
    user: str | None,
    events: tuple[str, ...],
    address: str | None,
    remote: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> int:
    """Print the audit trail from the oldest line on. It is not verified here."""  # fmt: skip
    _, found, _ = _from(files, file, data, sets)
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - a command is a process of its own
    tests = [
        *([] if user is None else [lambda f: user in _users_of(f)]),
        *([] if address is None else [lambda f: address in _places_of(f)]),
        *([] if remote is None else [lambda f: _from_there(f, remote)]),
        *([] if not events else [lambda f: any(_named(f, name) for name in events)]),
        *([] if since is None else [_after(_when(since, now), later=True)]),
        *([] if until is None else [_after(_when(until, now), later=False)]),
    ]
    chosen = (pair for pair in _lines(found) if all(test(pair[1]) for test in tests))
    for raw, facts in chosen:
        if as_json:
            click.echo(raw.decode("utf-8", "replace"))
        else:
            click.echo(line_of(facts))
    return 0


def _lines(files: Sequence[TrailFile]) -> Iterator[tuple[bytes, Facts]]:
    for one in files:
        for _, raw, _ in bare_lines(one.read()):
            line = read_line(raw)
            if line is not None:
                yield raw, line.facts


def line_of(facts: Facts) -> str:
    """Return a line for people: time, event, who, from where, and the rest as `key=value`."""
    who = facts.get("user") or "-"
    where = facts.get("remote") or facts.get("peer") or "-"
    rest = " ".join(f"{name}={_short(v)}" for name, v in facts.items() if name not in _SHOWN)
    head = f"{facts.get('time', ''):<24}  {facts.get('event', ''):<20}  {who:<12}  {where:<21}"
    return _CONTROL.sub("?", f"{head}  {rest}".rstrip())


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f'"{text}"' if not text or " " in text else text


def _users_of(facts: Facts) -> set[str]:
    found = {str(facts[name]) for name in ("user", "account", "name") if facts.get(name)}
    return found | set(facts.get("users") or ())


def _places_of(facts: Facts) -> set[str]:
    body = facts.get("body")
    places = [facts, *([body] if isinstance(body, dict) else [])]
    names = ("address", "queue", "of_name", "name", "made", "toAddress")
    return {str(one[name]) for one in places for name in names if one.get(name)}


def _from_there(facts: Facts, remote: str) -> bool:
    where = str(facts.get("remote") or facts.get("peer") or "")
    host = where.rpartition(":")[0].strip("[]") if where.count(":") != 0 else where
    return remote in (where, host) or remote in (facts.get("remotes") or ())


def _named(facts: Facts, name: str) -> bool:
    event = str(facts.get("event"))
    return event.startswith(name) if name.endswith(".") else event == name


def _when(text: str, now: dt.datetime) -> int:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        seconds = int(ago[1]) * _UNITS[ago[2]]
        return round((now.timestamp() - seconds) * 1000)
    found = time_ms(text)
    if found is None:
        raise CliError(
            "bad-option", f"{text} is no time: 2027-01-31T12:00:00Z, or 30m, 2h, 3d",
            status=EX_USAGE,
        )  # fmt: skip
    return found


def _after(limit_ms: int, *, later: bool) -> Callable[[Facts], bool]:
    def test(facts: Facts) -> bool:
        date = time_ms(facts.get("time"))
        return date is not None and (date >= limit_ms if later else date <= limit_ms)

    return test
