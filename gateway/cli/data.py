"""`sluicegate data`: what a data directory holds, whether it is whole, and making it smaller.

`verify` and `print` change nothing and work beside a running gateway. Exit status: 0 whole, 1
damaged, 66 no journal there, 74 the disk or a format, 75 in use by another process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from gateway.cli.errors import EX_FAILED, EX_IOERR, EX_RUNNING, CliError
from gateway.cli.settings import read_config
from gateway.config.tree import MIB
from gateway.store.datadir import (
    IDS_OF,
    MissingJournalError,
    PageFacts,
    Places,
    compact,
    counts_by_name,
    describe,
    journal_of,
    look,
    look_at_pages,
    lost_by_name,
    names_of,
    owner_of,
    places_below,
    records_of,
)
from storage.errors import LockedError, StorageError
from storage.survey import Survey

EX_NOINPUT = 66
Command = Callable[..., Any]


def told(command: Command) -> Command:
    """Turn what can go wrong with a data directory into an error line and an exit status."""

    @wraps(command)
    def run(*args: object, **kwargs: object) -> object:
        try:
            return command(*args, **kwargs)
        except MissingJournalError as error:
            attempt = "the directory that `sluicegate run` prints behind `data`"
            raise CliError("no-journal", str(error), attempt=attempt, status=EX_NOINPUT) from None
        except LockedError as error:
            raise CliError("already-running", str(error), status=EX_RUNNING) from None
        except BrokenPipeError:
            raise  # of whoever read the output, and not of the disk
        except (StorageError, OSError) as error:
            raise CliError("bad-data-directory", str(error), status=EX_IOERR) from None

    return run


def places_options(command: Command) -> Command:
    """Turn DIR into its `Places`: below it, or where `-c FILE` and `--set` have them."""

    @wraps(command)
    def run(directory: str, *, file: str | None, sets: tuple[str, ...], **kwargs: object) -> object:
        if file is None and not sets:
            return command(places_below(directory), **kwargs)
        config = read_config(file, sets, directory)
        places = Places(
            data=config.data_directory,
            journal=config.journal_directory,
            paging=config.paging_directory,
        )
        return command(places, **kwargs)

    told_file = "The gateway's configuration file: says where journal and pages are."
    told_set = "One setting, as the gateway was given it: journal-directory, paging-directory."
    for option in (
        click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help=told_set),
        click.option("-c", "--config", "file", metavar="FILE", help=told_file),
        click.argument("directory", metavar="DIR"),
    ):
        run = option(run)
    return run


@click.group()
def data() -> None:
    """Look at a data directory, or make it smaller."""


@data.command(short_help="Read journal and pages: what they hold.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@places_options
@told
def verify(places: Places, *, as_json: bool) -> int:
    """Read journal and pages in DIR: what they hold, and what is damaged (exit status 1)."""
    journal = journal_of(places)
    owner = owner_of(places.data)
    seen = look(journal)
    facts = report(seen) | {"inUseBy": owner, "pages": pages_of(look_at_pages(places, seen))}
    if as_json:
        click.echo(json.dumps(facts))
    else:
        for line in lines_of(facts):
            click.echo(line)
    return EX_FAILED if is_damaged(facts) else 0


def is_damaged(facts: dict[str, Any]) -> bool:
    """Whether anything that verify read is not what was written."""
    return bool(facts["damage"]) or any(page["damage"] for page in facts["pages"])


def pages_of(pages: list[PageFacts]) -> list[dict[str, Any]]:
    """Return what verify tells of page files."""
    return [
        {
            "file": page.path,
            "address": page.address,
            "bytes": page.size,
            "blocks": page.blocks,
            "messages": page.messages,
            "damage": page.damage,
        }
        for page in pages
    ]


def report(seen: Survey) -> dict[str, Any]:
    """Return all that verify tells."""
    live = seen.live()
    counts = counts_by_name(seen)
    return {
        "segments": [
            {
                "file": facts.path,
                "bytes": facts.size,
                "usedBytes": facts.used,
                "batches": len(facts.batches),
                "liveMessages": live.get(facts.number, (0, 0))[0],
                "liveBytes": live.get(facts.number, (0, 0))[1],
                "damaged": facts.damaged,
            }
            for facts in seen.segments
        ],
        "queues": {
            name: {"messages": count, "bytes": size}
            for name, (count, size) in counts.items()
            if not name.startswith(IDS_OF)
        },
        "duplicateIds": {
            name.removeprefix(IDS_OF): count
            for name, (count, _) in counts.items()
            if name.startswith(IDS_OF)
        },
        "damage": [
            {
                "file": one.path,
                "offset": one.offset,
                "end": one.end,
                "what": one.what,
                "batches": None if one.batches is None else one.batches[1] - one.batches[0] + 1,
            }
            for one in seen.damage
        ],
        "lost": lost_by_name(seen),
        "tornBytes": seen.found.torn_bytes,
        "cleanStop": seen.found.clean,
    }


def lines_of(facts: dict[str, Any]) -> list[str]:
    """Return verify's report for people."""
    lines = []
    for one in facts["segments"]:
        dead = max(0, one["usedBytes"] - one["liveBytes"])
        mark = "  DAMAGED" if one["damaged"] else ""
        lines.append(
            f"segment {one['file']}: {one['batches']} batches, {one['liveMessages']} messages live,"
            f" {one['liveBytes']} B live, {dead} B dead{mark}"
        )
    for name, held in facts["queues"].items():
        lines.append(f"queue {name}: {held['messages']} messages, {held['bytes']} B")
    lines += [f"address {a}: {n} duplicate ids" for a, n in facts["duplicateIds"].items()]
    for page in facts["pages"]:
        mark = f"  DAMAGED: {page['damage']}" if page["damage"] else ""
        lines.append(
            f"page {page['file']} of {page['address']}: {page['blocks']} blocks,"
            f" {page['messages']} messages, {page['bytes']} B{mark}"
        )
    lines += [f"damage {d['file']} at offset {d['offset']}: {d['what']}" for d in facts["damage"]]
    lines += [f"lost {name}: at most {count} messages" for name, count in facts["lost"].items()]
    if facts["tornBytes"]:
        lines.append(f"torn tail: {facts['tornBytes']} B that were never confirmed")
    if facts["inUseBy"]:
        lines.append(f"in use by {facts['inUseBy']}")
    lines.append("damaged" if is_damaged(facts) else "whole")
    return lines


