"""What the pipelines' command lines share: where gateways are, who logs in, how it is watched."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any, Final, NoReturn

from pyspark_sluicegate.options import SluicegateError

#: The password is no argument: those can be seen by all users of a machine.
PASSWORD: Final = "SLUICEGATE_PASSWORD"  # noqa: S105 - the name of a variable

#: The exit status of a command line that cannot be meant, as that of all our commands.
EX_USAGE: Final = 64


class Parser(argparse.ArgumentParser):
    """A pipeline's command line, which is called by its own name however it was started."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and how to ask, and end."""
        sys.stderr.write(f"{self.prog}: {message}\n  try: {self.prog} --help\n")
        self.exit(EX_USAGE)


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which gateways are read, and as whom."""
    parser.add_argument(
        "--url", action="append", required=True, metavar="URL",
        help="a gateway's API, http[s]://host:port; once for each gateway",
    )  # fmt: skip
    parser.add_argument("--token-file", default="", metavar="FILE", help="a bearer token")
    parser.add_argument(
        "--username", default="", help=f"a user; the password is taken from {PASSWORD}"
    )
    parser.add_argument("--tls-ca-file", default="", metavar="FILE", help="trusted certificates")


def add_watching_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how progress is told."""
    parser.add_argument(
        "--progress", choices=("auto", "bar", "json", "none"), default="auto",
        help="a bar on a terminal and else one line at the end (auto), JSON lines, or nothing",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_const", const="json", dest="progress", help="as --progress json"
    )
    parser.add_argument(
        "--metrics-file", default="", metavar="FILE",
        help="kept up to date in Prometheus' text form, for its node exporter",
    )  # fmt: skip


def gateway_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the source's options for what `add_gateway_arguments` has read."""
    found = {
        "url": ",".join(given.url),
        "tokenFile": given.token_file,
        "username": given.username,
        "password": os.environ.get(PASSWORD, "") if given.username else "",
        "tlsCaFile": given.tls_ca_file,
    }
    return {name: value for name, value in found.items() if value}


def cause_of(error: BaseException) -> str:
    """Return the one line that says why a query ended, out of what Spark wraps around it."""
    text = str(error)
    if isinstance(error, SluicegateError):
        return text
    found: list[str] = re.findall(r"(?:SluicegateError|[A-Za-z]+Error): ([^\n]+)", text)
    ours: list[Any] = re.findall(r"pyspark_sluicegate[\w.]*\.\w+Error: ([^\n]+)", text)
    return str((ours or found or [first_line(text) or type(error).__name__])[-1])


def first_line(text: str) -> str:
    """Return the first line that says something, without Spark's code for it."""
    lines = (line.strip() for line in text.splitlines())
    line = next((one for one in lines if one), "")
    return re.sub(r"\s*SQLSTATE: \w+.*", "", re.sub(r"^\[[\w.]+\]\s*", "", line))
