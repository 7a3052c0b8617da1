"""Certificates that must let nobody in: a table of them, each wrong in a way of its own.

The rules under test give three users: by the subject `CN=ann,O=Example`, by DNS names
`NAME.clients.example`, by the URI `spiffe://example/svc`, and by the mail address
`eve@clients.example`.
"""

from __future__ import annotations

import datetime as dt
import random
import ssl
import subprocess
import warnings
from collections.abc import Callable, Iterator
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.certificates import Authority, write_key
from tests.client_certificates import PEM, Maker, Shown, Signer, named, new_key, sign

#: The serial number of certificates that are revoked.
REVOKED: Final = 0xBAD
DAY: Final = dt.timedelta(days=1)
Make = Callable[[], Shown]
Row = tuple[str, Make]

RULES: Final = """
[[certificate-users]]
subject = "CN=ann,O=Example"
user = "ann"

[[certificate-users]]
dns-matches = '([a-z]{1,20})\\.clients\\.example'
user = '\\1'

[[certificate-users]]
uri = "spiffe://example/svc"
user = "svc"
roles = ["senders"]

[[certificate-users]]
email = "eve@clients.example"
issuer = "CN=Clients between,O=Example"
user = "eve"
"""

#: Whom honest certificates name, and each forged one would like to be.
WISHES: Final[dict[str, tuple[x509.Name, tuple[x509.GeneralName, ...]]]] = {
    "subject": (named("ann"), ()),
    "dns": (named("x"), (x509.DNSName("bob.clients.example"),)),
    "uri": (named("y"), (x509.UniformResourceIdentifier("spiffe://example/svc"),)),
    "email": (named("z"), (x509.RFC822Name("eve@clients.example"),)),
}


def table(maker: Maker, server: Authority, now: dt.datetime) -> list[Row]:
    """Return all of them; `maker` is the authority that is trusted."""
    rows = [
        *_signers(maker),
        *_dates(maker, now),
        *_usages(maker),
        *_chains(maker),
        *_weak(maker),
        *_strange_names(maker),
        *_strange_subjects(maker),
    ]
    maker.revoke(REVOKED)
    return [*rows, *_damaged(maker, server, 280 - len(rows))]


def _wish(maker: Maker, wish: str, **more: object) -> Make:
    subject, names = WISHES[wish]
    return lambda: maker.client(subject, *names, **more)


def _signers(maker: Maker) -> Iterator[Row]:
    """Signed by somebody else than they say, or by nobody who is trusted."""
    stranger = Maker(maker.folder / "stranger", "Strangers")
    double = Maker(maker.folder / "double")  # all names are those of the one that is trusted
    leaf_key = new_key()
    leaf = sign(named("ann"), leaf_key.public_key(), maker.between)
    signers = {
        "a stranger's": stranger.between,
        "a stranger's root's": stranger.root,
        "a double's": double.between,
        "a double's root's": double.root,
        "a client's": Signer(leaf.subject, leaf_key, (leaf, *maker.between.chain)),
        "a double's under the true chain": Signer(
            maker.between.name, double.between.key, maker.between.chain
        ),
        "without its chain": Signer(maker.between.name, maker.between.key),
        "of a server's authority": Signer(named("Test authority"), new_key()),
    }
    for who, signer in signers.items():
        for wish in WISHES:
            yield f"{wish}, {who}", _wish(maker, wish, signer=signer)
    for wish, (subject, names) in WISHES.items():
        key = new_key()
        own = Signer(subject, key)
        yield (
            f"{wish}, signed by itself",
            lambda s=subject, n=names, o=own, k=key: maker.client(s, *n, signer=o, key=k),
        )
        yield (
            f"{wish}, signed by itself as an authority",
            lambda s=subject, n=names, o=own, k=key: maker.client(
                s, *n, signer=o, key=k, authority=True
            ),
        )


def _dates(maker: Maker, now: dt.datetime) -> Iterator[Row]:
    dates = {
        "expired by a second": {"until": now - dt.timedelta(seconds=1)},
        "expired by a day": {"until": now - DAY},
        "expired by years": {"until": dt.datetime(2021, 1, 1, tzinfo=dt.UTC)},
        "begins in an hour": {"since": now + dt.timedelta(hours=1)},
        "begins in years": {"since": dt.datetime(2110, 1, 1, tzinfo=dt.UTC)},
    }
    for what, when in dates.items():
        for wish in WISHES:
            yield f"{wish}, {what}", _wish(maker, wish, **when)
    old = maker.below(maker.root, "Clients old", until=now - DAY)
    for wish in WISHES:
        yield f"{wish}, of an authority that expired", _wish(maker, wish, signer=old)
        yield f"{wish}, revoked", _wish(maker, wish, serial=REVOKED)


