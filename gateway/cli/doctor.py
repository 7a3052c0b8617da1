"""`sluicegate doctor`: names unsafe and unhealthy settings, with what to do.

It reads the configuration, its files and the process, and asks the gateway where one runs. Nothing
is changed. Exit status: 0 nothing unsafe, 1 something is; with --strict a warning counts as well.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final

import click

from gateway.cli.errors import EX_FAILED, CliError
from gateway.cli.http_client import DEFAULT_URL, Api, api_options
from gateway.cli.settings import config_options, read_config
from gateway.config.tree import Config
from gateway.doctor.checks import judge, judge_running
from gateway.doctor.facts import gather
from gateway.doctor.findings import Finding, Severity
from gateway.store.datadir import owner_of

PAGE: Final = "docs/reference/doctor.md"
_ASKED: Final = ("/readyz", "/api/v1/config", "/api/v1/clock", "/api/v1/scrub")
_COLOURS: Final = {Severity.UNSAFE: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@click.command()
@click.option("--strict", is_flag=True, help="A warning makes the exit status 1 as well.")
@click.option("--offline", is_flag=True, help="Ask no gateway; look at files only.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@config_options
@api_options
def doctor(
    *,
    strict: bool,
    offline: bool,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
    api: Api,
) -> int:
    """Name what is unsafe or unhealthy, and what to do about it; changes nothing.

    Looks at the configuration, at users file, keys, certificates and directories, and at the
    gateway that runs on the data directory. Exit status: 0 nothing unsafe, 1 something is.
    """
    config = read_config(file, sets, data)
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - a command is a process of its own
    facts = gather(config, owner_of(config.data_directory), round(now.timestamp() * 1000))
    found = judge(config, facts)
    if not offline:
        found += _ask(config, api, round(now.timestamp() * 1000))
    found.sort(key=lambda one: list(Severity).index(one.kind.severity))
    if as_json:
        click.echo(json.dumps({"findings": [_view(one) for one in found]}))
    else:
        for one in found:
            _tell(one)
        _sum(found)
    bad = {Severity.UNSAFE, *([Severity.WARNING] if strict else [])}
    return EX_FAILED if any(one.kind.severity in bad for one in found) else 0


def _ask(config: Config, api: Api, now_ms: int) -> list[Finding]:
    """Return what a running gateway says of itself; a note where none answers."""
    endpoint = config.management.endpoint
    if api.url == DEFAULT_URL and config.management.enabled and endpoint.loopback:
        scheme = "https" if endpoint.tls else "http"
        api.url = f"{scheme}://{endpoint.shown}"
    said: dict[str, dict[str, Any]] = {}
    for path in _ASKED:
        try:
            said[path] = api.get(path)
        except CliError as error:
            if path == "/readyz" and error.code != "not-connected":
                said[path] = {"code": error.code, "message": error.message}
                continue
            text = error.message.split("\n")[0]
            return [
                *judge_running(said, now_ms),
                Finding(code="not-asked", about=api.url, text=f"{error.code}: {text}"),
            ]
    return judge_running(said, now_ms)


def _view(one: Finding) -> dict[str, str]:
    return {
        "code": one.code,
        "severity": one.kind.severity.value,
        "about": one.about,
        "text": one.text,
        "why": one.kind.why,
        "remedy": one.kind.remedy,
        "page": f"{PAGE}#{one.code}",
    }


def _tell(one: Finding) -> None:
    severity = one.kind.severity
    head = click.style(f"{severity.value:<8}", fg=_COLOURS[severity], bold=True)
    click.echo(f"{head} {click.style(one.code, bold=True)}: {one.about}: {one.text}")
    click.echo(f"         {one.kind.why}")
    click.echo(f"         try: {one.kind.remedy}")


def _sum(found: list[Finding]) -> None:
    if not found:
        click.echo(click.style("nothing found", fg="green"))
        return
    counts = {s: sum(one.kind.severity is s for one in found) for s in Severity}
    click.echo(", ".join(f"{count} {s.value}" for s, count in counts.items() if count))
    click.echo(f"each is explained in {PAGE}")
