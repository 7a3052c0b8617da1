"""What a listener proves itself with: PEM files, made into contexts, renewed while it runs.

    files ──read at the start: a fault refuses it──> served
    served ──changed: looked for at new connections, once a second──> read again ──> served
                                                       └──a fault: told once──> the old ones stay

A file that is being replaced is half there for a while, and a certificate comes before its key:
whatever is wrong then is no reason to stop, and is looked at again as soon as a file changes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gateway.config.tls import TlsSource
from gateway.listening.contexts import CertificateError, Trusted, make_context
from gateway.listening.pem import blocks_of, certificates_in, der, public_keys_in, public_of
from gateway.listening.self_check import (
    LISTS_EXPIRED,
    Finding,
    Found,
    Level,
    date_of,
    dated_findings,
    standing_findings,
    until_ms,
)
from gateway.listening.trust import read_trusted, trust_files
from gateway.model.certificates import escaped

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from cryptography import x509

    Unraisable = Callable[[UnraisableHookArgs], None]

#: How often the files are looked at, at most.
LOOK_SECONDS: Final = 1.0
_SUFFIXES: Final = frozenset({".pem", ".crt", ".key"})

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What the files came to; `chosen` are those that some client gets, the default one first."""

    context: ssl.SSLContext
    signature: tuple[object, ...]
    names: tuple[str, ...]
    chosen: tuple[Found, ...]
    trusted: Trusted


