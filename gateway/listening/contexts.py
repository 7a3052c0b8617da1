"""From a listener's settings to the context that OpenSSL speaks with: versions, ciphers, trust.

Each certificate of a listener has a context of its own; all of them ask clients for the same.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config.tls import ClientCertificates, TlsSource, TlsVersion
from protocols.transport.tls import ServerContext

_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}
_ASKS: Final = {
    ClientCertificates.NO: ssl.CERT_NONE,
    ClientCertificates.ASKED: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


class CertificateError(Exception):
    """A certificate cannot be used; `part` of its `TlsSource` is to blame."""

    def __init__(self, part: str, text: str) -> None:
        super().__init__(text)
        self.part = part


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """Whose certificates clients may show, in PEM: of authorities, and lists of revoked ones.

    Attributes:
        lists_until_ms: the date at which the first of the lists is out of date; None without one.
    """

    authorities: bytes = b""
    revoked: bytes = b""
    lists_until_ms: int | None = None


def make_context(
    source: TlsSource, pem: bytes, key: Path, trusted: Trusted, alpn: Sequence[str] = ()
) -> ssl.SSLContext:
    """Make the context of one certificate with its chain; raises CertificateError."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[source.minimum]
    context.maximum_version = _VERSIONS[source.maximum]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A ticket that nobody reads would have the system answer a client that closes with a reset.
    context.num_tickets = 0
    if alpn:
        context.set_alpn_protocols(list(alpn))
    _choose_ciphers(context, source.ciphers)
    _trust(context, source, trusted)
    part = "directory" if source.directory else "certificate"
    try:
        # OpenSSL takes files only; this one holds nothing that is secret.
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name, key, password=lambda: b"")
        if source.dh_parameters:
            part = "dh-parameters"
            context.load_dh_params(source.dh_parameters)
    except ssl.SSLError as error:
        raise CertificateError(part, f"OpenSSL refuses {key}: {_words(error)}") from None
    except OSError as error:
        where = error.filename or source.dh_parameters
        raise CertificateError(part, f"{where} cannot be used: {error.strerror}") from None
    return context


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Speak these suites of TLS 1.2 and no others; raises CertificateError for one unknown."""
    if not names:
        return
    known = _known_ciphers()
    fixed = {name for name, version in known.items() if version == "TLSv1.3"}
    for name in names:
        if name in fixed:
            raise CertificateError(
                "ciphers",
                f"{name} is of TLS 1.3, where all of {', '.join(sorted(fixed))} are always spoken;"
                " leave it out",
            )
        if name not in known:
            raise CertificateError(
                "ciphers",
                f'"{name}" is no cipher suite of TLS 1.2 that this OpenSSL has and that is thought'
                f" safe; these are: {', '.join(sorted(known.keys() - fixed))}",
            )
    context.set_ciphers(":".join(names))


def _known_ciphers() -> dict[str, str]:
    """Return the suites by name that are spoken by default, with the version they came with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return {str(one["name"]): str(one["protocol"]) for one in context.get_ciphers()}


def _trust(context: ServerContext, source: TlsSource, trusted: Trusted) -> None:
    """Ask clients for certificates of these authorities; raises CertificateError."""
    context.verify_mode = _ASKS[source.client_certificates]
    if source.client_certificates is ClientCertificates.NO:
        return
    context.depth_max = source.client_depth
    # A session that is taken up again would not be asked for its certificate.
    context.options |= ssl.OP_NO_TICKET
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    part, path = "client-ca", source.client_ca
    try:
        context.load_verify_locations(cadata=trusted.authorities.decode("ascii"))
        if trusted.revoked:
            part, path = "client-crl", source.client_crl
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:
                file.write(trusted.revoked)
                file.flush()
                context.load_verify_locations(file.name)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    except ssl.SSLError as error:
        raise CertificateError(part, f"OpenSSL refuses {path}: {_words(error)}") from None
