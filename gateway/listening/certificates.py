"""What a listener proves itself with: PEM files, made into contexts, renewed while it runs.

    files ──read at the start: a fault refuses it──> served
    served ──changed: looked for at new connections, once a second──> read again ──> served
                                                       └──a fault: told once──> the old ones stay

A file that is being replaced is half there for a while, and a certificate comes before its key:
whatever is wrong then is no reason to stop, and is looked at again as soon as a file changes.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gateway.config.tls import TlsSource, TlsVersion

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

#: How often the files are looked at, at most.
LOOK_SECONDS: Final = 1.0
_SUFFIXES: Final = frozenset({".pem", ".crt", ".key"})
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\r?\n?", re.DOTALL)
_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}

_log = structlog.get_logger()


class CertificateError(Exception):
    """A certificate cannot be used; `part` of its `TlsSource` is to blame."""

    def __init__(self, part: str, text: str) -> None:
        super().__init__(text)
        self.part = part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A certificate with its key: what is sent of it, where the key is, and whom it is for."""

    certificate: x509.Certificate
    pem: bytes
    key: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What the files came to; `until_ms` and `from_ms` hold for the first certificate."""

    context: ssl.SSLContext
    signature: tuple[object, ...]
    names: tuple[str, ...]
    from_ms: int
    until_ms: int


class Certificates:
    """See the module text; one for each listener that speaks TLS."""

    def __init__(
        self,
        source: TlsSource,
        listener: str,
        *,
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        """Read the files; raises CertificateError. `now_ms` is the date, `seconds` only pass."""
        self._source = source
        self._listener = listener
        self._seconds = seconds
        self._now_ms = now_ms
        self._served = _load(source, self._signature(), now_ms())
        self._refused: tuple[object, ...] | None = None
        self._next = seconds() + LOOK_SECONDS
        self._told_expired = False
        self._judge()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is spoken to with."""
        now = self._seconds()
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            self._look()
        return self._served.context

    def _look(self) -> None:
        signature = self._signature()
        if signature not in (self._served.signature, self._refused):
            try:
                self._served = _load(self._source, signature, self._now_ms())
            except CertificateError as error:
                self._refused = signature
                _log.warning(
                    "certificate.refused",
                    listener=self._listener,
                    key=self._source.key_of(self._listener, error.part),
                    reason=str(error),
                )
                return
            self._refused = None
            self._told_expired = False
            _log.info(
                "certificate.renewed",
                listener=self._listener,
                names=" ".join(self._served.names),
                until=_date(self._served.until_ms),
            )
        self._judge()

    def _judge(self) -> None:
        """Tell, once, that clients will not take this."""
        served, now = self._served, self._now_ms()
        if self._told_expired or served.from_ms <= now <= served.until_ms:
            return
        self._told_expired = True
        facts = {
            "listener": self._listener,
            "names": " ".join(served.names),
            "begins": _date(served.from_ms),
            "until": _date(served.until_ms),
        }
        if now > served.until_ms:
            _log.warning("certificate.expired", **facts)
        else:
            _log.warning("certificate.not_valid_yet", **facts)

    def _signature(self) -> tuple[object, ...]:
        """Return what changes whenever a file does."""
        found: list[object] = []
        for path in _files(self._source):
            try:
                facts = path.stat()
            except OSError:
                found.append(str(path))
            else:
                found.append((str(path), facts.st_ino, facts.st_mtime_ns, facts.st_size))
        return tuple(found)


def check_files(source: TlsSource) -> None:
    """Raise CertificateError for files that a start would refuse."""
    _load(source, (), 0)


def _load(source: TlsSource, signature: tuple[object, ...], now_ms: int) -> _Served:
    found = _directory(source) if source.directory else [_single(source)]
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    # The best last, so that it wins where two are for one name.
    ranked = sorted(found, key=lambda one: _rank(one, now))
    contexts = {id(one): _context(source, one) for one in found}
    by_name = {name: contexts[id(one)] for one in ranked for name in one.names}
    usable = [one for one in found if _rank(one, now)[0]]
    first = (usable or found)[0]
    context = contexts[id(first)]
    if source.directory:
        _choose_by_name(context, by_name)
    return _Served(
        context=context,
        signature=signature,
        names=tuple(sorted({name for one in found for name in one.names})),
        from_ms=_ms(first.certificate.not_valid_before_utc),
        until_ms=_ms(first.certificate.not_valid_after_utc),
    )


