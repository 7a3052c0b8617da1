"""Replays over STOMP: the header of SUBSCRIBE, that of MESSAGE, acknowledgements and windows."""

from __future__ import annotations

import pytest

from gateway.model.message import REPLAYED, STOMP, Message
from gateway.model.stomp_form import pack
from gateway.model.stream_start import At, StreamStart
from tests.protocols.stomp.peer import Peer, frames

VERSIONS = ["1.0", "1.1", "1.2"]


def subscribe(version: str, start: str, *lines: str, ack: str = "auto") -> Peer:
    peer = Peer(version, connect="client-id:me\n")
    extra = "".join(line + "\n" for line in lines)
    head = f"SUBSCRIBE\nid:s\ndestination:q\nack:{ack}\nx-stream-offset:{start}\n{extra}\n\0"
    peer.answer = peer.say(head.encode())  # type: ignore[attr-defined]
    return peer


def replayed(*offsets: int, **headers: str) -> list[Message]:
    stored = pack("q", b"body", headers=headers.items())
    return [Message(stored, offset, 4 | STOMP | REPLAYED) for offset in offsets]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("text", "at", "value"),
    [
        ("first", At.FIRST, 0),
        ("last", At.LAST, 0),
        ("next", At.NEXT, 0),
        ("offset=12", At.OFFSET, 12),
        ("timestamp=1700000000", At.TIME, 1_700_000_000_000),
    ],
)
def test_where_it_begins(version: str, text: str, at: At, value: int) -> None:
    peer = subscribe(version, text, "selector:a = 1")
    start = StreamStart(at=at, value=value)
    assert peer.broker.of("subscribe") == [("q", None, {"selector": "a = 1", "start": start})]


def test_a_time_has_colons_that_1_2_escapes() -> None:
    peer = subscribe("1.2", "timestamp=2023-11-14T22\\c13\\c20Z")
    (call,) = peer.broker.of("subscribe")
    assert call[2]["start"] == StreamStart(at=At.TIME, value=1_700_000_000_000)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("start", "line", "part"),
    [
        ("5", "", "first, last, next, offset=N or timestamp=T"),
        ("", "", "first, last, next, offset=N or timestamp=T"),
        ("first", "browser:true", "browser:true"),
        ("first", "no-local:true", "no-local:true"),
        ("first", "durable-subscription-name:n", "durable subscription"),
    ],
)
def test_what_is_refused(version: str, start: str, line: str, part: str) -> None:
    peer = subscribe(version, start, *([line] if line else []))
    ((command, headers, _),) = frames(peer.answer)  # type: ignore[attr-defined]
    assert command == "ERROR"
    assert part in headers["message"] or part in peer.answer.decode()  # type: ignore[attr-defined]
    assert peer.broker.of("subscribe") == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_each_message_says_its_offset_whatever_its_sender_wrote(version: str, ack: str) -> None:
    peer = subscribe(version, "first", ack=ack)
    found = frames(peer.offer("q", *replayed(7, 1 << 40, **{"x-stream-offset": "forged"})))
    assert [command for command, _, _ in found] == ["MESSAGE"] * 2
    raw = peer.offer("q", *replayed(9, **{"x-stream-offset": "forged"}))
    assert raw.index(b"\nx-stream-offset:9\n") < raw.index(b"\nx-stream-offset:forged\n")


def test_a_message_of_amqp_says_its_offset() -> None:
    peer = subscribe("1.2", "first")
    ((_, headers, body),) = frames(peer.offer("q", Message(b"m", 3, 4 | REPLAYED)))
    assert (headers["x-stream-offset"], headers["from"]) == ("3", "amqp")
    assert body == b"converted m"


def test_no_other_message_has_the_header() -> None:
    peer = Peer("1.2")
    peer.say(b"SUBSCRIBE\nid:s\ndestination:q\nack:client\nconsumer-window-size:150\n\n\0")
    stored = pack("q", b"x" * 100)
    out = peer.offer("q", *[Message(stored, seq, 4 | STOMP) for seq in (1, 2, 3)])
    out += peer.say(b"ACK\nid:c1-1-0001\n\n\0")  # what waited goes by another way
    assert out.count(b"MESSAGE\n") == 2
    assert b"x-stream-offset" not in out


def test_an_ack_opens_the_window() -> None:
    peer = subscribe("1.2", "first", "prefetch-count:2", ack="client")
    out = peer.offer("q", *replayed(0, 1, 2, 3))
    assert out.count(b"MESSAGE\n") == 2
    out = peer.say(b"ACK\nid:c1-1-0002\n\n\0")
    assert [headers["x-stream-offset"] for _, headers, _ in frames(out)] == ["2", "3"]
    assert peer.broker.of("acknowledge") == [("q", [0, 1])]
