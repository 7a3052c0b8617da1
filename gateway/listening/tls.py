"""TLS at a listener: the contexts of its connections, and the meaning of failures.

A failure of TLS is told in the words of OpenSSL and, where an operator can do something about it,
in ours.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import structlog
from twisted.internet.interfaces import IProtocolFactory, IReactorTime

from protocols.transport.secure import SecureFactory
from protocols.transport.tls import TOO_DEEP

_log = structlog.get_logger()

#: What the failures that an operator can do something about mean.
_TLS_FAILURES: Final = {
    "not-tls": "the client speaks no TLS; this listener does not speak anything else",
    "too-slow": "the handshake was not done in time",
    "unsupported-protocol": "the client offers only versions below this listener's minimum-version",
    "no-shared-cipher": "the client offers no cipher that this listener takes",
    "tlsv1-alert-unknown-ca": "the client does not trust who signed the certificate",
    "sslv3-alert-bad-certificate": "the client does not accept the certificate",
    "sslv3-alert-certificate-unknown": "the client does not accept the certificate",
    "sslv3-alert-handshake-failure": "the client broke it off and says no more; Proton does so when"
    " the certificate is not for the name that it connects to",
    "sslv3-alert-certificate-expired": "the client finds that the certificate has expired",
    "callback-failed": "the client looks for a name that is no text",
    "peer-did-not-return-a-certificate": "the client shows no certificate, and this listener has"
    ' client-certificates = "required"',
    "unable-to-get-local-issuer-certificate": "the client's certificate is of no authority in"
    " client-ca",
    "self-signed-certificate": "the client's certificate is signed by itself, and not in client-ca",
    "self-signed-certificate-in-certificate-chain": "the client's authority is not in client-ca",
    "certificate-has-expired": "the client's certificate, or one above it, has expired",
    "certificate-is-not-yet-valid": "the client's certificate, or one above it, begins later",
    "certificate-revoked": "the client's certificate is revoked by a list in client-crl",
    "crl-has-expired": "a list in client-crl is out of date, so that nobody knows what is revoked;"
    " put a new one in its place",
    "unable-to-get-certificate-crl": "client-crl has no list of the authority that signed the"
    " client's certificate, or one above it",
    "unsuitable-certificate-purpose": "the client's certificate is not for clients",
    "invalid-ca-certificate": "a certificate above the client's is no authority's",
    TOO_DEEP: "more certificates stand above the client's than client-depth allows",
}
#: Returns what the next connection is spoken to with.
Contexts = Callable[[], ssl.SSLContext]


def secured(
    clock: IReactorTime, path: str, factory: IProtocolFactory, contexts: Contexts
) -> IProtocolFactory:
    """Return a factory of Twisted's own kind that speaks TLS; `path` is its listener's key."""
    return SecureFactory(
        clock, factory, contexts, lambda peer, why: tell_tls_failed(path, peer, why)
    )


def tell_tls_failed(listener: str, peer: str, why: str) -> None:
    """Log that a connection ended because TLS with it could not go on."""
    meaning = _TLS_FAILURES.get(why)
    more = {} if meaning is None else {"meaning": meaning}
    _log.info("tls.failed", listener=listener, peer=peer, reason=why, **more)
