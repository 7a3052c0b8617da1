"""The bench's AMQP frames and drivers, judged by Proton."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data, Message

from gateway.bench import amqp
from gateway.bench.shapes import CYCLE, TTL_MS, Shape, mixed, uniform
from tests.bench.proton_peer import ProtonPeer


def opened(peer: ProtonPeer, *, receiver: bool) -> list[bytes]:
    """Open a session and a link the way the bench does; returns the peer's frames after SASL."""
    peer.push(amqp.SASL_HEADER)
    peer.push(amqp.login("", ""))
    peer.push(amqp.opening("bench"))
    peer.push(amqp.attach("bench", "q.orders", receiver=receiver))
    raw = peer.pull()
    frames = frames_of(raw[raw.index(amqp.AMQP_HEADER) + 8 :])
    codes = [frame[2] for frame in frames]
    assert codes[:3] == [amqp.OPEN, amqp.BEGIN, amqp.ATTACH]
    assert peer.address == "q.orders"
    return frames


def frames_of(raw: bytes) -> list[bytes]:
    found = []
    while raw:
        size = int.from_bytes(raw[:4], "big")
        found.append(raw[4 * raw[4] : size])
        raw = raw[size:]
    return [frame for frame in found if frame]


def whole(frame: bytes) -> bytes:
    return amqp.frame(frame)


@pytest.mark.parametrize("shape", mixed()[:CYCLE:5] + uniform(256, durable=True), ids=str)
def test_a_message_is_what_proton_reads(shape: Shape) -> None:
    message = Message()
    message.decode(amqp.message(shape))
    assert len(message.body) == shape.size
    assert message.durable == shape.durable
    assert message.ttl == shape.ttl / 1000
    assert (message.properties or {}) == dict(shape.properties)
    assert str(message.content_type) == ("text/plain" if shape.properties else "None")


def test_mixed_load_is_mixed() -> None:
    shapes = mixed()
    assert len(shapes) == CYCLE
    assert {shape.durable for shape in shapes} == {True, False}
    assert {shape.ttl for shape in shapes} == {0, TTL_MS}
    assert len({shape.size for shape in shapes}) > 8
    assert len({len(shape.properties) for shape in shapes}) > 1


@pytest.mark.parametrize("shape", ["uniform", "mixed"])
@pytest.mark.parametrize("window", [1, 7, 2000])
def test_a_sender_sends_all_and_counts_what_is_accepted(shape: str, window: int) -> None:
    shapes = mixed() if shape == "mixed" else uniform(64, durable=True)
    count = 700
    peer = ProtonPeer(credit=300)
    rest = opened(peer, receiver=False)[3:]
    sender = amqp.Sender(shapes, count, window=window, settled=False, stamped=False)
    sender.began(2048)
    sender.feed(b"".join(map(whole, rest)), 0)
    now = 0
    while not sender.finished:
        while out := sender.produce(now):
            peer.push(bytes(out))
        now += 1_000_000
        sender.feed(peer.pull(), now)
    assert len(peer.received) == count
    expected = [amqp.message(one) for one in shapes]
    assert set(peer.received) == set(expected)
    assert sum(weight for _, weight in sender.times.samples) == count
    assert {taken for taken, _ in sender.times.samples} == {1_000_000}


def test_a_pre_settled_sender_waits_for_the_last_message_alone() -> None:
    peer = ProtonPeer(credit=100)
    rest = opened(peer, receiver=False)[3:]
    sender = amqp.Sender(uniform(64, durable=False), 250, window=1, settled=True, stamped=False)
    sender.began(2048)
    sender.feed(b"".join(map(whole, rest)), 0)
    while not sender.finished:
        while out := sender.produce(0):
            peer.push(bytes(out))
        sender.feed(peer.pull(), 1)
    assert len(peer.received) == 250


def test_a_message_that_is_not_accepted_is_an_error() -> None:
    peer = ProtonPeer()
    peer.accept = False
    rest = opened(peer, receiver=False)[3:]
    sender = amqp.Sender(uniform(64, durable=False), 1, window=1, settled=False, stamped=False)
    sender.began(2048)
    sender.feed(b"".join(map(whole, rest)), 0)
    peer.push(bytes(sender.produce(0)))
    with pytest.raises(amqp.PeerError, match="not accepted"):
        sender.feed(peer.pull(), 1)


@pytest.mark.parametrize("step", [1, 13, 100_000])
def test_a_receiver_counts_accepts_and_tops_up(step: int) -> None:
    count = 600
    peer = ProtonPeer()
    began = next(f for f in opened(peer, receiver=True) if f[2] == amqp.BEGIN)
    receiver = amqp.Receiver(count, credit=100, stamped=False)
    receiver.began(amqp.number(amqp.fields(began), 1) or 0)
    receiver.start(0)
    peer.push(receiver.produce(0))
    peer.send([amqp.message(shape) for shape in mixed()[:60]] * 10)
    now = 0
    while not receiver.finished:
        raw = peer.pull()
        now += 2_000_000
        for at in range(0, len(raw), step):
            receiver.feed(raw[at : at + step], now)
        peer.push(receiver.produce(now))
    peer.push(receiver.produce(now))
    assert len(peer.settled) == count
    assert sum(weight for _, weight in receiver.times.samples) == count
    assert {taken for taken, _ in receiver.times.samples} == {2_000_000}


