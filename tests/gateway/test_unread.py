"""Peers that ask and do not read, against the real process: what it holds for them is bounded."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator

import pytest

from protocols.amqp.performatives import Attach, Begin, Detach, Flow, Open, Source, Target
from tests.gateway.hostile import GROWTH_MAX, MIB, PATIENCE, Exposed, resident
from tests.interop.support import queue, wait_until
from tests.protocols.amqp.peer import frame

UNREAD_SECONDS = 2
RECEIPT = "r" * 8000
HELD_UP = 300
OPENED = b"AMQP\x00\x01\x00\x00" + b"".join(
    frame(one)
    for one in (
        Open(container_id="hostile"),
        Begin(next_outgoing_id=0, incoming_window=1 << 20, outgoing_window=1 << 20),
    )
)
#: Each half is answered.
COMES_AND_GOES = frame(
    Attach(
        name="n" * 20_000,
        handle=1,
        role=False,
        source=Source(),
        target=Target(address="amqp"),
        initial_delivery_count=0,
    )
) + frame(Detach(handle=1, closed=True))


@pytest.fixture(scope="module", params=["tcp", "tls"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exposed]:
    one = Exposed(
        tmp_path_factory.mktemp("unread"),
        request.param,
        f"acceptors.all.unread-timeout='{UNREAD_SECONDS}s'",
        'address-settings."full.#".max-size-messages=1',
        'address-settings."full.#".address-full-policy="BLOCK"',
    )
    with one.gateway:
        yield one


def connect(version: str) -> bytes:
    return f"CONNECT\naccept-version:{version}\nhost:x\n\n\0".encode()


def sends(destination: str, *, headers: str = "", count: int = 20) -> bytes:
    one = f"SEND\ndestination:{destination}\nreceipt:{RECEIPT}\n{headers}\n\0"
    return one.encode() * count


def connections(running: Exposed) -> int:
    status, answer = running.gateway.request("GET", "/api/v1/connections")
    assert status == 200
    assert isinstance(answer, dict)
    return int(answer["total"])


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_receipts_that_nobody_reads_are_bounded_and_end_the_connection(
    running: Exposed, version: str
) -> None:
    with running.flood(connect(version)) as flood:
        assert flood.pour(sends(f"unread.{version}")), f"{flood.sent} bytes were taken"
        assert flood.peak < GROWTH_MAX
        assert flood.gone or flood.cut_within(UNREAD_SECONDS + PATIENCE)
        wait_until(lambda: connections(running) == 0, PATIENCE)
    told = f"has read nothing for {UNREAD_SECONDS} s (unread-timeout)"
    wait_until(lambda: told in running.log(), PATIENCE)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_stomp_errors_that_nobody_reads_are_bounded(running: Exposed, version: str) -> None:
    with running.flood(connect(version)) as flood:
        assert flood.pour(b"ABORT\ntransaction:none\n\n\0" * 1000)
        assert flood.peak < GROWTH_MAX


def test_amqp_answers_that_nobody_reads_are_bounded_and_end_the_connection(
    running: Exposed,
) -> None:
    with running.flood(OPENED) as flood:
        assert flood.pour(COMES_AND_GOES * 10)
        assert flood.peak < GROWTH_MAX
        assert flood.gone or flood.cut_within(UNREAD_SECONDS + PATIENCE)


def test_who_reads_in_the_end_is_answered_all_he_asked(running: Exposed) -> None:
    peer = running.peer()
    numbers = itertools.count()
    total = 6000
    done = threading.Event()

    def write() -> None:
        for number in itertools.islice(numbers, total):
            peer.send("late", b"x", f"{number}-{RECEIPT[:3000]}")
        done.set()

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    # It writes, and reads nothing, for less than it may.
    done.wait(UNREAD_SECONDS / 2)
    assert not done.is_set(), "reading never stopped"
    for number in range(total):
        command, headers, _ = peer.read()
        assert command == "RECEIPT"
        assert headers["receipt-id"].partition("-")[0] == str(number)
    writing.join(PATIENCE)
    peer.close()


def holding(running: Exposed, version: str, name: str) -> bytes:
    """Fill an address, and return what makes a peer hold a delivery, which keeps it heard."""
    peer = running.peer()
    peer.send(f"full.{name}", b"fits", "a")
    peer.send(f"held.{name}", b"held", "b")
    assert [peer.read()[1]["receipt-id"] for _ in range(2)] == ["a", "b"]
    peer.close()
    return connect(version) + f"SUBSCRIBE\nid:s\ndestination:held.{name}\nack:client\n\n\0".encode()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_receipts_of_sends_that_wait_for_room_are_counted(running: Exposed, version: str) -> None:
    name = f"receipts.{version}"
    with running.flood(holding(running, version, name)) as flood:
        wait_until(lambda: queue(running.gateway, f"held.{name}")["deliveringCount"] == 1, PATIENCE)
        assert flood.pour(sends(f"full.{name}"))
        assert flood.peak < GROWTH_MAX
    assert queue(running.gateway, f"full.{name}")["messageCount"] == 1


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_headers_of_frames_that_wait_for_room_are_counted(running: Exposed, version: str) -> None:
    name = f"headers.{version}"
    many = "".join(f"h{number}:\n" for number in range(90))
    frames = f"SEND\ndestination:full.{name}\n\nfirst\0".encode()
    begun = "".join(f"BEGIN\ntransaction:t{number}\n{many}\n\0" for number in range(500)).encode()
    with running.flood(holding(running, version, name) + frames) as flood:
        assert flood.pour(sends(f"full.{name}", headers="delay:0\n", count=1) + begun)
        assert flood.peak < GROWTH_MAX


def requests(path: str, count: int) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * count


@pytest.fixture(scope="module")
def crowded(running: Exposed) -> Exposed:
    """Return a gateway with many queues."""
    peer = running.peer()
    for number in range(HELD_UP):
        peer.send(f"crowd.{number}", b"x", "done" if number == HELD_UP - 1 else "")
    assert peer.read()[1] == {"receipt-id": "done"}
    peer.close()
    return running


def test_pipelined_requests_whose_answers_nobody_reads_wait_for_them(crowded: Exposed) -> None:
    floods = [crowded.flood(http=True) for _ in range(4)]
    before = resident(crowded.gateway)
    for flood in floods:
        flood.before = before
    pouring = [
        threading.Thread(target=flood.pour, args=(requests("/api/v1/queues", 1000),))
        for flood in floods
    ]
    for one in pouring:
        one.start()
    answered = 0
    while any(one.is_alive() for one in pouring):
        status, answer = crowded.gateway.request("GET", "/api/v1/queues?limit=1")
        assert status == 200
        assert isinstance(answer, dict)
        assert answer["total"] >= HELD_UP
        answered += 1
        time.sleep(0.05)
    for flood in floods:
        assert flood.sent < 8 * MIB, "it is read from for ever"
        assert flood.peak < GROWTH_MAX
        flood.close()
    assert answered > 5


def test_pipelined_requests_are_answered_in_order_once_they_are_read(crowded: Exposed) -> None:
    count = 40
    with crowded.flood(http=True) as flood:
        asked = b"".join(requests(f"/api/v1/queues/crowd.{n}", 1) for n in range(count))
        flood.say(asked + requests("/api/v1/queues", 1) + requests("/livez", 1))
        time.sleep(0.5)
        came = b""
        while came.count(b"HTTP/1.1 200") < count + 2:
            came += flood.read()
    heads = came.split(b"HTTP/1.1 200")[1:]
    for number, one in enumerate(heads[:count]):
        assert json.loads(one.partition(b"\r\n\r\n")[2])["name"] == f"crowd.{number}"


def test_deliveries_of_a_peer_that_does_not_read_go_back(running: Exposed) -> None:
    """Both protocols: what it holds is for others again."""
    peer = running.peer()
    body = b"b" * (1 << 18)
    for number in range(80):
        peer.send("back", body, "all" if number == 79 else "")
    assert peer.read()[1]["receipt-id"] == "all"
    attach = Attach(name="r", handle=0, role=True, source=Source(address="back"), target=Target())
    credit = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=9,
        handle=0,
        delivery_count=0,
        link_credit=1000,
    )
    subscribe = b"SUBSCRIBE\nid:s\ndestination:back\nack:client\nconsumer-window-size:-1\n\n\0"
    for hello in (OPENED + frame(attach) + frame(credit), connect("1.2") + subscribe):
        with running.flood(hello) as flood:
            wait_until(lambda: queue(running.gateway, "back")["deliveringCount"] > 0, PATIENCE)
            assert flood.cut_within(UNREAD_SECONDS + PATIENCE)
            wait_until(lambda: queue(running.gateway, "back")["deliveringCount"] == 0, PATIENCE)
            assert queue(running.gateway, "back")["messageCount"] == 80
            assert flood.measure() < GROWTH_MAX
    peer.close()
