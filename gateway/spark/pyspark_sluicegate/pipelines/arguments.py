"""What the pipelines' command lines share: where gateways are, who logs in, how it is watched."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any, Final

#: The password is no argument: those can be seen by all users of a machine.
PASSWORD: Final = "SLUICEGATE_PASSWORD"  # noqa: S105 - the name of a variable


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
        help="a bar on a terminal (auto), JSON lines, or nothing",
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
    found: list[str] = re.findall(r"(?:SluicegateError|[A-Za-z]+Error): ([^\n]+)", text)
    ours: list[Any] = re.findall(r"pyspark_sluicegate[\w.]*\.\w+Error: ([^\n]+)", text)
    return str((ours or found or [text.splitlines()[0] if text else type(error).__name__])[-1])
