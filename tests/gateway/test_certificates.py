"""What a listener proves itself with: refused by its key at the start, renewed while it runs."""

from __future__ import annotations

import datetime as dt
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from gateway.config.tls import TlsSource, TlsVersion
from gateway.listening.certificates import LOOK_SECONDS, CertificateError, Certificates
from gateway.trial.scratch import HOST, ScratchGateway, free_ports, importing_environment
from gateway.trial.self_signed import KeyPair
from protocols.transport.tls import Tls
from tests.certificates import Authority, serial_in, serial_of

NOW_MS = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)


class Clocks:
    def __init__(self) -> None:
        self.now = 0.0
        self.now_ms = NOW_MS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "made")


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def opened(source: TlsSource, clocks: Clocks) -> Certificates:
    return Certificates(
        source, "acceptors.all", seconds=lambda: clocks.now, now_ms=lambda: clocks.now_ms
    )


def source_of(pair: KeyPair, **more: object) -> TlsSource:
    return TlsSource(certificate=str(pair.certificate), key=str(pair.key), table=True, **more)


def presented(certificates: Certificates, authority: Authority, name: str = "localhost") -> int:
    """Return the serial number of the certificate that a client accepts."""
    server = Tls(certificates.context())
    client = Tls(authority.client(), server=False, name=name)
    client.shake()
    while not (client.ready and server.ready):
        server.feed(client.take())
        client.feed(server.take())
        assert not client.failure
        assert not server.failure
    return serial_of(client._tls.getpeercert(binary_form=True))


# ---- what is wrong


