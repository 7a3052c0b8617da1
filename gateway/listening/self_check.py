"""What is wrong with certificates that OpenSSL serves silently, and clients then refuse. Pure.

Each finding is an event of the log with its facts. Dates are judged again and again; the rest once
for each time that files are read.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.listening.contexts import Trusted
from gateway.model.certificates import escaped

if TYPE_CHECKING:
    from cryptography import x509

#: Days before its end at which a certificate is told of, the first of them sooner.
SOON_DAYS: Final = (7, 30)
#: What NIST and OpenSSL's level 2 ask of RSA, and of curves.
RSA_BITS_MIN: Final = 2048
CURVE_BITS_MIN: Final = 224
_WEAK_HASHES: Final = ("md5", "sha1")
_DAY_MS: Final = 86_400_000
LISTS_EXPIRED: Final = "certificate.revocations_expired"


class Level(Enum):
    """A warning is told in the log; a note by `sluicegate doctor` only."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a certificate: an event of the log, and its facts."""

    event: str
    facts: Mapping[str, str] = field(default_factory=dict)
    level: Level = Level.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A certificate with its key: what is sent of it, where the key is, and whom it is for.

    `above` are the certificates that are sent behind it.
    """

    certificate: x509.Certificate
    pem: bytes
    key: Path
    names: tuple[str, ...]
    above: tuple[x509.Certificate, ...] = ()


def dated_findings(served: Sequence[Found], trusted: Trusted, now_ms: int) -> list[Finding]:
    """Return what a date has made wrong about what a listener serves, or soon will."""
    found = [one for certificate in served for one in _dates(certificate, now_ms)]
    ends = trusted.lists_until_ms
    if ends is not None and now_ms > ends:
        found.append(Finding(event=LISTS_EXPIRED, facts={"until": date_of(ends)}))
    return found


def standing_findings(served: Sequence[Found], host: str = "") -> list[Finding]:
    """Return what is wrong whatever the date is; `host` is what clients connect to."""
    found = [one for certificate in served for one in _of_one(certificate)]
    if host and not any(_is_for(one, host) for one in served):
        names = " ".join(_shown(one)["names"] for one in served)
        found.append(Finding(event="certificate.wrong_name", facts={"host": host, "names": names}))
    return found


def _shown(one: Found) -> dict[str, str]:
    return {"names": " ".join(escaped(name) for name in one.names)}


def _of_one(one: Found) -> Iterator[Finding]:
    certificate, names = one.certificate, _shown(one)
    for weak in _weak([certificate, *one.above]):
        yield Finding(event="certificate.weak", facts={**names, "reason": weak})
    own = certificate.issuer == certificate.subject
    if not own and _is_authority(certificate):
        yield Finding(event="certificate.is_authority", facts=names)
    if not _serves(certificate):
        yield Finding(event="certificate.not_for_servers", facts=names)
    yield from _chain(one, names)


def _dates(one: Found, now_ms: int) -> Iterator[Finding]:
    begins, until = from_ms(one.certificate), until_ms(one.certificate)
    facts = {**_shown(one), "begins": date_of(begins), "until": date_of(until)}
    if now_ms > until:
        yield Finding(event="certificate.expired", facts=facts)
    elif now_ms < begins:
        yield Finding(event="certificate.not_valid_yet", facts=facts)
    else:
        near = next((days for days in SOON_DAYS if until - now_ms < days * _DAY_MS), None)
        if near is not None:
            facts["days"] = str(near)
            yield Finding(event="certificate.expires_soon", facts=facts)


def _weak(chain: Iterable[x509.Certificate]) -> Iterator[str]:
    """Yield what clients find too weak about certificates and their keys."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - only who speaks TLS
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415

    for certificate in chain:
        name = escaped(certificate.subject.rfc4514_string())
        try:
            key = certificate.public_key()
        except (UnsupportedAlgorithm, ValueError):
            continue  # of a kind that nobody here can judge
        if isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_BITS_MIN:
            yield f"{name} has an RSA key of {key.key_size} bits, less than {RSA_BITS_MIN}"
        if isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < CURVE_BITS_MIN:
            yield f"{name} has a curve of {key.key_size} bits, less than {CURVE_BITS_MIN}"
        try:
            signed = certificate.signature_hash_algorithm
        except UnsupportedAlgorithm:
            continue
        # What signs itself is trusted for what it is.
        own = certificate.issuer == certificate.subject
        if signed is not None and signed.name in _WEAK_HASHES and not own:
            yield f"{name} is signed with {signed.name.upper()}"


def _chain(one: Found, names: Mapping[str, str]) -> Iterator[Finding]:
    """Judge whether each certificate is signed by the next, and where that ends."""
    below = one.certificate
    for above in one.above:
        if not _signed(below, above):
            by, sent = (escaped(n.rfc4514_string()) for n in (below.issuer, above.subject))
            reason = f"signed by {by}, and what is sent behind it is of {sent}"
            yield Finding(event="certificate.chain_broken", facts={**names, "reason": reason})
            return
        below = above
    if below.issuer != below.subject:
        by = escaped(below.issuer.rfc4514_string())
        yield Finding(
            event="certificate.chain_ends", facts={**names, "signer": by}, level=Level.NOTE
        )
    elif below is one.certificate:
        yield Finding(event="certificate.self_signed", facts=names, level=Level.NOTE)


def _signed(below: x509.Certificate, above: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only who speaks TLS

    try:
        below.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS

    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return found.value.ca


def _serves(certificate: x509.Certificate) -> bool:
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return True
    for_any = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
    return ExtendedKeyUsageOID.SERVER_AUTH in found.value or for_any in found.value


def _is_for(one: Found, host: str) -> bool:
    """Whether a certificate is for a name or an address [RFC 6125 6.4]."""
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS

    wanted = host.lower().removesuffix(".")
    try:
        address = ipaddress.ip_address(wanted)
    except ValueError:
        return wanted in one.names or "*." + wanted.partition(".")[2] in one.names
    try:
        found = one.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return address in found.value.get_values_for_type(x509.IPAddress)


def from_ms(certificate: x509.Certificate) -> int:
    """Return the date in ms at which a certificate begins to hold."""
    return int(certificate.not_valid_before_utc.timestamp() * 1000)


def until_ms(certificate: x509.Certificate) -> int:
    """Return the date in ms up to which a certificate holds."""
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


def date_of(ms: int) -> str:
    """Return a date in ms as people write it."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d")
