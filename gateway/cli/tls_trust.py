"""Whose certificates a command trusts: those of the system, one file, or any."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError

#: What a server without TLS makes of a handshake; ours answers plain ports with the last one.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "SSLV3_ALERT_HANDSHAKE_FAILURE")
Command = Callable[..., Any]


def trust_options(command: Command) -> Command:
    """Add `--cafile` and `--insecure`."""
    options: list[Callable[[Command], Command]] = [
        click.option("--cafile", metavar="FILE", help="Trust these certificates (PEM) with TLS."),
        click.option("--insecure", is_flag=True, help="Trust any certificate: for tests only."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def api_trust_options(command: Command) -> Command:
    """Add the same to a command of the management API; its client asks `trusted`."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:  # noqa: ANN401
        ctx.meta[f"{__name__}.{param.name}"] = value

    cafile = "Trust these certificates (PEM) with https."
    for option in (
        click.option("--insecure", is_flag=True, expose_value=False, callback=keep,
            help="Trust any certificate: for tests only."),
        click.option("--cafile", metavar="FILE", expose_value=False, callback=keep, help=cafile),
    ):  # fmt: skip
        command = option(command)
    return command


def trusted() -> Trust:
    """Return what `api_trust_options` were given."""
    context = click.get_current_context(silent=True)
    meta = context.meta if context is not None else {}
    return Trust(meta.get(f"{__name__}.cafile"), bool(meta.get(f"{__name__}.insecure")))


@dataclass(frozen=True, slots=True)
class Trust:
    """What to check a server's certificate with; None: the system's authorities."""

    cafile: str | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Return the context of a client; raises CliError for a file that cannot be used."""
        if self.insecure:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
            return made
        try:
            return ssl.create_default_context(cafile=self.cafile)
        except OSError as error:
            text = f"--cafile {self.cafile}: {error.strerror or error}"
            raise CliError("bad-cafile", text, status=EX_USAGE) from None

    def wrap(self, plain: socket.socket, host: str, url: str) -> ssl.SSLSocket:
        """Shake hands; raises CliError that says why not, OSError when the connection broke."""
        try:
            return self.context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            raise refused(error, url) from None


def refused(error: ssl.SSLError, url: str) -> CliError:
    """Return the error of a handshake that failed, with what would help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{url}: its certificate is not trusted: {error.verify_message}"
        trusted = "--cafile FILE with its certificate or its authority's"
        return CliError("bad-certificate", text, attempt=trusted, status=EX_UNAVAILABLE)
    attempt: str | None = None
    if error.reason in _NO_TLS:
        text = f"{url}: there is no TLS ({error.reason.lower().replace('_', ' ')})"
        attempt = f"--url {url.replace('amqps:', 'amqp:').replace('https:', 'http:')}"
    else:
        text = f"{url}: no TLS connection: {error.reason or error}"
    return CliError("not-connected", text, attempt=attempt, status=EX_UNAVAILABLE)