def _rank(one: _Found, now: dt.datetime) -> tuple[bool, dt.datetime]:
    began, ends = one.certificate.not_valid_before_utc, one.certificate.not_valid_after_utc
    return began <= now <= ends, ends


def _files(source: TlsSource) -> list[Path]:
    """Return the files that a source is about, in an order that does not change."""
    if source.directory:
        return sorted(p for p in Path(source.directory).rglob("*") if p.suffix in _SUFFIXES)
    parts = (source.certificate, source.key, source.chain, source.dh_parameters)
    return [Path(part) for part in parts if part]


# ---- one certificate


def _single(source: TlsSource) -> _Found:
    """Read one certificate, its key and its chain; raises CertificateError."""
    chain = Path(source.certificate)
    blocks = list(_certificates(chain, "certificate"))
    if not blocks:
        raise CertificateError("certificate", f"{chain} holds no certificate in PEM")
    more: list[tuple[x509.Certificate, bytes]] = []
    if source.chain:
        more = list(_certificates(Path(source.chain), "chain"))
        if not more:
            raise CertificateError("chain", f"{source.chain} holds no certificate in PEM")
    part = "key" if source.key else "certificate"
    key = Path(source.key or source.certificate)
    public = _public_keys(key, part)
    if not public:
        raise CertificateError(part, f"{key} holds no private key in PEM")
    certificate = blocks[0][0]
    if _public(certificate) != public[0]:
        raise CertificateError(
            part,
            f"{key} is not the key of {chain}, whose first certificate has to be the server's",
        )
    pem = b"".join(pem for _, pem in [*blocks, *more])
    return _Found(certificate=certificate, pem=pem, key=key, names=_names(certificate))


# ---- a directory


def _directory(source: TlsSource) -> list[_Found]:
    """Pair up all certificates and keys of a directory; raises CertificateError."""
    folder = Path(source.directory)
    if not folder.is_dir():
        why = "is no directory" if folder.exists() else "does not exist"
        raise CertificateError("directory", f"{folder} {why}")
    files = [path for path in _files(source) if path.is_file()]
    if not files:
        raise CertificateError("directory", f"{folder} holds no .pem, .crt or .key file")
    certificates = [one for path in files for one in _certificates(path, "directory")]
    _check_contents(files)
    keys: dict[bytes, Path] = {}
    for path in files:
        public = _public_keys(path, "directory")
        if len(public) > 1:
            raise CertificateError("directory", f"{path} holds {len(public)} keys; keep one a file")
        if public:
            keys.setdefault(public[0], path)
    signers = {c.subject.public_bytes(): (c, pem) for c, pem in certificates}
    found: dict[bytes, _Found] = {}
    for certificate, pem in certificates:
        key = keys.get(_public(certificate))
        if key is None:
            continue
        chain = b"".join(_signed_by(certificate, signers))
        one = _Found(certificate=certificate, pem=pem + chain, key=key, names=_names(certificate))
        found.setdefault(certificate.public_bytes(_der()), one)
    if not found:
        raise CertificateError(
            "directory", f"{folder} has no certificate together with its private key"
        )
    _check_names(folder, certificates, found)
    return list(found.values())


def _check_contents(files: Iterable[Path]) -> None:
    """Raise CertificateError for a file that holds nothing, as one being written may."""
    for path in files:
        if not any(_blocks(path, "directory")):
            raise CertificateError(
                "directory", f"{path} holds neither a certificate nor a private key in PEM"
            )


def _check_names(
    folder: Path,
    certificates: Iterable[tuple[x509.Certificate, bytes]],
    found: Mapping[bytes, _Found],
) -> None:
    """Raise CertificateError when a certificate's key is missing and nothing else has its name.

    Whoever asks for that name would get another's certificate.
    """
    served = {name for one in found.values() for name in one.names}
    for certificate, _ in certificates:
        if not _is_for_servers(certificate):
            continue
        missing = [name for name in _names(certificate) if name not in served]
        if missing:
            raise CertificateError(
                "directory", f"{folder} has a certificate for {missing[0]}, but not its private key"
            )


