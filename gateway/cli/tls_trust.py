"""Whose certificates a command trusts: those of the system, one file, or any."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError

#: What a server without TLS makes of a handshake; ours answers plain ports with the last one.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "SSLV3_ALERT_HANDSHAKE_FAILURE")
_ITS_OWN: Final = "--cafile FILE with its certificate or its authority's"
_OF_ITS_NAME: Final = "--url with a name or an address that the certificate is for"
#: What else than another file of trusted certificates helps, by OpenSSL's X509_V_ERR.
_REMEDIES: Final = {
    9: "the clocks of both machines, or a certificate of the gateway's that holds already",
    10: "a new certificate for the gateway; put in the old one's place, it is served at once",
    62: _OF_ITS_NAME,
    64: _OF_ITS_NAME,
}
Command = Callable[..., Any]


def trust_options(command: Command, over: str = "TLS") -> Command:
    """Add `--cafile`, `--insecure`, `--cert` and `--key`; the command gets a `Trust`."""

    @wraps(command)
    def trusting(
        *arguments: object,
        cafile: str | None,
        insecure: bool,
        cert: str | None,
        key: str | None,
        **options: object,
    ) -> object:
        if key is not None and cert is None:
            text = "--key is the key of a certificate, and there is none"
            raise CliError("bad-cert", text, attempt="--cert FILE", status=EX_USAGE)
        return command(*arguments, trust=Trust(cafile, insecure, cert, key), **options)

    cafile = f"Trust these certificates (PEM) with {over}."
    shown = f"Show this certificate (PEM) with {over}: a login of its own where the gateway asks."
    options: list[Callable[[Command], Command]] = [
        click.option("--cafile", metavar="FILE", help=cafile),
        click.option("--insecure", is_flag=True, help="Trust any certificate: for tests only."),
        click.option("--cert", metavar="FILE", help=shown),
        click.option("--key", metavar="FILE", help="Its private key, where it is in another file."),
    ]
    made: Command = trusting
    for option in reversed(options):
        made = option(made)
    return made


@dataclass(frozen=True, slots=True)
class Trust:
    """What to check a server's certificate with; None: the system's authorities.

    `cert` and `key` are what is shown to a server that asks; None: nothing.
    """

    cafile: str | None = None
    insecure: bool = False
    cert: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context of a client; raises CliError for a file that cannot be used."""
        made = self._trusting()
        if self.cert is None:
            return made
        try:
            made.load_cert_chain(self.cert, self.key, password=lambda: b"")
        except ssl.SSLError as error:
            why = (error.reason or str(error)).lower().replace("_", " ")
            text = f"--cert {self.cert} cannot be used: {why}"
        except OSError as error:
            text = f"--cert {self.cert} or its key cannot be read: {error.strerror or error}"
        else:
            return made
        attempt = "--cert FILE in PEM, with --key FILE where its key is in another one"
        raise CliError("bad-cert", text, attempt=attempt, status=EX_USAGE)

    def _trusting(self) -> ssl.SSLContext:
        if self.insecure:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
            return made
        try:
            return ssl.create_default_context(cafile=self.cafile)
        except ssl.SSLError:
            why = "holds no certificate in PEM that can be used"
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}"
        text = f"--cafile {self.cafile} {why}"
        raise CliError("bad-cafile", text, attempt=_ITS_OWN, status=EX_USAGE)

    def wrap(self, plain: socket.socket, host: str, url: str) -> ssl.SSLSocket:
        """Shake hands; raises CliError that says why not, OSError when the connection broke."""
        try:
            return self.context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            raise refused(error, url) from None
        except TimeoutError:
            raise no_handshake(url) from None


def no_handshake(url: str) -> CliError:
    """Return the error of a server that says nothing to a handshake: HTTP without TLS does so."""
    text = f"{url}: nothing answers a TLS handshake there"
    attempt = f"{_without_tls(url)} if there is no TLS"
    return CliError("not-connected", text, attempt=attempt, status=EX_UNAVAILABLE)


def _without_tls(url: str) -> str:
    return f"--url {url.replace('amqps:', 'amqp:').replace('https:', 'http:')}"


def refused(error: ssl.SSLError, url: str) -> CliError:
    """Return the error of a handshake that failed, with what would help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{url}: its certificate is not trusted: {error.verify_message}"
        remedy = _REMEDIES.get(error.verify_code, _ITS_OWN)
        return CliError("bad-certificate", text, attempt=remedy, status=EX_UNAVAILABLE)
    attempt: str | None = None
    if error.reason in _NO_TLS:
        text = f"{url}: there is no TLS ({error.reason.lower().replace('_', ' ')})"
        attempt = _without_tls(url)
    else:
        text = f"{url}: no TLS connection: {error.reason or error}"
    return CliError("not-connected", text, attempt=attempt, status=EX_UNAVAILABLE)
