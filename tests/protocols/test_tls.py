"""The TLS engine: what goes in comes out whole, however it is cut, and what is wrong is told."""

from __future__ import annotations

import contextlib
import random
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from OpenSSL import SSL

from protocols.transport.tls import HELD_BYTES_MAX, NOT_TLS, RECORD_BYTES, Tls
from tests.certificates import Authority
from tests.lanes import examples

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Contexts:
    """One authority, one certificate, and what both ends speak with."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.pair = self.authority.issue("localhost")

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.pair)
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        return context

    def client(self, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        context = self.authority.client()
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("certificates"))


class Pair:
    """Both ends, and what is on its way between them."""

    def __init__(self, contexts: Contexts, version: ssl.TLSVersion | None = None) -> None:
        self.server = Tls(contexts.server())
        self.client = Tls(contexts.client(version), server=False, name="localhost")
        self.up = self.down = b""
        self.heard_up = self.heard_down = b""
        self.client.shake()
        self.up += self.client.take()

    def move(self, up: int, down: int) -> None:
        """Let so many bytes arrive at each end."""
        part, self.up = self.up[:up], self.up[up:]
        self.heard_up += self.server.feed(part)
        self.down += self.server.take()
        part, self.down = self.down[:down], self.down[down:]
        self.heard_down += self.client.feed(part)
        self.up += self.client.take()

    def settle(self, step: int = 1 << 20) -> None:
        while self.up or self.down:
            self.move(step, step)


def ready(contexts: Contexts, version: ssl.TLSVersion | None = None) -> Pair:
    pair = Pair(contexts, version)
    pair.settle()
    assert pair.server.ready
    assert pair.client.ready
    return pair


@settings(max_examples=examples(40))
@given(
    said=st.lists(st.tuples(st.booleans(), st.integers(1, 3 * RECORD_BYTES)), max_size=6),
    cuts=st.lists(st.integers(1, 20_000), min_size=1, max_size=30),
    version=st.sampled_from(VERSIONS),
)
def test_what_is_said_arrives_whole_however_it_is_cut(
    contexts: Contexts,
    said: list[tuple[bool, int]],
    cuts: list[int],
    version: ssl.TLSVersion,
) -> None:
    pair = Pair(contexts, version)
    chance = random.Random(len(said))
    wanted_up = wanted_down = b""
    for up, size in said:
        data = chance.randbytes(size)
        if up and len(wanted_up) + size <= HELD_BYTES_MAX:
            wanted_up += data
            pair.up += pair.client.seal(data)
        elif not up and len(wanted_down) + size <= HELD_BYTES_MAX:
            wanted_down += data
            pair.down += pair.server.seal(data)
        pair.move(cuts[0], cuts[-1])
    pair.up += pair.client.close() if pair.client.ready else b""
    at = 0
    while pair.up or pair.down:
        pair.move(cuts[at % len(cuts)], cuts[-1 - at % len(cuts)])
        at += 1
    assert (pair.heard_up, pair.heard_down) == (wanted_up, wanted_down)
    assert not pair.server.failure
    assert not pair.client.failure


@pytest.mark.parametrize("version", VERSIONS)
def test_a_peer_that_sends_byte_by_byte_is_understood(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    pair = Pair(contexts, version)
    pair.up += pair.client.seal(b"slow")
    while pair.up or pair.down:
        pair.move(1, 1)
    pair.down += pair.server.seal(b"and sure")
    while pair.up or pair.down:
        pair.move(1, 1)
    assert (pair.heard_up, pair.heard_down) == (b"slow", b"and sure")
    assert pair.server.version == version.name.replace("v1_", "v1.")


def test_many_records_of_one_read_come_as_one(contexts: Contexts) -> None:
    pair = ready(contexts)
    wanted = random.Random(1).randbytes(200_000)
    assert pair.server.feed(pair.client.seal(wanted)) == wanted


def test_what_is_said_before_the_handshake_is_held_up_to_a_limit(contexts: Contexts) -> None:
    pair = Pair(contexts)
    assert pair.server.seal(b"x" * HELD_BYTES_MAX) == b""
    pair.settle()
    assert pair.heard_down == b"x" * HELD_BYTES_MAX
    other = Pair(contexts)
    other.server.seal(b"x" * HELD_BYTES_MAX)
    other.server.seal(b"y")
    assert other.server.failure == "too-much-before-the-handshake"


@pytest.mark.parametrize("first", [b"AMQP\0\1\0\0", b"CONNECT\n", b"GET / HTTP/1.1\r\n", b"\x15"])
def test_what_is_no_tls_is_told_at_its_first_byte(contexts: Contexts, first: bytes) -> None:
    tls = Tls(contexts.server())
    assert tls.feed(first[:1]) == b""
    assert tls.failure == NOT_TLS
    assert tls.feed(first[1:]) == b""
    assert tls.close() == b""


def test_noise_behind_a_first_byte_that_fits_is_refused_with_an_alert(contexts: Contexts) -> None:
    tls = Tls(contexts.server())
    assert tls.feed(b"\x16\x03\x01\x00\x05noise") == b""
    assert tls.failure
    assert tls.take()[:1] == b"\x15"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_that_was_changed_ends_it_and_what_came_before_it_counts(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    pair = ready(contexts, version)
    good = pair.client.seal(b"good")
    bad = bytearray(pair.client.seal(b"bad"))
    bad[-1] ^= 1
    assert pair.server.feed(good + bytes(bad)) == b"good"
    assert "bad-record-mac" in pair.server.failure
    alert = pair.server.take()
    assert alert
    pair.client.feed(alert)
    assert "bad-record-mac" in pair.client.failure
    assert pair.server.feed(pair.client.seal(b"more")) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_data_and_the_end_in_one_read(contexts: Contexts, version: ssl.TLSVersion) -> None:
    pair = ready(contexts, version)
    assert pair.server.feed(pair.client.seal(b"last words") + pair.client.close()) == b"last words"
    assert pair.server.ended
    assert not pair.server.failure
    answer = pair.server.seal(b"heard") + pair.server.close()
    assert pair.client.feed(answer) in (b"heard", b"")  # a client of 1.2 has stopped listening
    assert pair.server.seal(b"too late") == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_comes_behind_all_that_was_sealed(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    pair = ready(contexts, version)
    wanted = b"z" * 1_000_000
    sent = pair.server.seal(wanted) + pair.server.close()
    assert pair.server.close() == b""
    assert pair.client.feed(sent) == wanted
    assert pair.client.ended


def test_an_authority_that_the_client_does_not_know_is_told_to_the_server(
    contexts: Contexts, tmp_path: Path
) -> None:
    pair = Pair(contexts)
    stranger = Tls(Authority(tmp_path).client(), server=False, name="localhost")
    stranger.shake()
    pair.server.feed(stranger.take())
    stranger.feed(pair.server.take())
    assert stranger.failure == "certificate-verify-failed"
    pair.server.feed(stranger.take())
    assert pair.server.failure == "tlsv1-alert-unknown-ca"


def test_a_version_that_is_too_old_is_refused_with_an_alert(contexts: Contexts) -> None:
    context = contexts.server()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    server = Tls(context)
    client = Tls(contexts.client(ssl.TLSVersion.TLSv1_2), server=False, name="localhost")
    client.shake()
    server.feed(client.take())
    assert server.failure == "unsupported-protocol"
    client.feed(server.take())
    assert "alert-protocol-version" in client.failure


def test_nothing_is_sent_that_was_not_asked_for_after_the_handshake(contexts: Contexts) -> None:
    """A ticket that the client does not read would turn its close into a reset."""
    pair = ready(contexts)
    pair.settle()
    assert pair.server.feed(pair.client.seal(b"x")) == b"x"
    assert pair.server.take() == b""


def test_a_renegotiation_is_refused_at_once_and_nothing_hangs(contexts: Contexts) -> None:
    """The answer is a warning; it waits for whoever flushes, and the peer waits for it."""
    context = SSL.Context(SSL.TLSv1_2_METHOD)
    client = SSL.Connection(context, None)
    client.set_connect_state()
    server = Tls(contexts.server())

    def exchange() -> bytes:
        heard = b""
        for _ in range(4):
            try:
                sent = client.bio_read(1 << 16)
            except SSL.WantReadError:
                break
            heard += server.feed(sent)
            if answer := server.take():
                client.bio_write(answer)
            with contextlib.suppress(SSL.WantReadError):
                client.do_handshake()
        return heard

    with pytest.raises(SSL.WantReadError):
        client.do_handshake()
    exchange()
    assert server.ready
    assert server.version == "TLSv1.2"
    client.send(b"before")
    assert exchange() == b"before"
    assert client.renegotiate()
    with contextlib.suppress(SSL.WantReadError):
        client.do_handshake()
    refused = server.feed(client.bio_read(1 << 16))
    assert refused == b""
    assert server.take(), "the client is told, before anything else is said"
    assert server.ready
