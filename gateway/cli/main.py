"""The command `sluicegate`: a group whose commands are loaded when they are called for."""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from gateway import __version__
from gateway.cli.errors import EX_IOERR, EX_USAGE, CliError

#: command -> (module, its click command, one line for the help).
COMMANDS: Final = {
    "run": ("gateway.cli.run", "run", "Start the gateway in the foreground."),
    "send": ("gateway.cli.messages", "send", "Send messages to an address."),
    "receive": ("gateway.cli.messages", "receive", "Receive messages and print them."),
    "browse": ("gateway.cli.browse", "browse", "Look at a queue's messages, changing nothing."),
    "connections": (
        "gateway.cli.connections",
        "connections",
        "Show who is connected; close a connection.",
    ),
    "explain": ("gateway.cli.explain", "explain", "Show an address' settings and their origin."),
    "reload": ("gateway.cli.reload", "reload", "Have a gateway read its configuration again."),
    "data": ("gateway.cli.data", "data", "Verify, print or compact a data directory."),
    "archive": ("gateway.cli.archive", "archive", "Verify or take over streams kept in a table."),
    "scrub": ("gateway.cli.scrub", "scrub", "Read all that is stored, to find what has rotted."),
    "user": ("gateway.cli.user", "user", "Add users to the users file."),
    "doctor": ("gateway.cli.doctor", "doctor", "Name unsafe settings, and what to do."),
    "audit": ("gateway.cli.audit", "audit", "Verify or print the audit trail."),
    "spark": ("gateway.cli.spark", "spark", "Print a Spark query; write --py-files for one."),
    "pipeline": ("gateway.cli.pipeline", "pipeline", "Run a Spark pipeline on this machine."),
    "demo": ("gateway.demo.command", "demo", "A gateway, senders and a Spark query, checked."),
    "bench": ("gateway.bench.command", "bench", "Measure messages a second."),
    "version": ("gateway.cli.main", "version", "Print the version."),
}
_INTERRUPTED: Final = 130
#: What a shell says of a command that SIGPIPE has ended.
_NO_READER: Final = 141


class NoReaderError(Exception):
    """Whoever read the output has left."""


@contextmanager
def _told_apart() -> Iterator[None]:
    """Keep a reader who left from click, which would make it status 1: that means refused."""
    try:
        yield
    except BrokenPipeError:
        raise NoReaderError from None


class LazyGroup(click.Group):
    """Imports the module of a command only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, name, _ = found
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: ANN401
        with _told_apart():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with _told_apart():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, _, help_line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sluicegate")
def cli() -> None:
    """An AMQP 1.0 and STOMP message gateway that Spark can read."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def version(*, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        python = ".".join(map(str, sys.version_info[:3]))
        click.echo(json.dumps({"name": "sluicegate", "version": __version__, "python": python}))
    else:
        click.echo(f"sluicegate {__version__}")


def _leave_no_reader() -> NoReturn:
    """End: whoever read our output has left. No error; what is not written is for nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_NO_READER)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; docs/operating.md has what each status means."""
    try:
        status = cli.main(args=arguments, prog_name="sluicegate", standalone_mode=False)
        # Here and not at exit, where Python would complain of a reader who has left.
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        sys.exit(EX_USAGE)
    except CliError as error:
        error.show()
        sys.exit(error.status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno == errno.EPIPE:
            _leave_no_reader()
        # No command foresaw it: a full disk, a file that may not be read.
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        CliError("system", text).show()
        sys.exit(EX_IOERR)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except NoReaderError:
        _leave_no_reader()
    sys.exit(status if isinstance(status, int) else 0)
