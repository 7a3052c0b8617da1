"""Whose a certificate is, by what stands in it and within its dates; and what the gate does."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gateway.model.certificates import CertificateRule, Shown
from gateway.model.principal import By
from gateway.security.certificates import REMEMBERED_MAX, CertificateUsers, Owner, read_shown
from gateway.security.gate import PasswordGate
from gateway.security.secret import Secret
from gateway.security.users import User
from tests.client_certificates import FROM, TO, Maker, named

DER = serialization.Encoding.DER
NOW_MS = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
ANN = CertificateRule(user="ann", subject="CN=ann,O=Example")


class Told:
    """Who hears of certificates that are nobody's; also the audit, and the date."""

    def __init__(self) -> None:
        self.refused: list[tuple[Shown | None, str, str]] = []
        self.noted: list[tuple[str, dict[str, object]]] = []
        self.now_ms = NOW_MS

    def hear(self, shown: Shown | None, peer: str, reason: str) -> None:
        self.refused.append((shown, peer, reason))

    def note(self, event: str, **facts: object) -> None:
        self.noted.append((event, facts))

    def users(self, *rules: CertificateRule) -> CertificateUsers:
        made = CertificateUsers(rules, now_ms=lambda: self.now_ms, refused=self.hear)
        made.auditor = self
        return made


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("clients"))


def der(maker: Maker, common: str = "ann", *names: x509.GeneralName, **more: object) -> bytes:
    return maker.client(named(common), *names, **more).made.public_bytes(DER)


def test_what_stands_in_a_certificate_is_read(maker: Maker) -> None:
    shown = read_shown(
        der(
            maker,
            "ann",
            x509.DNSName("a.example"),
            x509.UniformResourceIdentifier("urn:a"),
            x509.RFC822Name("a@example"),
            serial=255,
        )
    )
    assert shown == Shown(
        subject="CN=ann,O=Example",
        issuer="CN=Clients between,O=Example",
        serial="ff",
        from_ms=int(FROM.timestamp() * 1000),
        until_ms=int(TO.timestamp() * 1000),
        dns=("a.example",),
        uris=("urn:a",),
        emails=("a@example",),
    )


def test_an_owner_has_the_end_of_the_certificate(maker: Maker, told: Told) -> None:
    owner = told.users(ANN).owner(der(maker), "p")
    assert owner == Owner(user="ann", roles=None, until_ms=int(TO.timestamp() * 1000))
    assert told.refused == []


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (FROM - dt.timedelta(seconds=1), "does not hold now"),
        (TO + dt.timedelta(seconds=1), "does not hold now"),
    ],
)
def test_dates_are_asked_again_whatever_tls_said(
    now: dt.datetime, reason: str, maker: Maker, told: Told
) -> None:
    told.now_ms = int(now.timestamp() * 1000)
    assert told.users(ANN).owner(der(maker), "p") is None
    assert reason in told.refused[0][2]


def test_a_certificate_of_nobody_is_told_and_audited(maker: Maker, told: Told) -> None:
    assert told.users(ANN).owner(der(maker, "x\n"), "1.2.3.4") is None
    ((event, facts),) = told.noted
    assert event == "certificate.refused"
    assert facts["peer"] == "1.2.3.4"
    assert facts["subject"] == "CN=x\\u000a,O=Example"


@pytest.mark.parametrize("junk", [b"", b"\x30", b"nonsense", b"\x30\x82\xff\xff" + b"\0" * 50])
def test_what_is_no_certificate_is_nobodys(junk: bytes, told: Told) -> None:
    users = told.users(ANN)
    assert users.owner(junk, "p") is None
    assert not users.is_of(junk, "ann")
    assert told.refused[0][0] is None


@pytest.mark.parametrize("name", ["a:b", "a\nb", " ", "", "n" * 300])
def test_a_name_that_no_user_can_have_is_nobodys(name: str, maker: Maker, told: Told) -> None:
    rule = CertificateRule(user=name, subject="CN=ann,O=Example")
    assert told.users(rule).owner(der(maker), "p") is None
    assert "of what a rule makes of it" in told.refused[0][2]


def test_rules_may_be_others_at_any_time(maker: Maker, told: Told) -> None:
    users = told.users(ANN)
    assert users.is_of(der(maker), "ann")
    users.rules = (CertificateRule(user="b", subject="CN=ann,O=Example"),)
    assert not users.is_of(der(maker), "ann")
    assert users.is_of(der(maker), "b")


def test_what_is_remembered_of_certificates_has_a_bound(maker: Maker, told: Told) -> None:
    users = told.users(ANN)
    for number in range(REMEMBERED_MAX + 10):
        users.owner(der(maker, f"n{number}"), "p")
    assert len(users._read) == REMEMBERED_MAX


class Around:
    """The gate's surroundings, which these logins do not need."""

    def now(self) -> float:
        return 0.0

    def later(self, action: object) -> None: ...

    def verify(self, work: object, done: object) -> None: ...

    def refused(self, user: str, peer: str, why: object) -> None: ...


def gate(told: Told, *rules: CertificateRule) -> PasswordGate:
    ann = User(name="ann", password=Secret("$argon2id$x"), roles=frozenset({"file"}))
    made = PasswordGate({"ann": ann}, Around(), b"k")
    made.certificates = told.users(*rules)
    return made


def test_roles_are_those_of_the_rule_or_else_of_the_users_file(maker: Maker, told: Told) -> None:
    certificate = der(maker)
    principal = gate(told, ANN).certified(certificate, "p")
    assert principal is not None
    assert (principal.user, principal.by, principal.roles) == (
        "ann",
        By.CERTIFICATE,
        frozenset({"file"}),
    )
    assert principal.until_ms == int(TO.timestamp() * 1000)
    rule = CertificateRule(user="ann", subject=ANN.subject, roles=frozenset({"rule"}))
    principal = gate(told, rule).certified(certificate, "p")
    assert principal is not None
    assert principal.roles == {"rule"}


def test_each_connection_has_a_principal_of_its_own(maker: Maker, told: Told) -> None:
    certificate, one = der(maker), gate(told, ANN)
    assert one.certified(certificate, "p") is not one.certified(certificate, "p")


def test_without_rules_or_certificate_nobody_is_certified(maker: Maker, told: Told) -> None:
    assert gate(told).certified(der(maker), "p") is None
    assert gate(told, ANN).certified(None, "p") is None
    assert told.refused == []


def test_a_gate_with_rules_is_not_open(told: Told) -> None:
    made = PasswordGate({}, Around(), b"k")
    assert made.open
    made.certificates = told.users(ANN)
    assert not made.open


def test_other_rules_give_those_who_are_there_other_roles(maker: Maker, told: Told) -> None:
    made = gate(told, ANN)
    one = made.certified(der(maker), "p")
    assert one is not None
    renewed: list[frozenset[str]] = []
    one.changed.append(lambda: renewed.append(one.roles))
    rule = CertificateRule(user="ann", subject=ANN.subject, roles=frozenset({"rule"}))
    made.use_rules((rule,))
    made.use_rules((rule,))
    made.use({})
    assert renewed == [frozenset({"rule"})]  # and those of the users file do not count any more
    made.use_rules((CertificateRule(user="eve", subject=ANN.subject, roles=frozenset({"x"})),))
    assert one.roles == {"rule"}
