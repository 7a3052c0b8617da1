"""What a person can type next, once the gateway is ready: commands that reach this very gateway."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.config.endpoints import Endpoint

#: Where `sluicegate send` goes by itself.
_DEFAULT: Final = ("127.0.0.1", "5672")
_ANYWHERE: Final = frozenset({"*", "0.0.0.0", "[::]", "::", ""})  # noqa: S104 - read, not bound
#: Endpoints behind something that a client would have to know of.
_KINDS: Final = frozenset({"tcp", "tcp6", "ssl", "tls"})


def first_steps(listeners: Iterable[tuple[Endpoint, str]], *, login: bool) -> list[str]:
    """Return the lines of the banner that say how to send and receive a first message.

    `listeners` are those that speak AMQP, each with the address it is open at; one without TLS on
    this machine is the shortest way. `login`: a user has to be named.
    """
    reachable = [(e, address) for e, address in listeners if e.kind in _KINDS]
    if not reachable:
        return ["  Ctrl-C stops cleanly"]
    endpoint, address = min(reachable, key=lambda one: (one[0].tls, not one[0].loopback))
    options = _options(endpoint, address) + (" --user NAME" if login else "")
    return [
        "  next, in another terminal (Ctrl-C here stops cleanly):",
        f'    sluicegate send hello "hi"{options}',
        f"    sluicegate receive hello{options}",
    ]


def _options(endpoint: Endpoint, address: str) -> str:
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in _ANYWHERE else host
    if not endpoint.tls:
        return "" if (host, port) == _DEFAULT else f" --url amqp://{host}:{port}"
    source = endpoint.source
    names, signs_itself = _certificate(source.certificate) if source else ((), False)
    if host not in names and names:
        host = "localhost" if "localhost" in names else names[0]
    options = f" --url amqps://{host}:{port}"
    if source is None or not signs_itself:
        return options
    return f"{options} --cafile {shlex.quote(_short(source.certificate))}"


def _certificate(path: str) -> tuple[tuple[str, ...], bool]:
    """Return the names and addresses that a certificate is for, and whether it signs itself."""
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS waits for it

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        places = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return (), False
    names = places.get_values_for_type(x509.DNSName)
    addresses = [str(one) for one in places.get_values_for_type(x509.IPAddress)]
    return (*addresses, *names), certificate.issuer == certificate.subject


def _short(path: str) -> str:
    """Return a path from here, where that is shorter."""
    return min(path, os.path.relpath(path), key=len)
