"""The options that several commands share, and reading the configuration with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from gateway.cli.errors import EX_USAGE, CliError
from gateway.config.errors import ConfigError
from gateway.config.load import Source
from gateway.config.tree import Config

Command = Callable[..., Any]


def config_options(command: Command) -> Command:
    """Add `-c FILE`, `--data DIR` and `--set KEY=VALUE`."""
    options = [
        click.option("-c", "--config", "file", metavar="FILE", help="The configuration file."),
        click.option("--data", metavar="DIR", help="The data directory; wins over the file."),
        click.option(
            "--set", "sets", metavar="KEY=VALUE", multiple=True,
            help="One setting: a dotted key and a TOML value. May be repeated.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def read_config(file: str | None, sets: Sequence[str], data: str | None) -> Config:
    """Return the configuration; raises CliError (64) that lists every mistake."""
    return read_source(Source.of(file, sets, data))


def read_source(source: Source) -> Config:
    """Return the configuration of a source; raises CliError (64) that lists every mistake."""
    try:
        return source.read()
    except ConfigError as error:
        raise configuration_error(str(error)) from None


def configuration_error(text: str) -> CliError:
    """Return the error of a configuration that cannot be used; one line a mistake."""
    count = text.count("\n") + 1
    head = "the configuration cannot be used" if count == 1 else f"{count} mistakes"
    return CliError("bad-configuration", f"{head}:\n{text}", status=EX_USAGE)
