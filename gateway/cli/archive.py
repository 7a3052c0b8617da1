"""`sluicegate archive`: the table that keeps streams, verified, or taken over by an empty gateway.

Exit status: 0 whole or taken over, 1 not whole, 64 what was written, 69 no extra or no store, 74
the data directory, 75 in use by another process.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.cli.errors import EX_FAILED, EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.settings import config_options, read_config
from gateway.streams.adoption import Ended, encode_adopted
from storage.errors import LockedError, StorageError
from storage.files import RealFiles
from storage.lock import DirectoryLock
from storage.stream_files import StreamFiles

if TYPE_CHECKING:
    from pyspark_sluicegate.archive.proving import Proof
    from pyspark_sluicegate.archive.table import ArchiveTable

EX_IOERR: Final = 74
EX_RUNNING: Final = 75
_STATE: Final = "streams.json"
_BAR: Final = 30


@click.group()
def archive() -> None:
    """Look after the table that a Spark job archives streams to."""


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--endpoint` and `--region`."""
    for option in (
        click.option("--region", default="", help="Of the bucket."),
        click.option("--endpoint", default="", help="Of an S3-compatible store."),
    ):
        command = option(command)
    return command


@archive.command()
@click.argument("table")
@store_options
@click.option("--quick", is_flag=True, help="Only the table's log; no file is read.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def verify(table: str, *, endpoint: str, region: str, quick: bool, as_json: bool) -> int:
    """Prove that TABLE has each offset of each stream once, without a gap.

    Offsets that a gateway declared as holes, and ranges that were lost before they were archived,
    are counted and told; they are no faults. Exit status 1 where something is wrong.
    """
    opened = _open(table, endpoint, region)
    from pyspark_sluicegate.archive.proving import prove  # noqa: PLC0415 - an extra

    proof = _ours(lambda: prove(opened, quick=quick, tell=_bar(as_json=as_json)))
    if sys.stderr.isatty() and not as_json:
        click.echo("", err=True)
    if as_json:
        click.echo(json.dumps(proof.view()))
    else:
        for line in lines_of(proof):
            click.echo(line)
    return EX_FAILED if proof.problems() else 0


def lines_of(proof: Proof) -> list[str]:
    """Return a proof as people read it."""
    lines = []
    for one in proof.streams:
        lines.append(
            f"{one.gateway}/{one.stream} life {one.epoch}: offsets {one.first} to {one.end - 1}, "
            f"{one.rows} rows in {one.files} files, {one.holes} holes, {one.lost} lost"
        )
        lines += [f"  wrong: {problem}" for problem in one.problems]
    if not lines:
        lines.append("the table has no streams yet")
    count = len(proof.problems())
    lines.append("whole" if not count else f"{count} faults")
    return lines


def _bar(*, as_json: bool) -> Callable[[int, int], None]:
    def tell(done: int, whole: int) -> None:
        filled = _BAR * done // max(whole, 1)
        text = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done:,} of {whole:,} files"
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    return tell if sys.stderr.isatty() and not as_json else lambda done, whole: None


@archive.command()
@config_options
@click.option("--table", default="", help="Instead of archive.table of the configuration.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def adopt(
    *, file: str | None, data: str | None, sets: tuple[str, ...], table: str, as_json: bool
) -> int:
    """Have an empty data directory go on with the streams that a table keeps.

    The streams of the gateway's `name` are made with their lives and their next offsets; messages
    that were never archived are not there. A gateway that starts empty does it by itself where
    archive.table is written. Nothing is done where the table has no such gateway.
    """
    config = read_config(file, sets, data)
    where = table or config.archive.table
    if not where:
        raise CliError(
            "no-table",
            "No table is named.",
            attempt="--table s3://bucket/path, or archive.table in the configuration",
            status=EX_USAGE,
        )
    files = RealFiles()
    try:
        files.mkdir(config.data_directory)
        lock = DirectoryLock(config.data_directory, "sluicegate archive adopt")
    except LockedError as error:
        raise CliError("already-running", str(error), status=EX_RUNNING) from None
    except OSError as error:
        raise CliError("bad-data-directory", str(error), status=EX_IOERR) from None
    try:
        state = StreamFiles(files, f"{config.data_directory}/streams")
        if state.load(_STATE) is not None:
            raise CliError(
                "not-empty",
                f"{config.data_directory} has streams already; only an empty gateway takes over "
                "those of a table.",
                attempt="another directory by --data",
            )
        found, identity = _history(
            where, config.archive.endpoint, config.archive.region, config.name
        )
        if identity is not None:
            state.save(_STATE, encode_adopted(identity, found))
    except (StorageError, OSError) as error:
        raise CliError("bad-data-directory", str(error), status=EX_IOERR) from None
    finally:
        lock.release()
    _tell_adopted(found, where, config.name, as_json=as_json)
    return 0


def _history(
    where: str, endpoint: str, region: str, name: str
) -> tuple[dict[str, Ended], str | None]:
    """Return the ends of a gateway's streams in a table, and its id; None where it has none."""
    from pyspark_sluicegate.archive.table import (  # noqa: PLC0415 - an extra
        NoTableError,
        table_ends,
    )

    try:
        opened = _open(where, endpoint, region)
    except CliError as error:
        if isinstance(error.__cause__, NoTableError):
            return {}, None
        raise
    identity = _ours(lambda: opened.identity(name))
    ends = _ours(lambda: table_ends(opened, name))
    return {stream: Ended(*one) for stream, one in ends.items()}, identity


def _tell_adopted(found: dict[str, Ended], where: str, name: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({stream: one._asdict() for stream, one in found.items()}))
        return
    for stream, one in sorted(found.items()):
        click.echo(f"{stream}: taps {one.address}, life {one.epoch}, goes on at offset {one.end}")
    if not found:
        click.echo(f"{where} has no streams of a gateway called {name!r}; nothing was taken over")


def _open(where: str, endpoint: str, region: str) -> ArchiveTable:
    """Return a table; raises CliError, whose cause is the library's error."""
    # It would say that Spark is missing, which is not needed here.
    logging.getLogger("pyspark_sluicegate").setLevel(logging.ERROR)
    try:
        from pyspark_sluicegate.archive.store import parse_location  # noqa: PLC0415 - an extra
        from pyspark_sluicegate.archive.table import open_table  # noqa: PLC0415
    except ImportError:
        raise CliError(
            "no-extra",
            "A table needs libraries that are not installed.",
            attempt="pip install 'sluicegate[archive]'",
            status=EX_UNAVAILABLE,
        ) from None
    options = {"table": where, "archiveEndpoint": endpoint, "archiveRegion": region}
    opened: ArchiveTable = _ours(lambda: open_table(parse_location("table", options)))
    return opened


def _ours(function: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the function returns
    """Call, and turn the library's errors into the command's."""
    from pyspark_sluicegate.options import SluicegateError  # noqa: PLC0415 - an extra

    try:
        return function()
    except SluicegateError as error:
        raise CliError("bad-table", str(error), status=EX_UNAVAILABLE) from error
