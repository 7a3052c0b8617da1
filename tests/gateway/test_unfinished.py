"""What is begun and not ended, held and not settled, against the real process; both wires."""

from __future__ import annotations

import contextlib
import itertools
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from protocols.amqp.performatives import Attach, Begin, Flow, Open, Source, Target, Transfer
from tests.gateway.hostile import PATIENCE, Exposed, Flood
from tests.interop.support import queue, wait_until
from tests.protocols.amqp.peer import data_message, frame, parse

STUCK_SECONDS = 2
IDLE = b"SUBSCRIBE\nid:s\ndestination:no\nack:client\n\n\0"
OPENED = b"AMQP\x00\x01\x00\x00" + b"".join(
    frame(one)
    for one in (
        Open(container_id="slow"),
        Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=2048),
    )
)
CONNECT = b"CONNECT\naccept-version:%b\nhost:x\n\n\0"
#: A beat every second, which the gateway hears.
BEATING = b"CONNECT\naccept-version:%b\nhost:x\nheart-beat:1000,0\n\n\0"


@pytest.fixture(scope="module", params=["tcp", "tls"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exposed]:
    one = Exposed(
        tmp_path_factory.mktemp("unfinished"),
        request.param,
        "acceptors.all.unfinished-timeout='1s'",
        f"acceptors.all.consumer-stuck-timeout='{STUCK_SECONDS}s'",
    )
    with one.gateway:
        yield one


def heard(flood: Flood, seconds: float = 0.2) -> bytes:
    """Return what comes within this time; adds nothing at the end."""
    flood.socket.settimeout(seconds)
    try:
        data = flood.socket.recv(65536)
    except (TimeoutError, ssl.SSLWantReadError):
        return b""
    if not data:
        flood.gone = True
    return data


def drip(flood: Flood, parts: Iterator[bytes], *, seconds: float = PATIENCE) -> bytes:
    """Send one part after the other, four a second, until the gateway ends it; return its words."""
    came = b""
    ends = time.monotonic() + seconds
    while not flood.gone and time.monotonic() < ends:
        try:
            came += heard(flood)
            flood.socket.settimeout(PATIENCE)
            flood.socket.sendall(next(parts))
        except (OSError, ssl.SSLError):
            break
        if b"ERROR" in came or b"\x00\x53\x16" in came or b"\x00\x53\x18" in came:
            break
        time.sleep(0.05)
    return came


def sender(name: str) -> bytes:
    attach = Attach(
        name=name,
        handle=0,
        role=False,
        source=Source(),
        target=Target(address=f"slow.{name}"),
        initial_delivery_count=0,
    )
    return OPENED + frame(attach)


def first(**fields: object) -> bytes:
    known = {"handle": 0, "delivery_id": 0, "delivery_tag": b"t", "message_format": 0}
    return frame(Transfer(**{**known, **fields}), payload=data_message(b"x" * 20)[:10])


def test_an_amqp_frame_that_drips_in_ends_the_connection(running: Exposed) -> None:
    whole = frame(
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0),
        payload=data_message(b"x" * 1000),
    )
    with running.flood(sender("frame")) as flood:
        time.sleep(0.3)
        came = drip(flood, (bytes([one]) for one in whole))
    assert b"amqp:resource-limit-exceeded" in came
    assert b"unfinished-timeout" in came
    assert queue(running.gateway, "slow.frame")["messageCount"] == 0


@pytest.mark.parametrize("how", ["empty", "small"])
def test_an_amqp_delivery_that_never_ends_ends_its_link(running: Exposed, how: str) -> None:
    more = frame(Transfer(handle=0, more=True), payload=b"" if how == "empty" else b"x")
    with running.flood(sender(how)) as flood:
        time.sleep(0.3)
        flood.say(first(more=True))
        came = drip(flood, itertools.repeat(more))
        frames, _ = parse(came)
        (detach,) = [one.performative for one in frames if one.name == "detach"]
        assert detach.error.condition == "amqp:resource-limit-exceeded"
        assert "unfinished-timeout" in detach.error.description
        # The connection goes on.
        flood.say(frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 1))
        flood.socket.settimeout(PATIENCE)
        assert b"\x00\x53\x11" in flood.socket.recv(65536)


def test_a_delivery_at_the_least_rate_takes_as_long_as_it_likes(running: Exposed) -> None:
    """Four seconds of a delivery, four times the time that one may stand."""
    part = b"p" * 16_384
    parts = 20
    body = data_message(part * parts)
    pieces = [body[at : at + len(part)] for at in range(0, len(body), len(part))]
    with running.flood(sender("steady")) as flood:
        time.sleep(0.3)
        for number, piece in enumerate(pieces):
            begun = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0}
            fields = begun if number == 0 else {}
            flood.say(frame(Transfer(handle=0, more=True, **fields), payload=piece))
            assert b"\x00\x53\x16" not in heard(flood)
        flood.say(frame(Transfer(handle=0)))
        wait_until(lambda: queue(running.gateway, "slow.steady")["messageCount"] == 1, PATIENCE)


@pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
@pytest.mark.parametrize("part", ["header", "body"])
def test_a_stomp_frame_that_drips_in_ends_the_connection(
    running: Exposed, version: bytes, part: str
) -> None:
    begun = b"SEND\ndestination:slow.stomp\nx:"
    if part == "body":
        begun = b"SEND\ndestination:slow.stomp\ncontent-length:10000\n\n"
    with running.flood(CONNECT % version) as flood:
        flood.socket.settimeout(PATIENCE)
        assert flood.socket.recv(4096).startswith(b"CONNECTED")
        came = drip(flood, itertools.chain([begun], itertools.repeat(b"x")))
    assert came.startswith(b"ERROR")
    assert b"unfinished-timeout" in came


# ---- held and not settled


def filled(running: Exposed, name: str, count: int = 3) -> None:
    peer = running.peer()
    for number in range(count):
        peer.send(name, b"%d" % number, str(number))
        assert peer.read()[0] == "RECEIPT"
    peer.close()


def beating(flood: Flood, beat: bytes, until: Callable[[bytes], bool]) -> bytes:
    """Beat, and say nothing else, until the gateway has said so."""
    came = b""
    ends = time.monotonic() + PATIENCE
    while not until(came):
        assert time.monotonic() < ends, came
        came += heard(flood)
        with contextlib.suppress(OSError):
            flood.socket.settimeout(PATIENCE)
            flood.socket.sendall(beat)
    return came


def receiver(name: str) -> bytes:
    attach = Attach(name="r", handle=0, role=True, source=Source(address=name), target=Target())
    credit = Flow(
        next_incoming_id=0,
        incoming_window=2048,
        next_outgoing_id=0,
        outgoing_window=2048,
        handle=0,
        delivery_count=0,
        link_credit=2,
    )
    return OPENED + frame(attach) + frame(credit)


def test_an_amqp_consumer_that_settles_nothing_is_detached_and_its_messages_go_back(
    running: Exposed,
) -> None:
    filled(running, "stuck.amqp")
    with running.flood(receiver("stuck.amqp")) as flood:
        wait_until(lambda: queue(running.gateway, "stuck.amqp")["deliveringCount"] == 2, PATIENCE)
        came = beating(flood, b"\0\0\0\x08\x02\0\0\0", lambda came: b"\x00\x53\x16" in came)
        assert b"amqp:link:detach-forced" in came
        assert b"consumer-stuck-timeout" in came
        view = queue(running.gateway, "stuck.amqp")
        assert (view["messageCount"], view["deliveringCount"]) == (3, 0)
        assert view["consumerCount"] == 0


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", [b"1.1", b"1.2"])
def test_a_stomp_consumer_that_acknowledges_nothing_ends_with_an_error(
    running: Exposed, version: bytes, mode: str
) -> None:
    name = f"stuck.{version.decode()}.{mode}"
    filled(running, name)
    subscribe = f"SUBSCRIBE\nid:s\ndestination:{name}\nack:{mode}\n\n\0".encode()
    with running.flood(BEATING % version + subscribe) as flood:
        wait_until(lambda: queue(running.gateway, name)["deliveringCount"] == 3, PATIENCE)
        came = beating(flood, b"\n", lambda came: b"ERROR" in came)
        assert b"consumer-stuck-timeout" in came
        wait_until(lambda: queue(running.gateway, name)["deliveringCount"] == 0, PATIENCE)
    assert queue(running.gateway, name)["messageCount"] == 3


def test_a_consumer_that_settles_one_now_and_then_is_not_stuck(running: Exposed) -> None:
    filled(running, "slowly", 20)
    peer = running.peer()
    peer.write("SUBSCRIBE\nid:s\ndestination:slowly\nack:client-individual\n\n")
    for _ in range(5):
        command, headers, _ = peer.read()
        assert command == "MESSAGE"
        time.sleep(STUCK_SECONDS / 2)
        peer.write(f"ACK\nid:{headers['ack']}\n\n")
    peer.close()


def test_who_holds_nothing_is_not_stuck(running: Exposed) -> None:
    with running.flood(
        BEATING % b"1.2" + b"SUBSCRIBE\nid:s\ndestination:no\nack:client\n\n\0"
    ) as f:
        assert f.socket.recv(4096).startswith(b"CONNECTED")
        ends = time.monotonic() + 2 * STUCK_SECONDS
        while time.monotonic() < ends:
            assert not heard(f)
            f.socket.settimeout(PATIENCE)
            f.socket.sendall(b"\n")
