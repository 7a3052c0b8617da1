"""`sluicegate run`: the gateway in the foreground."""

from __future__ import annotations

import contextlib

import click

from gateway.cli.errors import EX_IOERR, EX_RUNNING, EX_UNAVAILABLE, CliError
from gateway.cli.settings import config_options, read_source
from gateway.config.load import Source
from gateway.config.tree import Config
from gateway.process.places import check_directories, describe_os_error
from storage.errors import LockedError, StorageError


@click.command()
@config_options
@click.option(
    "--salvage",
    is_flag=True,
    help="Start on a damaged journal: damaged files are kept in the quarantine, losses are told.",
)
def run(*, file: str | None, data: str | None, sets: tuple[str, ...], salvage: bool) -> int:
    """Start the gateway in the foreground; Ctrl-C or SIGTERM stops it cleanly.

    Exit status: 0 clean stop, 64 configuration, 69 a port that cannot be had, 74 data directory or
    disk, 75 already running.
    """
    source = Source.of(file, sets, data)
    config = read_source(source)
    if salvage:
        _salvage(config)
    # The reactor and all that hangs on it are loaded only now: a mistake is told at once.
    from gateway.assembly.service import run_gateway  # noqa: PLC0415

    return run_gateway(config, read=source.read, say=_say, complain=_complain)


def _salvage(config: Config) -> None:
    """Repair the journal, and say what was lost."""
    from gateway.assembly.service import make_uuid  # noqa: PLC0415 - as above
    from gateway.store.datadir import Places, lost_by_name, repair  # noqa: PLC0415 - as above
    from gateway.store.page_rescue import rescued_by_address  # noqa: PLC0415 - as above

    places = Places(
        data=config.data_directory,
        journal=config.journal_directory,
        paging=config.paging_directory,
    )
    try:
        check_directories(config)
        done = repair(places, make_uuid)
    except LockedError as error:
        raise CliError("already-running", str(error), status=EX_RUNNING) from None
    except StorageError as error:
        raise CliError("bad-data-directory", str(error), status=EX_IOERR) from None
    except OSError as error:
        text = describe_os_error(error, config)
        raise CliError("bad-data-directory", text, status=EX_IOERR) from None
    for damage in done.seen.damage:
        _say(f"salvaged: {damage.path} at offset {damage.offset}: {damage.what}")
    for copy in done.copies:
        _say(f"quarantined: {copy}")
    for address, count in rescued_by_address(done.rescue):
        _say(f"taken back: {count} messages on pages of {address}")
    for name, count in lost_by_name(done.seen).items():
        _say(f"lost: at most {count} messages of {name}")
    if not done.seen.damage:
        _say("salvage: nothing is damaged")


def _say(line: str) -> None:
    # Whoever closed our output did not want the banner; the gateway runs all the same.
    with contextlib.suppress(OSError):
        click.echo(line)


def _complain(code: str, text: str, status: int) -> None:
    attempt = None
    if code == "already-running":
        attempt = "another directory by --data, with other ports"
    elif status == EX_UNAVAILABLE:
        # The text begins with the listener that could not be opened.
        listener = text.partition(":")[0]
        attempt = f"--set '{listener}.endpoint=\"tcp:PORT:interface=127.0.0.1\"'"
    CliError(code, text, attempt=attempt, status=status).show()