def _signed_by(
    certificate: x509.Certificate, signers: dict[bytes, tuple[x509.Certificate, bytes]]
) -> Iterator[bytes]:
    """Yield the certificates above one, without that which signs itself."""
    seen = set()
    while certificate.issuer != certificate.subject:
        name = certificate.issuer.public_bytes()
        if name in seen or name not in signers:
            return
        seen.add(name)
        certificate, pem = signers[name]
        if certificate.issuer != certificate.subject:
            yield pem


def _choose_by_name(context: ssl.SSLContext, by_name: dict[str, ssl.SSLContext]) -> None:
    """Have a client get the certificate of the name it looks for [RFC 6066 3]."""

    def choose(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        wanted = (name or "").lower()
        star = "*." + wanted.partition(".")[2]
        chosen = by_name.get(wanted) or by_name.get(star)
        if chosen is not None:
            tls.context = chosen

    context.sni_callback = choose


# ---- files


def _read(path: Path, part: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(part, f"{path} cannot be read: {error.strerror}") from None


def _blocks(path: Path, part: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield label and text of each block of a PEM file."""
    text = _read(path, part)
    yield from ((block[1], block[0]) for block in _BLOCK.finditer(text))
    if text.count(b"-----BEGIN ") > text.count(b"-----END "):
        raise CertificateError(part, f"{path} is not whole: what begins in it has no end")


def _certificates(path: Path, part: str) -> Iterable[tuple[x509.Certificate, bytes]]:
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS waits for it

    for label, pem in _blocks(path, part):
        if label != b"CERTIFICATE":
            continue
        try:
            yield x509.load_pem_x509_certificate(pem), pem.rstrip() + b"\n"
        except ValueError:
            raise CertificateError(part, f"{path} holds a certificate that is damaged") from None


def _public_keys(path: Path, part: str) -> Sequence[bytes]:
    """Return what the certificate of each private key in a file must have."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    found = []
    for label, pem in _blocks(path, part):
        if not label.endswith(b"PRIVATE KEY"):
            continue
        if label.startswith(b"ENCRYPTED") or b"Proc-Type: 4,ENCRYPTED" in pem:
            raise CertificateError(
                part,
                f"{path} holds a key that is encrypted with a password, which nobody could type"
                " in; write it without: openssl pkey -in OLD -out NEW",
            )
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise CertificateError(part, f"{path} holds a private key that is damaged") from None
        public = key.public_key()
        found.append(public.public_bytes(_der(), serialization.PublicFormat.SubjectPublicKeyInfo))
    return found


def _der() -> serialization.Encoding:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    return serialization.Encoding.DER


def _public(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    return certificate.public_key().public_bytes(
        _der(), serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _is_for_servers(certificate: x509.Certificate) -> bool:
    """Whether a certificate names hosts, as those that only sign others do not."""
    from cryptography import x509  # noqa: PLC0415 - as above

    try:
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return False
    return True


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names that a certificate is for, in lower case."""
    from cryptography import x509  # noqa: PLC0415 - as above

    try:
        places = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        found = [
            str(one.value)
            for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        ]
    else:
        found = places.value.get_values_for_type(x509.DNSName)
    return tuple(name.lower() for name in found)


def _context(source: TlsSource, one: _Found) -> ssl.SSLContext:
    """Make the context of one certificate; raises CertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[source.minimum]
    context.maximum_version = _VERSIONS[source.maximum]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A ticket that nobody reads would have the system answer a client that closes with a reset.
    context.num_tickets = 0
    part = "directory" if source.directory else "certificate"
    try:
        # OpenSSL takes files only; this one holds nothing that is secret.
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(one.pem)
            file.flush()
            context.load_cert_chain(file.name, one.key, password=lambda: b"")
        if source.dh_parameters:
            part = "dh-parameters"
            context.load_dh_params(source.dh_parameters)
    except ssl.SSLError as error:
        why = (error.reason or str(error)).lower().replace("_", " ")
        raise CertificateError(part, f"OpenSSL refuses {one.key}: {why}") from None
    except OSError as error:
        where = error.filename or source.dh_parameters
        raise CertificateError(part, f"{where} cannot be used: {error.strerror}") from None
    return context


def _ms(when: dt.datetime) -> int:
    return int(when.timestamp() * 1000)


def _date(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d")
