"""The bench's STOMP frames and drivers, judged by stomp.py's parser and a broker of ten lines."""

from __future__ import annotations

import pytest
from stomp import utils

from gateway.bench import stomp
from gateway.bench.amqp import PeerError
from gateway.bench.shapes import Shape, mixed, uniform


def parsed(raw: bytes) -> list[utils.Frame]:
    return [utils.parse_frame(part) for part in raw.split(stomp.NUL) if part]


def unescaped(value: str) -> str:
    return value.replace("\\c", ":").replace("\\\\", "\\")


@pytest.mark.parametrize("shape", mixed()[::7] + uniform(256, durable=True), ids=str)
def test_a_message_is_what_a_client_reads(shape: Shape) -> None:
    raw, digits = stomp.send("q.orders", shape, receipt=True, expires=12345)
    (frame,) = parsed(raw)
    assert frame.cmd == "SEND"
    assert frame.headers["destination"] == "q.orders"
    assert frame.headers["persistent"] == ("true" if shape.durable else "false")
    assert frame.headers["content-length"] == str(shape.size)
    assert frame.headers.get("expires") == ("12345" if shape.ttl else None)
    assert frame.headers["receipt"] == "0000000000"
    assert len(frame.body) == shape.size
    for key, value in shape.properties:
        assert unescaped(frame.headers[key]) == value
    assert raw[digits - 8 : digits + 10] == b"receipt:0000000000"


def answer(raw: bytes) -> bytes:
    """Give a receipt to each frame that asks, as a broker does."""
    return b"".join(
        f"RECEIPT\nreceipt-id:{frame.headers['receipt']}\n\n\0".encode()
        for frame in parsed(raw)
        if "receipt" in frame.headers
    )


@pytest.mark.parametrize("window", [1, 10, 5000])
def test_a_sender_keeps_its_window_and_counts_receipts(window: int) -> None:
    frames = stomp.Frames("q.orders", mixed(), receipts=True)
    sender = stomp.Sender(frames, None, 900, window=window, stamped=False)
    sent = b""
    now = 0
    while not sender.finished:
        turn = b""
        while out := sender.produce(now):
            turn += bytes(out)
        assert 1 <= turn.count(stomp.NUL) <= window
        sent += turn
        now += 3_000_000
        sender.feed(answer(turn), now)
    numbers = [int(frame.headers["receipt"]) for frame in parsed(sent)]
    assert numbers == list(range(900))
    assert sum(weight for _, weight in sender.times.samples) == 900
    assert {taken for taken, _ in sender.times.samples} == {3_000_000}


def test_without_receipts_the_last_message_asks_for_one() -> None:
    shapes = uniform(64, durable=False)
    frames = stomp.Frames("q.orders", shapes, receipts=False)
    last = stomp.Frames("q.orders", shapes, receipts=True)
    sender = stomp.Sender(frames, last, 600, window=1, stamped=False)
    sent = b""
    while out := sender.produce(0):
        sent += bytes(out)
    asking = ["receipt" in frame.headers for frame in parsed(sent)]
    assert asking == [False] * 599 + [True]
    assert not sender.finished
    sender.feed(answer(sent), 1)
    assert sender.finished


def messages(count: int, *, ack: bool = False) -> bytes:
    return b"".join(
        b"MESSAGE\nsubscription:0\nmessage-id:%d\n%sdestination:q\ncontent-length:32\n\n%s\0"
        % (number, b"ack:a%d\n" % number if ack else b"", b"x" * 16 + b"%016x" % (1000 + number))
        for number in range(count)
    )


@pytest.mark.parametrize("step", [1, 37, 100_000])
@pytest.mark.parametrize("receipt_after", [0, 3, 250])
def test_a_receiver_counts_messages_but_not_its_receipt(step: int, receipt_after: int) -> None:
    first, rest = messages(receipt_after), messages(250 - receipt_after)
    raw = first + b"RECEIPT\nreceipt-id:subscribed\n\n\0" + rest
    receiver = stomp.Receiver(250, ack="auto", stamped=True)
    for at in range(0, len(raw), step):
        receiver.feed(raw[at : at + step], 5000)
    assert receiver.finished
    assert receiver.stalled() == "250 of 250 received"
    assert sum(weight for _, weight in receiver.times.samples) == 250


@pytest.mark.parametrize("step", [1, 100, 100_000])
def test_client_acknowledgement_answers_all_in_steps(step: int) -> None:
    raw = messages(250, ack=True)
    receiver = stomp.Receiver(250, ack="client", stamped=False)
    out = b""
    for at in range(0, len(raw), step):
        receiver.feed(raw[at : at + step], 0)
        out += receiver.produce(0)
    acks = [frame.headers["id"] for frame in parsed(out)]
    assert acks[-1] == "a249"
    assert acks == (["a249"] if step > 1000 else ["a99", "a199", "a249"])


def test_an_error_frame_is_an_error() -> None:
    raw = b"ERROR\nmessage:queue full\n\n\0"
    shapes = uniform(64, durable=False)
    frames = stomp.Frames("q.orders", shapes, receipts=True)
    sender = stomp.Sender(frames, None, 10, window=10, stamped=False)
    with pytest.raises(PeerError, match="queue full"):
        sender.feed(raw, 0)
    receiver = stomp.Receiver(10, ack="auto", stamped=False)
    with pytest.raises(PeerError, match="queue full"):
        receiver.feed(messages(2) + raw, 0)


def test_stamps_tell_the_time_of_sending() -> None:
    frames = stomp.Frames("q.orders", mixed(), receipts=False)
    view, count = frames.take(0, 10, b"%016x" % 77)
    assert [frame.body[-16:] for frame in parsed(bytes(view))] == [b"%016x" % 77] * count


def test_connect_asks_for_version_and_no_heart_beats() -> None:
    (frame,) = parsed(stomp.connect("ann", "secret"))
    assert frame.cmd == "CONNECT"
    assert frame.headers["accept-version"] == "1.2"
    assert frame.headers["heart-beat"] == "0,0"
    assert (frame.headers["login"], frame.headers["passcode"]) == ("ann", "secret")
    (bare,) = parsed(stomp.connect("", ""))
    assert "login" not in bare.headers
