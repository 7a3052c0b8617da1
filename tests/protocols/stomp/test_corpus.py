"""The nasty input of tests/corpus/stomp: one outcome however it comes, and nothing left held.

Time and loss are here in code: input that drips, and a connection that is cut after each byte.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from protocols.stomp.limits import StompLimits
from tests.protocols.stomp.peer import Peer, frames, message

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "stomp"
BYTE_BY_BYTE_MAX = 2_000


def cases() -> list[Any]:
    found = []
    for path in sorted(CORPUS.glob("*.toml")):
        for case in tomllib.loads(path.read_text("utf-8"))["case"]:
            found += [
                pytest.param(case, version, id=f"{case['id']}-{version or 'first'}")
                for version in case.get("versions", [None])
            ]
    return found


def raw(send: str | list[Any]) -> bytes:
    parts = [send] if isinstance(send, str) else send
    return b"".join(
        (part if isinstance(part, str) else part[0] * part[1])
        .encode("latin-1")
        .decode("unicode_escape")
        .encode("latin-1")
        for part in parts
    )


def told(data: bytes, expected: list[str]) -> list[str]:
    """Write frames as the corpus does; as much of an ERROR as the case names."""
    found = []
    for index, (command, headers, _) in enumerate(frames(data)):
        if command == "RECEIPT":
            found.append(f"RECEIPT {headers['receipt-id']}")
        elif command == "ERROR":
            words = ["ERROR", headers["error-code"]]
            if "receipt-id" in headers:
                words.append(headers["receipt-id"])
            count = len(expected[index].split()) if index < len(expected) else 3
            found.append(" ".join(words[:count]))
        else:
            found.append(command)
    return found


def converse(case: dict[str, Any], version: str | None, size: int) -> None:
    peer = Peer(version)
    data = raw(case["send"])
    out = b""
    for start in range(0, len(data), size):
        out += peer.say(data[start : start + size])
    out += peer.sync()
    expected = case["expect"]
    assert told(out, expected) == expected
    refused = any(frame.startswith("ERROR") for frame in expected)
    assert peer.session.closing is case.get("closing", refused and version == "1.2")
    if "sent" in case or refused:
        sent = [body.decode("latin-1") for body in peer.bodies()]
        assert sent == case.get("sent", [])
    peer.session.connection_lost(peer.now)
    opened = len(peer.broker.of("subscribe"))
    assert len(peer.broker.of("close subscription")) == opened
    assert len(peer.broker.of("close producer")) == len(peer.broker.of("open producer"))


@pytest.mark.parametrize(("case", "version"), cases())
def test_corpus(case: dict[str, Any], version: str | None) -> None:
    size = len(raw(case["send"]))
    converse(case, version, size or 1)
    converse(case, version, 1000)
    if size <= BYTE_BY_BYTE_MAX:
        converse(case, version, 1)


@pytest.mark.parametrize(("case", "version"), cases())
def test_what_waits_for_another_turn_has_the_same_outcome(
    monkeypatch: pytest.MonkeyPatch, case: dict[str, Any], version: str | None
) -> None:
    monkeypatch.setattr(Peer, "hurried", True)
    converse(case, version, len(raw(case["send"])) or 1)
    converse(case, version, 1000)


def test_every_number_that_is_bytes_has_a_case() -> None:
    numbers = {int("".join(c for c in case.values[0]["id"] if c.isdigit())) for case in cases()}
    in_code = {45, 46, 50}
    assert numbers | in_code == set(range(1, 51))


def test_line_ends_for_an_hour() -> None:
    peer = Peer("1.2", connect="heart-beat:1000,0\n")
    for _ in range(3600):
        peer.now += 1
        assert peer.say(b"\n") == b""
        assert peer.session.tick(peer.now) is not None
    assert not peer.session.closing


@pytest.mark.parametrize("version", [None, "1.2"])
def test_one_byte_in_nine_seconds(version: str | None) -> None:
    """Deadlines are for the whole, not for each byte: before login and after."""
    peer = Peer(version, limits=StompLimits(ttl_ms=-1))
    data = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0" if version is None else b"SEND\nreceipt:1\n"
    deadline = peer.now + (10 if version is None else 31)
    out = b""
    for byte in data:
        peer.session.tick(peer.now)
        out += peer.say(bytes([byte]))
        if peer.session.closing:
            break
        peer.now += 9
    assert peer.session.closing
    assert peer.now <= deadline + 9
    assert frames(out)[-1][0] == "ERROR"


VALID = (
    b"CONNECT\naccept-version:1.2\n\n\0"
    b"SUBSCRIBE\nid:0\ndestination:in\nack:client\n\n\0"
    b"SEND\ndestination:q\nreceipt:1\ncontent-length:5\n\nhello\0"
    b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nx\0"
    b"ACK\nid:c1-1-0001\ntransaction:t\n\n\0COMMIT\ntransaction:t\nreceipt:2\n\n\0"
    b"UNSUBSCRIBE\nid:0\n\n\0DISCONNECT\nreceipt:3\n\n\0"
)


def test_cut_after_each_byte_leaves_nothing_held() -> None:
    for cut in range(len(VALID) + 1):
        peer = Peer(None)
        out = b""
        offered = False
        for byte in VALID[:cut]:
            out += peer.say(bytes([byte]))
            if peer.broker.subscription("in") is not None and not offered:
                offered = True
                out += peer.offer("in", message(b"1", 1), message(b"2", 2))
        peer.session.connection_lost(peer.now)
        assert peer.sync() == b""
        assert all(f[0] in ("CONNECTED", "MESSAGE", "RECEIPT") for f in frames(out))
        assert peer.broker.subscriptions == []
        assert all(producer.closed for producer in peer.broker.producers)


def test_a_peer_that_beats_and_does_nothing_else_may_stay() -> None:
    peer = Peer("1.1", connect="heart-beat:500,500\n")
    beats = 0
    for _ in range(1000):
        peer.now += 0.5
        assert peer.session.tick(peer.now) is not None
        beats += peer.say(b"\n").count(b"\n")
    assert not peer.session.closing
    assert 990 <= beats <= 1000