@data.command("print", short_help="Print the journal's records, one a line.")
@click.option("--queue", "wanted", metavar="NAME", help="Only records that concern this queue.")
@places_options
@told
def print_(places: Places, *, wanted: str | None) -> int:
    """Print the journal's records, one a line: file, offset, batch, what; bodies by their size."""
    seen = look(journal_of(places))
    numbers = {name: number for number, name in names_of(seen).items()}
    if wanted is not None and wanted not in numbers:
        raise CliError("not-found", f"there is no queue {wanted} in {places.data}")
    only = None if wanted is None else numbers[wanted]
    for file, offset, batch, record in records_of(seen):
        if only is None or only in _concerned(record):
            click.echo(f"{file} {offset} {batch} {describe(record)}")
    return EX_FAILED if seen.damage else 0


def _concerned(record: object) -> set[int]:
    """Return the queue ids of a record."""
    targets = getattr(record, "targets", None)
    if targets is not None:
        return {queue_id for queue_id, _ in targets}
    return {getattr(record, "queue_id", -1)}


@data.command("compact")
@click.option("--file-size", default=32 * MIB, show_default=True, help="Bytes of a journal file.")
@places_options
@told
def compact_(places: Places, *, file_size: int) -> None:
    """Carry what lives forward, so that the files behind it go. No gateway may run on DIR.

    What a gateway keeps ready - empty files, the ballast - goes, too; the next start makes it.
    """
    from gateway.assembly.service import make_uuid  # noqa: PLC0415 - to look needs no reactor

    done = compact(places, file_size, make_uuid)
    before, after = done.before, done.after
    click.echo(
        f"{len(before.segments)} files with {sum(s.used for s in before.segments)} B"
        f" before, {len(after.segments)} with {sum(s.used for s in after.segments)} B after;"
        f" {max(0, done.allocated_before - done.allocated_after)} B of the disk are free again;"
        f" {sum(count for count, _ in after.live().values())} messages"
    )
