"""How a command fails: what is wrong with a stable code, what to try, and the exit status."""

from __future__ import annotations

from typing import IO, Any, Final

import click

#: Exit statuses [sysexits.h]; 64, 74 and 75 are promised to scripts.
EX_USAGE: Final = 64
EX_UNAVAILABLE: Final = 69
EX_CANTCREAT: Final = 73
EX_IOERR: Final = 74
EX_RUNNING: Final = 75
EX_TIMEOUT: Final = 124
EX_FAILED: Final = 1


class CliError(click.ClickException):
    """Ends the command with an error of ours.

    Args:
        code: stable, kebab-case, for programs.
        text: one sentence or one line for each mistake.
        attempt: what to try; None where there is nothing to suggest.
        status: the exit status.
    """

    def __init__(
        self, code: str, text: str, *, attempt: str | None = None, status: int = EX_FAILED
    ) -> None:
        super().__init__(text)
        self.code = code
        self.attempt = attempt
        self.status = status

    def show(self, file: IO[Any] | None = None) -> None:
        """Write `error: code: text` and a `try:` line to standard error."""
        lines = self.message.split("\n")
        click.echo(f"error: {self.code}: {lines[0]}", err=True, file=file)
        for line in lines[1:]:
            click.echo(f"       {line}", err=True, file=file)
        if self.attempt:
            click.echo(f"  try: {self.attempt}", err=True, file=file)
