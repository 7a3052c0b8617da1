"""`sluicegate run`: the gateway in the foreground."""

from __future__ import annotations

import contextlib

import click

from gateway.cli.errors import CliError
from gateway.cli.settings import config_options, read_config


@click.command()
@config_options
def run(*, file: str | None, data: str | None, sets: tuple[str, ...]) -> int:
    """Start the gateway in the foreground; Ctrl-C or SIGTERM stops it cleanly.

    Exit status: 0 clean stop, 64 configuration, 69 a port that cannot be had, 74 data directory or
    disk, 75 already running.
    """
    config = read_config(file, sets, data)
    # The reactor and all that hangs on it are loaded only now: a mistake is told at once.
    from gateway.service import run_gateway  # noqa: PLC0415

    return run_gateway(config, say=_say, complain=_complain)


def _say(line: str) -> None:
    # Whoever closed our output did not want the banner; the gateway runs all the same.
    with contextlib.suppress(OSError):
        click.echo(line)


def _complain(code: str, text: str, status: int) -> None:
    CliError(code, text, attempt=_ATTEMPTS.get(code), status=status).show()


_ATTEMPTS = {
    "already-running": "sluicegate run --data DIR",
    "cannot-run": "--set 'acceptors.NAME.endpoint=\"tcp:PORT:interface=127.0.0.1\"'",
}
