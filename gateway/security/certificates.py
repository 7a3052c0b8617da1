"""Whose a client's certificate is: read, bounded, and judged by the rules. Pure.

TLS has verified it before: who signed it, that it holds, that it is not revoked. What stands in it
is still somebody else's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.model.audit import SILENT, Auditor
from gateway.model.certificates import CertificateRule, Shown, facts, first_fit
from gateway.security.users import UsersError, check_user_name

if TYPE_CHECKING:
    from cryptography import x509

#: Certificates whose text is remembered: HTTP asks with each request.
REMEMBERED_MAX: Final = 256

#: Told of a certificate that lets nobody in: what stands in it, the peer's address, and why.
OnRefused = Callable[[Shown | None, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a certificate is, until when; `roles` None: those of the users file."""

    user: str
    roles: frozenset[str] | None
    until_ms: int


class CertificateUsers:
    """Judges certificates by rules; `refused` is told of those that are nobody's.

    Attributes:
        rules: the first that fits wins; may be replaced at any time.
        auditor: has a record of what was refused.
    """

    def __init__(
        self,
        rules: Sequence[CertificateRule] = (),
        *,
        now_ms: Callable[[], int],
        refused: OnRefused,
    ) -> None:
        self.rules = tuple(rules)
        self.auditor: Auditor = SILENT
        self._now_ms = now_ms
        self._refused = refused
        self._read: dict[bytes, Shown] = {}

    def owner(self, der: bytes, peer: str) -> Owner | None:
        """Return whose a certificate is; None, and it is told, when it is nobody's."""
        try:
            shown = self._shown(der)
        except ValueError as error:
            self._tell(None, peer, f"cannot be read: {error}")
            return None
        found = self._judge(shown)
        if isinstance(found, Owner):
            return found
        self._tell(shown, peer, found)
        return None

    def look(self, der: bytes) -> Owner | None:
        """Return whose a certificate is by the rules of now; nothing is told."""
        try:
            found = self._judge(self._shown(der))
        except ValueError:
            return None
        return found if isinstance(found, Owner) else None

    def is_of(self, der: bytes, user: str | None) -> bool:
        """Whether a certificate is a user's by the rules of now; nothing is told."""
        owner = self.look(der)
        return owner is not None and owner.user == user

    def _judge(self, shown: Shown) -> Owner | str:
        """Return whose it is, or why it is nobody's."""
        # OpenSSL asked this of a full handshake; a session that is taken up again has none.
        if not shown.from_ms <= self._now_ms() <= shown.until_ms:
            return "it does not hold now"
        found = first_fit(self.rules, shown)
        if found is None:
            return "no rule of certificate-users fits"
        user, roles = found
        try:
            check_user_name(user)
        except UsersError as error:
            return f"of what a rule makes of it, {error}"
        return Owner(user=user, roles=roles, until_ms=shown.until_ms)

    def _shown(self, der: bytes) -> Shown:
        key = hashlib.sha256(der).digest()
        shown = self._read.get(key)
        if shown is None:
            shown = read_shown(der)
            if len(self._read) >= REMEMBERED_MAX:
                del self._read[next(iter(self._read))]
            self._read[key] = shown
        return shown

    def _tell(self, shown: Shown | None, peer: str, reason: str) -> None:
        self._refused(shown, peer, reason)
        told = {} if shown is None else facts(shown)
        self.auditor.note("certificate.refused", peer=peer, reason=reason, **told)


def read_shown(der: bytes) -> Shown:
    """Return what stands in a certificate; raises ValueError when it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - only who is shown certificates waits for it

    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    except x509.DuplicateExtension as error:
        raise ValueError(str(error)) from None
    return Shown(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        from_ms=int(certificate.not_valid_before_utc.timestamp() * 1000),
        until_ms=int(certificate.not_valid_after_utc.timestamp() * 1000),
        dns=_values(names, x509.DNSName),
        uris=_values(names, x509.UniformResourceIdentifier),
        emails=_values(names, x509.RFC822Name),
    )


def _values(
    names: x509.SubjectAlternativeName | None,
    kind: type[x509.DNSName | x509.UniformResourceIdentifier | x509.RFC822Name],
) -> tuple[str, ...]:
    return () if names is None else tuple(names.get_values_for_type(kind))