def _usage(**allowed: bool) -> x509.KeyUsage:
    every = [
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ]
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in every})


def _usages(maker: Maker) -> Iterator[Row]:
    """For servers, for code, for signing certificates, or with what nobody understands."""
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
    extensions = {
        "for servers": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        "for code": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]),
        "for mail": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION]),
        "for time stamps": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]),
        "for lists": _usage(crl_sign=True),
        "for certificates": _usage(key_cert_sign=True),
        "for keys": _usage(key_encipherment=True),
        "with an unknown critical extension": unknown,
    }
    for what, extension in extensions.items():
        for wish in WISHES:
            yield f"{wish}, {what}", _wish(maker, wish, extensions=[(extension, True)])


def _chains(maker: Maker) -> Iterator[Row]:
    """Authorities that may not sign: not at all, not so deep, not this name, not any more."""
    elsewhere = x509.NameConstraints([x509.DNSName("other.example")], None)
    nobody = x509.NameConstraints(None, [x509.DNSName("clients.example")])
    flat = maker.below(maker.root, "Clients flat", path_length=0)
    deep = maker.root
    for number in range(6):
        deep = maker.below(deep, f"Clients {number}")
    unlisted = maker.below(maker.root, "Clients unlisted", listed=False)
    signers = {
        "CA:FALSE": maker.below(maker.root, "Clients false", authority=False),
        "below a path length": maker.below(flat, "Clients below"),
        "too deep": deep,
        "without a list": unlisted,
        "that may not sign": maker.below(
            maker.root, "Clients dumb", extensions=[(_usage(digital_signature=True), True)]
        ),
    }
    for what, signer in signers.items():
        for wish in WISHES:
            yield f"{wish}, of an authority {what}", _wish(maker, wish, signer=signer)
    for what, constraint in (("elsewhere", elsewhere), ("not here", nobody)):
        bound = maker.below(maker.root, f"Clients {what}", extensions=[(constraint, True)])
        yield f"dns, of an authority for {what}", _wish(maker, "dns", signer=bound)