class Certificates:
    """See the module text; one for each listener that speaks TLS."""

    def __init__(
        self,
        source: TlsSource,
        listener: str,
        *,
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
        alpn: Sequence[str] = (),
        host: str = "",
    ) -> None:
        """Read the files; raises CertificateError. `now_ms` is the date, `seconds` only pass.

        `alpn` are the names of the protocols; `host` is what clients connect to, where known.
        """
        self._source = source
        self._listener = listener
        self._seconds = seconds
        self._now_ms = now_ms
        self._alpn = tuple(alpn)
        self._host = source.hostname or host
        self._served = _load(source, self._signature(), now_ms(), alpn)
        self._refused: tuple[object, ...] | None = None
        self._next = seconds() + LOOK_SECONDS
        self._told: set[tuple[str, str]] = set()
        self._told_standing = False
        self._judge()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is spoken to with."""
        now = self._seconds()
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            self._look()
        return self._served.context

    def look(self) -> None:
        """Look at the files now, and tell again what is wrong with them."""
        self._refused = None
        self._next = self._seconds() + LOOK_SECONDS
        self._look()

    def seconds_left(self) -> float:
        """Return for how long all that is served holds; less than 0 where it does not any more."""
        ends = min(until_ms(one.certificate) for one in self._served.chosen)
        return (ends - self._now_ms()) / 1000

    def _look(self) -> None:
        signature = self._signature()
        if signature not in (self._served.signature, self._refused):
            self._renew(signature)
        self._judge()

    def _renew(self, signature: tuple[object, ...]) -> None:
        """Serve what the files are now, if it can be used."""
        try:
            self._served = _load(self._source, signature, self._now_ms(), self._alpn)
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
        self._told = set()
        self._told_standing = False
        _log.info(
            "certificate.renewed",
            listener=self._listener,
            names=" ".join(escaped(name) for name in self._served.names),
            until=date_of(until_ms(self._served.chosen[0].certificate)),
        )

    def _judge(self) -> None:
        """Tell, once each, what clients will not take, or soon will not."""
        served, now = self._served, self._now_ms()
        every = () if self._told_standing else standing_findings(served.chosen, self._host)
        self._told_standing = True
        for found in (*dated_findings(served.chosen, served.trusted, now), *every):
            key = found.event, found.facts.get("names", "") + found.facts.get("days", "")
            if found.level is Level.NOTE or key in self._told:
                continue
            self._told.add(key)
            tell_finding(found, self._listener)
            if found.event == LISTS_EXPIRED:
                # Sessions of before could be taken up again, and nobody's certificate be looked at.
                # Files that are being replaced are read once they are whole.
                with contextlib.suppress(CertificateError):
                    self._served = _load(self._source, served.signature, now, self._alpn)

    def _signature(self) -> tuple[object, ...]:
        """Return what changes whenever a file does."""
        found: list[object] = []
        for path in (*_files(self._source), *trust_files(self._source)):
            try:
                facts = path.stat()
            except OSError:
                found.append(str(path))
            else:
                found.append((str(path), facts.st_ino, facts.st_mtime_ns, facts.st_size))
        return tuple(found)


def tell_finding(found: Finding, listener: str) -> None:
    """Log a finding that is worth a warning."""
    told = {"listener": listener, **found.facts}
    match found.event:
        case "certificate.expired":
            _log.warning("certificate.expired", **told)
        case "certificate.not_valid_yet":
            _log.warning("certificate.not_valid_yet", **told)
        case "certificate.expires_soon":
            _log.warning("certificate.expires_soon", **told)
        case "certificate.revocations_expired":
            _log.warning("certificate.revocations_expired", **told)
        case "certificate.chain_broken":
            _log.warning("certificate.chain_broken", **told)
        case "certificate.is_authority":
            _log.warning("certificate.is_authority", **told)
        case "certificate.not_for_servers":
            _log.warning("certificate.not_for_servers", **told)
        case "certificate.weak":
            _log.warning("certificate.weak", **told)
        case "certificate.wrong_name":
            _log.warning("certificate.wrong_name", **told)
        case _:
            raise AssertionError(f"{found.event} is a note")


def check_files(source: TlsSource) -> None:
    """Raise CertificateError for files that a start would refuse."""
    _load(source, (), 0)


def check_listener(
    source: TlsSource, listener: str, *, now_ms: int, host: str = ""
) -> list[Finding]:
    """Return what is wrong, or soon will be, with the certificates of a listener.

    `host` is what clients connect to, where it is known; `hostname` of the source wins.
    """
    try:
        served = _load(source, (), now_ms)
    except CertificateError as error:
        key = source.key_of(listener, error.part)
        return [Finding(event="certificate.refused", facts={"key": key, "reason": str(error)})]
    return [
        *dated_findings(served.chosen, served.trusted, now_ms),
        *standing_findings(served.chosen, source.hostname or host),
    ]


def _load(
    source: TlsSource, signature: tuple[object, ...], now_ms: int, alpn: Sequence[str] = ()
) -> _Served:
    trusted = read_trusted(source)
    found = _directory(source) if source.directory else [_single(source)]
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    # The best last, so that it wins where two are for one name.
    ranked = sorted(found, key=lambda one: _rank(one, now))
    contexts = {id(one): make_context(source, one.pem, one.key, trusted, alpn) for one in found}
    by_name = {name: one for one in ranked for name in one.names}
    usable = [one for one in found if _rank(one, now)[0]]
    first = (usable or found)[0]
    context = contexts[id(first)]
    if source.directory:
        _choose_by_name(context, {name: contexts[id(one)] for name, one in by_name.items()})
    others = {id(one): one for one in by_name.values() if one is not first}
    return _Served(
        context=context,
        signature=signature,
        names=tuple(sorted({name for one in found for name in one.names})),
        chosen=(first, *others.values()),
        trusted=trusted,
    )


def _rank(one: Found, now: dt.datetime) -> tuple[bool, dt.datetime]:
    began, ends = one.certificate.not_valid_before_utc, one.certificate.not_valid_after_utc
    return began <= now <= ends, ends


def _files(source: TlsSource) -> list[Path]:
    """Return the files that a source is about, in an order that does not change."""
    if source.directory:
        return sorted(p for p in Path(source.directory).rglob("*") if p.suffix in _SUFFIXES)
    parts = (source.certificate, source.key, source.chain, source.dh_parameters)
    return [Path(part) for part in parts if part]


# ---- one certificate


def _single(source: TlsSource) -> Found:
    """Read one certificate, its key and its chain; raises CertificateError."""
    chain = Path(source.certificate)
    blocks = list(certificates_in(chain, "certificate"))
    if not blocks:
        raise CertificateError("certificate", f"{chain} holds no certificate in PEM")
    more: list[tuple[x509.Certificate, bytes]] = []
    if source.chain:
        more = list(certificates_in(Path(source.chain), "chain"))
        if not more:
            raise CertificateError("chain", f"{source.chain} holds no certificate in PEM")
    part = "key" if source.key else "certificate"
    key = Path(source.key or source.certificate)
    public = public_keys_in(key, part)
    if not public:
        raise CertificateError(part, f"{key} holds no private key in PEM")
    certificate = blocks[0][0]
    if public_of(certificate) != public[0]:
        raise CertificateError(
            part,
            f"{key} is not the key of {chain}, whose first certificate has to be the server's",
        )
    whole = [*blocks, *more]
    return Found(
        certificate=certificate,
        pem=b"".join(pem for _, pem in whole),
        key=key,
        names=_names(certificate),
        above=tuple(above for above, _ in whole[1:]),
    )


# ---- a directory


def _directory(source: TlsSource) -> list[Found]:
    """Pair up all certificates and keys of a directory; raises CertificateError."""
    folder = Path(source.directory)
    if not folder.is_dir():
        why = "is no directory" if folder.exists() else "does not exist"
        raise CertificateError("directory", f"{folder} {why}")
    files = [path for path in _files(source) if path.is_file()]
    if not files:
        raise CertificateError("directory", f"{folder} holds no .pem, .crt or .key file")
    certificates = [one for path in files for one in certificates_in(path, "directory")]
    _check_contents(files)
    keys: dict[bytes, Path] = {}
    for path in files:
        public = public_keys_in(path, "directory")
        if len(public) > 1:
            raise CertificateError("directory", f"{path} holds {len(public)} keys; keep one a file")
        if public:
            keys.setdefault(public[0], path)
    signers = {c.subject.public_bytes(): (c, pem) for c, pem in certificates}
    found: dict[bytes, Found] = {}
    for certificate, pem in certificates:
        key = keys.get(public_of(certificate))
        if key is None:
            continue
        chain = list(_signed_by(certificate, signers))
        one = Found(
            certificate=certificate,
            pem=b"".join([pem, *(more for _, more in chain)]),
            key=key,
            names=_names(certificate),
            above=tuple(above for above, _ in chain),
        )
        found.setdefault(certificate.public_bytes(der()), one)
    if not found:
        raise CertificateError(
            "directory", f"{folder} has no certificate together with its private key"
        )
    _check_names(folder, certificates, found)
    return list(found.values())


def _check_contents(files: Iterable[Path]) -> None:
    """Raise CertificateError for a file that holds nothing, as one being written may."""
    for path in files:
        if not any(blocks_of(path, "directory")):
            raise CertificateError(
                "directory", f"{path} holds neither a certificate nor a private key in PEM"
            )


def _check_names(
    folder: Path,
    certificates: Iterable[tuple[x509.Certificate, bytes]],
    found: Mapping[bytes, Found],
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
) -> Iterator[tuple[x509.Certificate, bytes]]:
    """Yield the certificates above one, without that which signs itself."""
    seen = set()
    while certificate.issuer != certificate.subject:
        name = certificate.issuer.public_bytes()
        if name in seen or name not in signers:
            return
        seen.add(name)
        certificate, pem = signers[name]
        if certificate.issuer != certificate.subject:
            yield certificate, pem


def keep_quiet_about_names(before: Callable[[UnraisableHookArgs], object]) -> Unraisable:
    """Return a hook for what Python cannot raise that says nothing of names that are no text.

    Any client may look for a server by such a name. Its handshake fails, which the log has, and
    Python would write a traceback for each, past the log.
    """

    def hear(told: UnraisableHookArgs) -> None:
        # The name is the object that it is about.
        if not (isinstance(told.exc_value, UnicodeDecodeError) and isinstance(told.object, bytes)):
            before(told)

    return hear


def _choose_by_name(context: ssl.SSLContext, by_name: dict[str, ssl.SSLContext]) -> None:
    """Have a client get the certificate of the name it looks for [RFC 6066 3]."""

    def choose(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        wanted = (name or "").lower()
        star = "*." + wanted.partition(".")[2]
        chosen = by_name.get(wanted) or by_name.get(star)
        if chosen is not None:
            tls.context = chosen

    context.sni_callback = choose


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
