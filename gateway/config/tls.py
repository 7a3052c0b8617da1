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


class ClientCertificates(Enum):
    """Whether clients show a certificate: never, if they have one, or all of them."""

    NO = "no"
    ASKED = "asked"
    REQUIRED = "required"


#: Certificates between a client's and its authority's where nothing is written.
CLIENT_DEPTH: Final = 3


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
        ciphers: cipher suites of TLS 1.2, by OpenSSL's names, the best first; none: OpenSSL's own
            choice. Those of TLS 1.3 are always the three that there are.
        hostname: the name that clients connect to, for the check at the start; empty: `interface`
            of the endpoint, where it is one address.
        client_certificates: whether clients are asked for a certificate: `asked` lets in who has
            none, `required` nobody.
        client_ca: PEM file of the authorities whose certificates clients may show.
        client_crl: PEM file of the lists of those that were revoked; one of each authority has to
            be there, and none may be out of date.
        client_depth: certificates that may stand between a client's and its authority's.
        table: it was written as a table of its own, not in the endpoint.
    """

    certificate: str = ""
    key: str = ""
    chain: str = ""
    directory: str = ""
    dh_parameters: str = ""
    minimum: TlsVersion = TlsVersion.TLS_1_2
    maximum: TlsVersion = TlsVersion.TLS_1_3
    ciphers: tuple[str, ...] = ()
    hostname: str = ""
    client_certificates: ClientCertificates = ClientCertificates.NO
    client_ca: str = ""
    client_crl: str = ""
    client_depth: int = CLIENT_DEPTH
    table: bool = False

    def key_of(self, listener: str, part: str) -> str:
        """Return the configuration's key that a part came from, such as `chain`."""
        own = self.table or part in TABLE_ONLY
        return f"{listener}.tls.{part}" if own else f"{listener}.endpoint"

    @property
    def told(self) -> str:
        """What stands in the table beside files of the server, for people."""
        told = "" if self.minimum is TlsVersion.TLS_1_2 else ", TLSv1.3 only"
        told += f", ciphers {' '.join(self.ciphers)}" if self.ciphers else ""
        told += f", for {self.hostname}" if self.hostname else ""
        if self.client_certificates is ClientCertificates.NO:
            return told
        told += f", client certificates {self.client_certificates.value} of {self.client_ca}"
        told += f" less those in {self.client_crl}" if self.client_crl else ""
        return f"{told}, {self.client_depth} deep"


#: Parts that no endpoint can name.
TABLE_ONLY: Final = frozenset(
    [
        "minimum-version",
        "ciphers",
        "hostname",
        "client-certificates",
        "client-ca",
        "client-crl",
        "client-depth",
    ]
)


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
    client = _client_problem(source)
    if client is not None:
        return client
    if secure:
        others = sorted(key for key in source if key.replace("_", "-") not in TABLE_ONLY)
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


def _client_problem(source: Mapping[str, object]) -> tuple[str, str] | None:
    """Return what contradicts itself about certificates of clients, and about ciphers."""
    wanted = source.get("client_certificates", ClientCertificates.NO)
    if source.get("ciphers") and source.get("minimum_version") is TlsVersion.TLS_1_3:
        return (
            "ciphers",
            "is for TLSv1.2, which minimum-version does not let in; remove one of both",
        )
    if wanted is ClientCertificates.NO:
        found = sorted(key for key in source if key in ("client_ca", "client_crl", "client_depth"))
        if found:
            return found[0].replace("_", "-"), (
                'does nothing without client-certificates = "asked" or "required"'
            )
        return None
    if "client_ca" not in source:
        return "client-certificates", (
            "needs the key client-ca, the authorities whose certificates clients may show"
        )
    return None