def missing(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue()
    pair.certificate.unlink()
    return source_of(pair), "certificate", "cannot be read: No such file"


def unreadable(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue()
    pair.key.unlink()
    pair.key.mkdir()
    return source_of(pair), "key", "cannot be read: Is a directory"


def empty(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue()
    pair.certificate.write_bytes(b"")
    return source_of(pair), "certificate", "holds no certificate"


def damaged(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue()
    text = pair.certificate.read_bytes()
    pair.certificate.write_bytes(text.replace(b"M", b"A", 5))
    return source_of(pair), "certificate", "damaged"


def keyless(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue()
    return TlsSource(certificate=str(pair.certificate), table=True), "certificate", "no private key"


def of_another(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    one, other = authority.issue(), authority.issue()
    return source_of(KeyPair(one.certificate, other.key)), "key", "is not the key of"


def encrypted(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    pair = authority.issue(password=b"secret")
    return source_of(pair), "key", "encrypted with a password"


def chainless(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    chain = folder / "chain.pem"
    chain.write_bytes(b"nothing")
    return source_of(authority.issue(), chain=str(chain)), "chain", "holds no certificate"


def no_directory(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    return TlsSource(directory=str(folder / "nowhere"), table=True), "directory", "does not exist"


def a_file(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    source = TlsSource(directory=str(authority.root), table=True)
    return source, "directory", "is no directory"


def empty_directory(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    (folder / "empty").mkdir()
    source = TlsSource(directory=str(folder / "empty"), table=True)
    return source, "directory", "holds no .pem, .crt or .key file"


def unpaired(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    served = folder / "unpaired"
    authority.issue(folder=served).key.unlink()
    source = TlsSource(directory=str(served), table=True)
    return source, "directory", "no certificate together with its private key"


def encrypted_in_directory(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    served = folder / "served"
    authority.issue(folder=served, password=b"secret")
    return TlsSource(directory=str(served), table=True), "directory", "encrypted with a password"


def two_keys(folder: Path, authority: Authority) -> tuple[TlsSource, str, str]:
    served = folder / "served"
    one, other = authority.issue(folder=served), authority.issue(folder=served)
    one.key.write_bytes(one.key.read_bytes() + other.key.read_bytes())
    return TlsSource(directory=str(served), table=True), "directory", "holds 2 keys"


FAULTS: list[Callable[[Path, Authority], tuple[TlsSource, str, str]]] = [
    missing,
    unreadable,
    empty,
    damaged,
    keyless,
    of_another,
    encrypted,
    chainless,
    no_directory,
    a_file,
    empty_directory,
    unpaired,
    encrypted_in_directory,
    two_keys,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_what_cannot_be_used_is_refused_and_the_part_named(
    tmp_path: Path,
    authority: Authority,
    clocks: Clocks,
    fault: Callable[[Path, Authority], tuple[TlsSource, str, str]],
) -> None:
    source, part, told = fault(tmp_path, authority)
    with pytest.raises(CertificateError, match=told) as raised:
        opened(source, clocks)
    assert raised.value.part == part


@pytest.mark.parametrize("kind", ["ssl", "tls", "table", "management"])
def test_a_gateway_with_such_files_does_not_start_and_names_the_key(
    tmp_path: Path, authority: Authority, kind: str
) -> None:
    one, other = authority.issue(), authority.issue()
    port = free_ports(1)[0]
    text = {
        "ssl": f"ssl:{port}:privateKey={other.key}:certKey={one.certificate}:interface={HOST}",
        "tls": f"tls:{tmp_path}/nowhere:port={port}:interface={HOST}",
    }.get(kind, f"tcp:{port}:interface={HOST}")
    listener = "management" if kind == "management" else "acceptors.new"
    settings = [f"{listener}.endpoint='{text}'"]
    key = f"{listener}.endpoint"
    if kind in ("table", "management"):
        settings += [f"{listener}.tls.certificate='{one.certificate}'"]
        settings += [f"{listener}.tls.key='{other.key}'"]
        key = f"{listener}.tls.key"
    gateway = ScratchGateway(tmp_path / "gateway", settings=settings)
    ended = subprocess.run(
        gateway.command(),
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        env=importing_environment(),
    )
    assert ended.returncode == 64
    assert f"{key}: " in ended.stderr
    assert "is not the key of" in ended.stderr or "does not exist" in ended.stderr
    assert "ready" not in ended.stderr


# ---- what is served


def test_key_and_chain_may_stand_in_the_file_of_the_certificate(
    tmp_path: Path, clocks: Clocks
) -> None:
    authority = Authority(tmp_path / "chained", intermediate=True)
    pair = authority.issue()
    whole = tmp_path / "whole.pem"
    parts = (pair.key, pair.certificate, authority.chain)
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    served = opened(TlsSource(certificate=str(whole)), clocks)
    assert presented(served, authority) == serial_in(pair.certificate)


def test_a_chain_in_a_file_of_its_own_comes_along(tmp_path: Path, clocks: Clocks) -> None:
    authority = Authority(tmp_path / "chained", intermediate=True)
    pair = authority.issue()
    served = opened(source_of(pair, chain=str(authority.chain)), clocks)
    assert presented(served, authority) == serial_in(pair.certificate)


def test_the_minimum_version_is_kept(authority: Authority, clocks: Clocks) -> None:
    pair = authority.issue()
    old = authority.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for minimum, failure in ((TlsVersion.TLS_1_2, ""), (TlsVersion.TLS_1_3, "protocol")):
        server = Tls(opened(source_of(pair, minimum=minimum), clocks).context())
        client = Tls(old, server=False, name="localhost")
        client.shake()
        for _ in range(3):
            server.feed(client.take())
            client.feed(server.take())
        assert failure in server.failure
        assert server.ready is not bool(failure)


def test_of_two_for_one_name_that_which_is_valid_longest_is_served(
    tmp_path: Path, authority: Authority, clocks: Clocks
) -> None:
    served = tmp_path / "served"
    late = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    past = dt.datetime(2021, 1, 1, tzinfo=dt.UTC)
    authority.issue(folder=served, stem="1-gone", until=past)
    best = authority.issue(folder=served, stem="2-best")
    authority.issue(folder=served, stem="3-sooner", until=late)
    certificates = opened(TlsSource(directory=str(served)), clocks)
    assert presented(certificates, authority) == serial_in(best.certificate)


# ---- renewal


def test_files_are_looked_at_once_a_second_and_only_changed_ones_are_read(
    authority: Authority, clocks: Clocks
) -> None:
    pair = authority.issue(stem="server")
    certificates = opened(source_of(pair), clocks)
    first = certificates.context()
    old = serial_in(pair.certificate)
    authority.issue(stem="server")
    clocks.now = LOOK_SECONDS / 2
    assert certificates.context() is first
    assert presented(certificates, authority) == old
    clocks.now = LOOK_SECONDS
    assert presented(certificates, authority) == serial_in(pair.certificate) != old
    again = certificates.context()
    clocks.now = 10 * LOOK_SECONDS
    assert certificates.context() is again


def test_between_certificate_and_key_the_old_pair_is_served(
    authority: Authority, clocks: Clocks
) -> None:
    """Whoever renews writes one file and then the other."""
    pair = authority.issue(stem="server")
    certificates = opened(source_of(pair), clocks)
    old = serial_in(pair.certificate)
    new = authority.issue(stem="new")
    shutil.copy(new.certificate, pair.certificate)
    with structlog.testing.capture_logs() as told:
        for _ in range(3):
            clocks.now += LOOK_SECONDS
            assert presented_serial(certificates) == old
        assert [event["event"] for event in told] == ["certificate.refused"]
        assert told[0]["key"] == "acceptors.all.tls.key"
        shutil.copy(new.key, pair.key)
        clocks.now += LOOK_SECONDS
        assert presented(certificates, authority) == serial_in(new.certificate)
    assert [event["event"] for event in told] == ["certificate.refused", "certificate.renewed"]


def presented_serial(certificates: Certificates) -> int:
    """Return the serial number that anybody gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server, client = Tls(certificates.context()), Tls(context, server=False)
    client.shake()
    server.feed(client.take())
    client.feed(server.take())
    return serial_of(client._tls.getpeercert(binary_form=True))


def test_a_directory_that_vanishes_is_no_reason_to_stop(
    tmp_path: Path, authority: Authority, clocks: Clocks
) -> None:
    served = tmp_path / "served"
    pair = authority.issue(folder=served)
    certificates = opened(TlsSource(directory=str(served)), clocks)
    old = serial_in(pair.certificate)
    shutil.rmtree(served)
    with structlog.testing.capture_logs() as told:
        clocks.now += LOOK_SECONDS
        assert presented(certificates, authority) == old
    assert [event["event"] for event in told] == ["certificate.refused"]


def empty(pair: KeyPair) -> str:
    pair.certificate.write_bytes(b"")
    return "holds neither a certificate nor a private key"


def broken_off(pair: KeyPair) -> str:
    pair.certificate.write_bytes(pair.certificate.read_bytes()[:300])
    return "is not whole"


def without_key(pair: KeyPair) -> str:
    pair.key.unlink()
    return "has a certificate for b.example, but not its private key"


@pytest.mark.parametrize("happens", [empty, broken_off, without_key])
def test_a_half_written_file_of_a_directory_takes_no_name_away(
    happens: Callable[[KeyPair], str], tmp_path: Path, authority: Authority, clocks: Clocks
) -> None:
    """Clients that ask for that name would get another's certificate."""
    served = tmp_path / "served"
    authority.issue("a.example", folder=served, stem="a")
    pair = authority.issue("b.example", folder=served, stem="b")
    certificates = opened(TlsSource(directory=str(served)), clocks)
    old = serial_in(pair.certificate)
    with structlog.testing.capture_logs() as told:
        words = happens(pair)
        for _ in range(2):
            clocks.now += LOOK_SECONDS
            assert presented(certificates, authority, "b.example") == old
    assert [event["event"] for event in told] == ["certificate.refused"]
    assert words in told[0]["reason"]
    pair.certificate.unlink()
    clocks.now += LOOK_SECONDS
    assert presented(certificates, authority, "a.example") != old


def test_a_certificate_that_begins_later_is_told_as_that(
    authority: Authority, clocks: Clocks
) -> None:
    clocks.now_ms = int(dt.datetime(2019, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
    with structlog.testing.capture_logs() as told:
        opened(source_of(authority.issue()), clocks)
    assert [(event["event"], event["begins"]) for event in told] == [
        ("certificate.not_valid_yet", "2020-01-01")
    ]


def test_a_certificate_that_has_expired_is_told_once_and_served(
    authority: Authority, clocks: Clocks
) -> None:
    ends = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
    pair = authority.issue(until=ends)
    with structlog.testing.capture_logs() as told:
        certificates = opened(source_of(pair), clocks)
        assert told == []
        clocks.now_ms = int(ends.timestamp() * 1000) + 1
        for _ in range(3):
            clocks.now += LOOK_SECONDS
            assert presented_serial(certificates) == serial_in(pair.certificate)
    assert [(event["event"], event["until"]) for event in told] == [
        ("certificate.expired", "2026-06-01")
    ]
    with structlog.testing.capture_logs() as again:
        opened(source_of(pair), clocks)
    assert [event["event"] for event in again] == ["certificate.expired"]