def test_stamps_tell_the_time_of_sending() -> None:
    peer = ProtonPeer()
    rest = opened(peer, receiver=False)[3:]
    sender = amqp.Sender(uniform(64, durable=False), 300, window=300, settled=False, stamped=True)
    sender.began(2048)
    sender.feed(b"".join(map(whole, rest)), 0)
    peer.push(bytes(sender.produce(5_000)))
    peer.push(bytes(sender.produce(9_000)))
    receiver = amqp.Receiver(300, credit=300, stamped=True)
    transfers = b"".join(
        amqp.frame(amqp.composite(amqp.TRANSFER, amqp.uint(0), amqp.uint(n)) + body)
        for n, body in enumerate(peer.received)
    )
    receiver.feed(transfers[: len(transfers) // 2], 10_000)
    receiver.feed(transfers[len(transfers) // 2 :], 10_000)
    assert receiver.times.samples == [(5_000, 150), (1_000, 150)]


def test_the_peer_ending_the_link_is_an_error() -> None:
    detach = amqp.frame(amqp.composite(amqp.DETACH, amqp.uint(0), amqp.boolean(value=True)))
    receiver = amqp.Receiver(10, credit=10, stamped=False)
    with pytest.raises(amqp.PeerError, match="ended after 0"):
        receiver.feed(detach, 0)
    sender = amqp.Sender(uniform(64, durable=False), 1, window=1, settled=False, stamped=False)
    with pytest.raises(amqp.PeerError, match="ended after 0"):
        sender.feed(detach, 0)


def test_a_session_window_is_kept() -> None:
    sender = amqp.Sender(uniform(64, durable=False), 50, window=50, settled=False, stamped=False)
    sender.began(5)
    credit = amqp.composite(
        amqp.FLOW, *map(amqp.uint, (0, 5, 0, 100)), amqp.uint(0), amqp.uint(0), amqp.uint(1000)
    )
    sender.feed(amqp.frame(credit), 0)
    assert bytes(sender.produce(0)).count(b"\x00\x53\x14") == 5
    assert sender.produce(0) == b""


def transfer(number: int, size: int) -> bytes:
    head = amqp.composite(amqp.TRANSFER, amqp.uint(0), b"\x70" + number.to_bytes(4, "big"))
    return amqp.frame(head + b"x" * size)


@given(st.lists(st.sampled_from([40, 41, 300]), min_size=1, max_size=80))
def test_runs_of_equal_frames_are_never_counted_wrongly(sizes: list[int]) -> None:
    raw = b"".join(transfer(number, size) for number, size in enumerate(sizes))
    receiver = amqp.Receiver(10_000, credit=1, stamped=False)
    receiver.feed(raw, 0)
    assert receiver.stalled() == f"{len(sizes)} of 10000 received"


@given(
    st.integers(0, 2**32 - 1), st.none() | st.integers(0, 2**32 - 1), st.booleans(), st.booleans()
)
def test_ranges_read_by_offset_are_those_that_proton_writes(
    first: int, last: int | None, role: bool, settled: bool
) -> None:
    data = Data()
    data.put_described()
    data.enter()
    data.put_ulong(amqp.DISPOSITION)
    data.put_list()
    data.enter()
    data.put_bool(role)
    data.put_uint(first)
    data.put_null() if last is None else data.put_uint(last)
    data.put_bool(settled)
    raw = data.encode()
    assert amqp.settled_range(raw, 0) == (first, first if last is None else last)
    assert amqp.fields(raw) == [role, first, last, settled]


@given(st.integers(0, 2**32 - 1), st.text(max_size=300), st.binary(max_size=300), st.booleans())
def test_values_are_what_proton_reads(n: int, text: str, raw: bytes, flag: bool) -> None:
    for encoded, value in (
        (amqp.uint(n), n),
        (amqp.string(text), text),
        (amqp.binary(raw), raw),
        (amqp.boolean(flag), flag),
        (amqp.text_map([("key", text)]), {"key": text}),
    ):
        data = Data()
        data.decode(encoded)
        data.rewind()
        data.next()
        assert data.get_object() == value


@given(st.lists(st.text(max_size=40), max_size=12))
def test_composites_of_any_length_are_what_proton_reads(texts: list[str]) -> None:
    data = Data()
    data.decode(amqp.composite(0x70, *map(amqp.string, texts)))
    data.rewind()
    data.next()
    assert data.get_object().value == texts
