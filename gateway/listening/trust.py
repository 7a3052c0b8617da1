"""Whose certificates clients may show: the files of authorities and of what they revoked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.tls import ClientCertificates, TlsSource
from gateway.listening.contexts import CertificateError, Trusted
from gateway.listening.pem import blocks_of, certificates_in
from gateway.model.certificates import escaped

if TYPE_CHECKING:
    from cryptography import x509


def trust_files(source: TlsSource) -> list[Path]:
    """Return the files that are read for it."""
    return [Path(part) for part in (source.client_ca, source.client_crl) if part]


def read_trusted(source: TlsSource) -> Trusted:
    """Read who is trusted; raises CertificateError. Nobody is where clients are not asked."""
    if source.client_certificates is ClientCertificates.NO:
        return Trusted()
    path = Path(source.client_ca)
    found = list(certificates_in(path, "client-ca"))
    if not found:
        raise CertificateError("client-ca", f"{path} holds no certificate in PEM")
    for certificate, _ in found:
        if not _signs(certificate):
            raise CertificateError(
                "client-ca",
                f"{path} holds a certificate that is no authority's:"
                f" {escaped(certificate.subject.rfc4514_string())}",
            )
    authorities = b"".join(pem for _, pem in found)
    if not source.client_crl:
        return Trusted(authorities=authorities)
    lists = list(_lists(Path(source.client_crl)))
    _check_lists(source, [certificate for certificate, _ in found], [one for one, _ in lists])
    ends = [one.next_update_utc for one, _ in lists if one.next_update_utc is not None]
    return Trusted(
        authorities=authorities,
        revoked=b"".join(pem for _, pem in lists),
        lists_until_ms=int(min(ends).timestamp() * 1000) if ends else None,
    )


def _signs(certificate: x509.Certificate) -> bool:
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS waits for it

    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return found.value.ca


def _lists(path: Path) -> Iterable[tuple[x509.CertificateRevocationList, bytes]]:
    from cryptography import x509  # noqa: PLC0415 - as above

    for label, pem in blocks_of(path, "client-crl"):
        if label != b"X509 CRL":
            continue
        try:
            yield x509.load_pem_x509_crl(pem), pem.rstrip() + b"\n"
        except ValueError:
            text = f"{path} holds a list of revoked certificates that is damaged"
            raise CertificateError("client-crl", text) from None


def _check_lists(
    source: TlsSource,
    authorities: Sequence[x509.Certificate],
    lists: Sequence[x509.CertificateRevocationList],
) -> None:
    """Raise CertificateError where OpenSSL would miss a list, and refuse everybody."""
    if not lists:
        raise CertificateError(
            "client-crl", f"{source.client_crl} holds no list of revoked certificates in PEM"
        )
    there = {one.issuer.public_bytes() for one in lists}
    known = {one.subject.public_bytes() for one in authorities}
    for certificate in authorities:
        name = escaped(certificate.subject.rfc4514_string())
        if certificate.subject.public_bytes() not in there:
            raise CertificateError("client-crl", f"{source.client_crl} has no list of {name}")
        if certificate.issuer.public_bytes() not in known:
            raise CertificateError(
                "client-ca",
                f"{source.client_ca} has {name} and not who signed it,"
                f" {escaped(certificate.issuer.rfc4514_string())}; with client-crl it needs both",
            )