def _weak(maker: Maker) -> Iterator[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = rsa.generate_private_key(65537, 1024)
    for wish in WISHES:
        yield f"{wish}, RSA of 1024 bits", _wish(maker, wish, key=small)
    yield "subject, signed with SHA-1", lambda: _signed_with_sha1(maker)


def _signed_with_sha1(maker: Maker) -> Shown:
    """Return ann's certificate with a signature that `cryptography` does not make any more."""
    key = maker.folder / "sha1.key"
    root = maker.folder / "sha1-root.key"
    request, made = maker.folder / "sha1.csr", maker.folder / "sha1.pem"
    write_key(key, maker.key)
    write_key(root, maker.root.key)
    one = ["openssl", "req", "-new", "-key", str(key), "-subj", "/O=Example/CN=ann"]
    two = ["openssl", "x509", "-req", "-sha1", "-in", str(request), "-days", "3650"]
    signer = ["-CA", str(maker.authorities), "-CAkey", str(root), "-CAcreateserial"]
    for command in ([*one, "-out", str(request)], [*two, *signer, "-out", str(made)]):
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    return maker.write(x509.load_pem_x509_certificate(made.read_bytes()), ())


#: Names that only look like one that a rule has.
_DNS: Final = (
    "bob.clients.example.evil.example",
    "bob.clients.exampleX",
    "bob.clientsXexample",
    "x.bob.clients.example",
    "*.clients.example",
    "BOB.clients.example",
    "bob.clients.example.",
    ".clients.example",
    "clients.example",
    "b-b.clients.example",
    "bob .clients.example",
    " bob.clients.example",
    "bob.clients.example\n",
    "bob.clients.example\0",
    "bob.clients.example\0.evil.example",
    "evil\nbob.clients.example",
    "bobbobbobbobbobbobbobbobbob.clients.example",
    "b" * 300 + ".clients.example",
    "bob.clients.example,bob.clients.example",
    "xn--bb-eka.clients.example",
)
_URIS: Final = (
    "spiffe://example/svc/",
    "spiffe://example/svc?x",
    "spiffe://example/svc#x",
    "spiffe://example/SVC",
    "SPIFFE://example/svc",
    "spiffe://example//svc",
    "spiffe://example/./svc",
    "spiffe://example/%73vc",
    "spiffe://example/svc\0",
    "spiffe://example.evil/svc",
    "spiffe://example/svc/spiffe://example/svc",
)
_EMAILS: Final = (
    "eve@clients.example.evil",
    "Eve@clients.example",
    "eve@CLIENTS.example",
    "eve+x@clients.example",
    "eve@clients.example\0",
    "eve@clients.example>",
    "<eve@clients.example>",
    "x@y,eve@clients.example",
)


def _strange_names(maker: Maker) -> Iterator[Row]:
    """Trusted, and nobody's: what is signed well and named wrong."""
    kinds: dict[str, tuple[tuple[str, ...], Callable[[str], x509.GeneralName]]] = {
        "dns": (_DNS, lambda text: _unchecked(x509.DNSName, text)),
        "uri": (_URIS, lambda text: _unchecked(x509.UniformResourceIdentifier, text)),
        "email": (_EMAILS, lambda text: _unchecked(x509.RFC822Name, text)),
    }
    for kind, (texts, made) in kinds.items():
        for text in texts:
            name = made(text)
            yield f"{kind} {text[:40]!r}", lambda n=name: maker.client(named("x"), n)
    crowd = [x509.DNSName(f"n{number}.other.example") for number in range(150)]
    yield (
        "a pattern's name among 150",
        lambda: maker.client(named("x"), *crowd, x509.DNSName("bob.clients.example")),
    )
    mob = [x509.DNSName(f"n{number}.other.example") for number in range(10_000)]
    yield "ten thousand names", lambda: maker.client(named("ann"), *mob)
    yield (
        "another authority's mail",
        lambda: maker.client(named("z"), x509.RFC822Name("eve@clients.example"), signer=maker.root),
    )


def _unchecked(kind: type, text: str) -> x509.GeneralName:
    """Return a name with a text that nobody would write."""
    made = kind.__new__(kind)
    made._value = text
    return made


_COMMON: Final = (
    "Ann", "ANN", "ann ", " ann", "ann\0", "ann\0x", "ann\n", "ann,O=Example", "ann\\,O=Example",
    "\u0430nn", "a\u200bnn", "\u202enna", "\uff41\uff4e\uff4e", "ann\u0301", "ann\x7f", "ann;x",
    "*", "an?", "a.n", "", "'ann'", '"ann"', "#616e6e", "\u05d0\u05e0", "a" * 2000, "%s%n",
    "${ann}", "../ann", "ann\r\nx: y", "\x1b[2Jann",
)  # fmt: skip


def _strange_subjects(maker: Maker) -> Iterator[Row]:
    common, organization = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME

    def plain(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is longer than it may be
            return x509.Name(
                [x509.NameAttribute(oid, text, _validate=False) for oid, text in parts if text]
            )

    for text in _COMMON:
        subject = plain((organization, "Example"), (common, text))
        yield f"subject {text[:30]!r}", lambda s=subject: maker.client(s)
    both = [x509.NameAttribute(common, "ann"), x509.NameAttribute(organization, "Example")]
    subjects = {
        "the other way round": plain((common, "ann"), (organization, "Example")),
        "twice": plain((organization, "Example"), (common, "ann"), (common, "ann")),
        "two names": plain((organization, "Example"), (common, "ann"), (common, "x")),
        "with a country": plain(
            (NameOID.COUNTRY_NAME, "DE"), (organization, "Example"), (common, "ann")
        ),
        "without an organization": plain((common, "ann")),
        "another organization": named("ann", organization="Example "),
        "a part with two": x509.Name([x509.RelativeDistinguishedName(both)]),
        "of other words": plain((organization, "Example"), (NameOID.SURNAME, "ann")),
        "nothing": x509.Name([]),
    }
    for what, subject in subjects.items():
        yield f"subject, {what}", lambda s=subject: maker.client(s)


def _damaged(maker: Maker, server: Authority, count: int) -> Iterator[Row]:
    """Yield honest certificates with a byte that is another one, as far as a client can show it."""
    chance = random.Random(14)
    subject, names = WISHES["subject"]
    honest = maker.client(subject, *names).made.public_bytes(serialization.Encoding.DER)
    while count:
        at = chance.randrange(len(honest))
        other = honest[:at] + bytes([honest[at] ^ (1 << chance.randrange(8))]) + honest[at + 1 :]
        text = ssl.DER_cert_to_PEM_cert(other).encode()
        shown = maker.client(subject, *names)
        chain = b"".join(one.public_bytes(PEM) for one in maker.between.chain)
        shown.certificate.write_bytes(text + chain)
        try:
            shown.context(server)
        except ssl.SSLError:
            continue
        count -= 1
        yield f"subject, byte {at} is another", lambda s=shown: s
