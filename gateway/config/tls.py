"""Where a listener that speaks TLS has its certificates from. Pure: no file is read here.

Three ways to say it, all of which come to a `TlsSource`: the endpoints `ssl:` and `tls:` with
Twisted's words for it, and the table `tls` of an acceptor or of `[management]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class TlsVersion(Enum):
    """A version of TLS that is still thought safe."""

    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSource:
    """Paths are as written, or absolute when they came from the table; empty: not given.

    Attributes:
        certificate: PEM file; the server's certificate is its first, those that signed it follow.
        key: PEM file of its private key; empty: it is in the file of the certificate.
        chain: PEM file of more certificates that signed it.
        directory: instead of those: PEM files of any number of certificates and keys.
        dh_parameters: PEM file, for TLS 1.2 with Diffie-Hellman over numbers.
        minimum: the oldest version that is spoken; `maximum`: the newest.
        table: it was written as a table of its own, not in the endpoint.
    """

    certificate: str = ""
    key: str = ""
    chain: str = ""
    directory: str = ""
    dh_parameters: str = ""
    minimum: TlsVersion = TlsVersion.TLS_1_2
    maximum: TlsVersion = TlsVersion.TLS_1_3
    table: bool = False

    def key_of(self, listener: str, part: str) -> str:
        """Return the configuration's key that a part came from, such as `chain`."""
        return f"{listener}.tls.{part}" if self.table else f"{listener}.endpoint"


#: Twisted's order of what `ssl:` and `tls:` take.
SSL_WORDS: Final = (
    "port", "privateKey", "certKey", "sslmethod", "interface", "backlog", "extraCertChain",
    "dhParameters",
)  # fmt: skip
TLS_WORDS: Final = ("path", "port", "backlog", "interface")
#: Methods of OpenSSL by their old names, and the versions that they stand for here.
_METHODS: Final = {
    "": (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    "TLS_METHOD": (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    "TLS_SERVER_METHOD": (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    "SSLv23_METHOD": (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    "TLSv1_2_METHOD": (TlsVersion.TLS_1_2, TlsVersion.TLS_1_2),
}


def words_of(
    text: str, names: Sequence[str], positional: Sequence[str], keywords: Mapping[str, str]
) -> dict[str, str]:
    """Return name -> value of an endpoint's parts; raises ValueError for what it does not take."""
    if len(positional) > len(names):
        raise ValueError(f'"{text}" has {len(positional)} parts without a name; it takes no more')
    taken = dict(zip(names, positional, strict=False))
    for name, value in keywords.items():
        if name not in names:
            raise ValueError(f'"{text}" has the unknown part "{name}"; it takes {", ".join(names)}')
        taken[name] = value
    return taken


def ssl_source(text: str, words: Mapping[str, str]) -> TlsSource:
    """Return what the parts of an `ssl:` endpoint say; raises ValueError."""
    method = words.get("sslmethod", "")
    if method not in _METHODS:
        known = ", ".join(name for name in _METHODS if name)
        raise ValueError(f'"{text}" has the sslmethod "{method}"; those spoken are {known}')
    minimum, maximum = _METHODS[method]
    key = words.get("privateKey") or "server.pem"
    return TlsSource(
        certificate=words.get("certKey") or key,
        key=key,
        chain=words.get("extraCertChain", ""),
        dh_parameters=words.get("dhParameters", ""),
        minimum=minimum,
        maximum=maximum,
    )


def tls_source(text: str, words: Mapping[str, str]) -> TlsSource:
    """Return what the parts of a `tls:` endpoint say; raises ValueError."""
    if not words.get("path"):
        raise ValueError(f'"{text}" names no directory; write for example "tls:/etc/certs:port=1"')
    return TlsSource(directory=words["path"])


def table_problem(source: Mapping[str, object], *, secure: bool) -> tuple[str, str] | None:
    """Return the key and the reason when a `tls` table cannot mean anything, else None.

    `secure`: the endpoint names its certificates itself.
    """
    if secure:
        others = sorted(key for key in source if key != "minimum_version")
        if others:
            return others[0], "is said by the endpoint already; write a tcp: endpoint, or leave out"
        return None
    if "directory" in source:
        others = sorted(key for key in ("certificate", "key", "chain") if key in source)
        if others:
            return others[0], "cannot stand beside directory; keep one of the two"
        return None
    if "certificate" not in source:
        return "", "needs the key certificate (and key), or directory"
    return None
