"""`sluicegate scrub`: a running gateway reads all that it has stored, to find what has rotted.

Exit status: 0 nothing is damaged, 1 something is. For a data directory that no gateway runs on
there is `sluicegate data verify`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click

from gateway.cli.errors import EX_FAILED
from gateway.cli.http_client import Api, api_options

PATH: Final = "/api/v1/scrub"
_PAUSE_SECONDS: Final = 0.5
_MIB: Final = 1 << 20
#: What the gateway says of its scrub.
Facts = dict[str, Any]


@click.command()
@click.option("--status", is_flag=True, help="Begin nothing; only tell.")
@click.option("--watch", is_flag=True, help="Wait until all is read; a bar on a terminal.")
@click.option("--full-speed", is_flag=True, help="As fast as the disk; not at scrub-rate.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@api_options
def scrub(
    *,
    status: bool,
    watch: bool,
    full_speed: bool,
    as_json: bool,
    api: Api,
) -> int:
    """Have a running gateway read all that it has stored, now, and say what is damaged.

    Nothing is changed, but messages of a damaged journal file that are in memory are written to
    another one. Without --watch it goes on by itself when this command has ended.
    """

    def ask() -> Facts:
        facts: Facts = api.get(PATH)
        return facts

    if status:
        facts = ask()
    else:
        facts = api.post(PATH, {"fullSpeed": full_speed})
    if watch:
        facts = _watch(ask, facts)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        for line in lines_of(facts):
            click.echo(line)
    return EX_FAILED if facts["damage"] else 0


def _watch(ask: Callable[[], Facts], facts: Facts) -> Facts:
    """Wait until all is read."""
    if not (sys.stderr.isatty() and facts["running"]):
        while facts["running"]:
            time.sleep(_PAUSE_SECONDS)
            facts = ask()
        return facts
    from rich import progress  # noqa: PLC0415 - a tenth of a second, for terminals only
    from rich.console import Console  # noqa: PLC0415 - as above

    columns = (
        progress.TextColumn("reading"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        while facts["running"]:
            run = facts["run"]
            bar.update(task, total=max(run["bytes"], run["bytesRead"]), completed=run["bytesRead"])
            time.sleep(_PAUSE_SECONDS)
            facts = ask()
    return facts


def lines_of(facts: Facts) -> list[str]:
    """Return what a person sees."""
    lines = [_run_line(facts)]
    for one in facts["damage"]:
        lines.append(f"damaged: {one['file']} at offset {one['offset']}: {one['what']}")
        lines += [
            f"  concerns {who['name']}: at most {who['messagesAtMost']} messages"
            for who in one["affected"]
        ]
        lines.append(f"  copy: {one['copy']}")
        lines.append(f"  what to do: {one['advice']}")
    if facts["messagesWaitedFor"] and facts["damage"]:
        lines.append(f"waits for {facts['messagesWaitedFor']} messages that consumers hold")
    lines += [
        f"was damaged, and is repaired or not needed any more: {one['file']} at offset"
        f" {one['offset']}: {one['what']}"
        for one in facts["gone"]
    ]
    lines.append("damaged" if facts["damage"] else "nothing is damaged")
    return lines


def _run_line(facts: Facts) -> str:
    run = facts["run"]
    if run is None:
        return "nothing was read since the start"
    size = f"{run['bytesRead'] / _MIB:.1f} MiB"
    if run["endedMs"] is not None:
        seconds = (run["endedMs"] - run["startedMs"]) / 1000
        return f"read {run['filesRead']} files, {size}, in {seconds:.1f} s"
    left = max(0, run["bytes"] - run["bytesRead"])
    rate = "" if run["fullSpeed"] else f", about {left // facts['rateBytesPerSecond']} s to go"
    return (
        f"reading: {run['filesRead']} of {run['files']} files, {size} of"
        f" {run['bytes'] / _MIB:.1f} MiB{rate}; `sluicegate scrub --status` shows how far it is"
    )
