"""The first bytes of a connection: a speaker takes them, or nobody does."""

from __future__ import annotations

import pytest

from protocols.transport.first_bytes import FirstBytes
from protocols.transport.sniff import sniff
from protocols.transport.speaking import PeerFacts, Session, Speaker
from protocols.transport.strangers import decline

AMQP = b"AMQP\x00\x01\x00\x00"
STOMP = b"CONNECT\n"
TLS = b"\x16\x03\x01\x02\x00\x01"


def never(_: PeerFacts) -> Session:
    """Fail: whoever chooses builds nothing."""
    raise AssertionError("no session is wanted here")


def first_bytes(*guesses: str, secure: bool = False) -> FirstBytes:
    speakers = tuple(Speaker(guess=guess, build=never) for guess in guesses)
    return FirstBytes(speakers, lambda data: sniff(data).value, decline, secure=secure)


@pytest.mark.parametrize(("data", "guess"), [(AMQP, "AMQP"), (STOMP, "STOMP")])
@pytest.mark.parametrize("whole", [True, False])
def test_a_speaker_takes_its_protocol(data: bytes, guess: str, *, whole: bool) -> None:
    first = first_bytes("AMQP", "STOMP")
    found = None
    for part in [data] if whole else [data[at : at + 1] for at in range(len(data))]:
        assert found is None
        found = first.take(part)
        if found is not None:
            break
    assert isinstance(found, Speaker)
    assert found.guess == guess
    assert data.startswith(first.data)


def test_nobody_speaks_it() -> None:
    found = first_bytes("STOMP").take(AMQP)
    assert found == ("AMQP", b"")


def test_http_is_answered_once_its_head_is_there() -> None:
    first = first_bytes("AMQP", "STOMP")
    assert first.take(b"GET / HTTP/1.1\r\n") is None
    found = first.take(b"\r\n")
    assert not isinstance(found, Speaker)
    assert found is not None
    assert found.name == "HTTP"
    assert found.answer.startswith(b"HTTP/1.1 400 ")


def test_tls_is_told_that_there_is_none_but_not_within_tls() -> None:
    for secure, answer in ((False, b"\x15\x03\x01\x00\x02\x02\x28"), (True, b"")):
        assert first_bytes("AMQP", "STOMP", secure=secure).take(TLS) == ("TLS", answer)


def test_one_speaker_alone_needs_no_first_bytes() -> None:
    only = first_bytes("AMQP").only
    assert only is not None
    assert only.guess == "AMQP"
    assert first_bytes("AMQP", "STOMP").only is None
