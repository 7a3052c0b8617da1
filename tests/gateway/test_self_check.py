"""What a listener tells of its certificates: what clients will refuse, or soon will."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from gateway.config.tls import ClientCertificates, TlsSource
from gateway.listening.certificates import LOOK_SECONDS, Certificates, check_listener
from gateway.listening.contexts import CertificateError
from gateway.listening.self_check import Level
from tests.certificates import Authority
from tests.client_certificates import PEM, Maker, Shown, named

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
NAME = x509.DNSName("gate.example")


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("signed"))


def source(shown: Shown, **more: object) -> TlsSource:
    return TlsSource(certificate=str(shown.certificate), key=str(shown.key), table=True, **more)


def events(one: TlsSource, host: str = "", level: Level = Level.WARNING) -> list[str]:
    found = check_listener(one, "acceptors.all", now_ms=NOW_MS, host=host)
    return [finding.event for finding in found if finding.level is level]


def test_what_is_well_has_no_warning(maker: Maker) -> None:
    shown = maker.client(named("x"), NAME)
    assert events(source(shown), "gate.example") == []
    # Where a chain ends it cannot be seen from here whether clients know who signed it.
    assert events(source(shown), level=Level.NOTE) == ["certificate.chain_ends"]


@pytest.mark.parametrize(
    ("ends", "event", "days"),
    [
        (dt.timedelta(days=31), None, ""),
        (dt.timedelta(days=29), "certificate.expires_soon", "30"),
        (dt.timedelta(days=6), "certificate.expires_soon", "7"),
        (dt.timedelta(seconds=-1), "certificate.expired", ""),
    ],
)
def test_the_end_is_told_of_in_its_last_days(
    ends: dt.timedelta, event: str | None, days: str, maker: Maker
) -> None:
    shown = maker.client(named("x"), NAME, until=NOW + ends)
    found = check_listener(source(shown), "l", now_ms=NOW_MS)
    warnings = [one for one in found if one.level is Level.WARNING]
    assert [one.event for one in warnings] == ([] if event is None else [event])
    if days:
        assert warnings[0].facts["days"] == days


def test_each_of_both_days_is_told_once_while_it_runs(maker: Maker) -> None:
    shown = maker.client(named("x"), NAME, until=NOW + dt.timedelta(days=40))
    seconds, date = [0.0], [NOW_MS]
    with structlog.testing.capture_logs() as told:
        served = Certificates(
            source(shown), "l", seconds=lambda: seconds[0], now_ms=lambda: date[0]
        )
        for _ in range(42 * 2):
            seconds[0] += LOOK_SECONDS
            date[0] += 86_400_000 // 2
            served.context()
    assert [(one["event"], one.get("days")) for one in told] == [
        ("certificate.expires_soon", "30"),
        ("certificate.expires_soon", "7"),
        ("certificate.expired", None),
    ]
    assert served.seconds_left() < 0


def test_the_seconds_left_are_those_of_the_first_to_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "made")
    served = tmp_path / "served"
    authority.issue("a.example", folder=served, until=NOW + dt.timedelta(days=9))
    authority.issue("b.example", folder=served, until=NOW + dt.timedelta(days=90))
    # One that another takes the place of is nobody's.
    authority.issue("a.example", folder=served, until=NOW - dt.timedelta(days=9))
    authority.issue("a.example", folder=served, until=NOW + dt.timedelta(days=1))
    made = Certificates(
        TlsSource(directory=str(served)), "l", seconds=lambda: 0.0, now_ms=lambda: NOW_MS
    )
    assert made.seconds_left() in (86_400 * 9, 86_400 * 1)
    assert made.seconds_left() == 86_400 * 9


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("gate.example", True),
        ("GATE.example.", True),
        ("a.wild.example", True),
        ("a.b.wild.example", False),
        ("wild.example", False),
        ("other.example", False),
        ("10.1.2.3", True),
        ("10.1.2.4", False),
    ],
)
def test_the_host_has_to_be_named(host: str, right: bool, maker: Maker) -> None:
    import ipaddress

    address = x509.IPAddress(ipaddress.ip_address("10.1.2.3"))
    shown = maker.client(named("x"), NAME, x509.DNSName("*.wild.example"), address)
    assert events(source(shown), host) == ([] if right else ["certificate.wrong_name"])
    assert events(source(shown, hostname="gate.example"), host) == []


def test_a_chain_that_does_not_fit_is_told(maker: Maker) -> None:
    made = maker.client(named("x"), NAME).made
    other = maker.below(maker.root, "Another")
    assert events(source(maker.write(made, other.chain))) == ["certificate.chain_broken"]
    whole = maker.write(made, [*maker.between.chain, maker.root_made])
    assert events(source(whole)) == []
    assert events(source(whole), level=Level.NOTE) == []


def test_a_certificate_of_an_authority_or_not_for_servers_is_told(maker: Maker) -> None:
    authority = maker.client(named("x"), NAME, authority=True)
    assert events(source(authority)) == ["certificate.is_authority"]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    client = maker.client(named("x"), NAME, extensions=[(usage, False)])
    assert events(source(client)) == ["certificate.not_for_servers"]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    assert events(source(maker.client(named("x"), NAME, extensions=[(usage, False)]))) == []


def test_a_weak_key_in_the_chain_is_told(maker: Maker) -> None:
    from gateway.listening.self_check import Found, standing_findings

    key = ec.generate_private_key(ec.SECP192R1()) if hasattr(ec, "SECP192R1") else None
    assert key is not None
    shown = maker.client(named("x"), NAME, key=key)
    found = Found(certificate=shown.made, pem=b"", key=shown.key, names=("gate.example",), above=())
    (weak,) = [one for one in standing_findings([found]) if one.event == "certificate.weak"]
    assert "192 bits" in weak.facts["reason"]


def test_a_certificate_that_signs_itself_is_noted(tmp_path: Path) -> None:
    from gateway.trial.self_signed import self_signed

    pair = self_signed(tmp_path)
    one = TlsSource(certificate=str(pair.certificate), key=str(pair.key))
    assert events(one) == []
    assert events(one, level=Level.NOTE) == ["certificate.self_signed"]


def test_what_a_start_would_refuse_is_a_finding(tmp_path: Path) -> None:
    one = TlsSource(certificate=str(tmp_path / "nowhere.pem"), table=True)
    (finding,) = check_listener(one, "acceptors.all", now_ms=NOW_MS)
    assert finding.event == "certificate.refused"
    assert finding.facts["key"] == "acceptors.all.tls.certificate"


def test_lists_that_are_out_of_date_are_told(maker: Maker) -> None:
    maker.revoke(until=NOW - dt.timedelta(days=1))
    one = source(
        maker.client(named("x"), NAME),
        client_certificates=ClientCertificates.ASKED,
        client_ca=str(maker.authorities),
        client_crl=str(maker.lists),
    )
    assert events(one) == ["certificate.revocations_expired"]
    maker.revoke()
    assert events(one) == []


# ---- what is refused at the start


def test_ciphers_are_chosen_by_name_and_unknown_ones_refused(maker: Maker) -> None:
    shown = maker.client(named("x"), NAME)

    def context(*ciphers: str) -> list[str]:
        made = Certificates(
            source(shown, ciphers=ciphers), "l", seconds=lambda: 0.0, now_ms=lambda: NOW_MS
        ).context()
        return [str(one["name"]) for one in made.get_ciphers() if one["protocol"] != "TLSv1.3"]

    wanted = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256")
    assert context(*wanted) == list(wanted)
    for name in ("RC4-MD5", "NULL-SHA", "AES128-SHA", "ALL", "ECDHE-RSA-AES128-GCM-SHA256:ALL", ""):
        with pytest.raises(CertificateError) as caught:
            context(name)
        assert caught.value.part == "ciphers"
        assert f'"{name}"' in str(caught.value)
    with pytest.raises(CertificateError, match=r"TLS_AES_128_GCM_SHA256 is of TLS 1\.3"):
        context("TLS_AES_128_GCM_SHA256")


def client_source(maker: Maker, ca: Path, crl: Path | None = None) -> TlsSource:
    return source(
        maker.client(named("x"), NAME),
        client_certificates=ClientCertificates.REQUIRED,
        client_ca=str(ca),
        client_crl="" if crl is None else str(crl),
    )


def test_files_about_clients_that_cannot_be_used_are_named(maker: Maker, tmp_path: Path) -> None:
    leaf = maker.client(named("x"))
    empty, junk, between = tmp_path / "empty.pem", tmp_path / "junk.pem", tmp_path / "between.pem"
    empty.write_bytes(b"")
    junk.write_bytes(b"-----BEGIN X509 CRL-----\nMAAA\n-----END X509 CRL-----\n")
    between.write_bytes(maker.between.chain[0].public_bytes(PEM))
    faults = [
        (client_source(maker, tmp_path / "nowhere"), "client-ca", "cannot be read"),
        (client_source(maker, empty), "client-ca", "holds no certificate"),
        (client_source(maker, leaf.certificate), "client-ca", "is no authority's"),
        (client_source(maker, maker.authorities, empty), "client-crl", "holds no list"),
        (client_source(maker, maker.authorities, junk), "client-crl", "damaged"),
        (client_source(maker, between, maker.lists), "client-ca", "not who signed it"),
    ]
    for one, part, words in faults:
        (finding,) = check_listener(one, "acceptors.all", now_ms=NOW_MS)
        assert finding.facts["key"] == f"acceptors.all.tls.{part}"
        assert words in finding.facts["reason"]


def test_a_list_that_ends_while_its_file_is_replaced_is_no_reason_to_stop(maker: Maker) -> None:
    maker.revoke(until=NOW + dt.timedelta(hours=1))
    seconds, date = [0.0], [NOW_MS]
    served = Certificates(
        client_source(maker, maker.authorities, maker.lists),
        "l",
        seconds=lambda: seconds[0],
        now_ms=lambda: date[0],
    )
    before = served.context()
    maker.lists.write_bytes(b"")
    served.look()
    date[0] += 2 * 3_600_000
    with structlog.testing.capture_logs() as told:
        served.look()
        assert served.context() is before
    assert [one["event"] for one in told] == [
        "certificate.refused",
        "certificate.revocations_expired",
    ]
    maker.revoke()
    served.look()
    assert served.context() is not before
