"""Web pages that wait, are refused, or do not read, at a real gateway.

They come by ws:// and wss:// to the port for messages, and by ws:// to that of management.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocols.amqp.performatives import Attach, Begin, Flow, Open, Source, Target
from tests.certificates import Authority
from tests.conformance.small_disk import GIB, TOTAL, FiguresGateway
from tests.gateway.hostile import GROWTH_MAX, Flood, resident
from tests.gateway.stomp_peer import StompPeer
from tests.gateway.web_tab import SECONDS, Tab
from tests.gateway.websocket_peer import ClosedError, WebSocketClient
from tests.interop.support import queue, wait_until
from tests.logs import wait_log, wait_records
from tests.protocols.amqp.peer import frame, of, parse
from tests.protocols.websocket.client import frame as masked
from tests.protocols.websocket.client import request
from tests.secure import connected

pytestmark = pytest.mark.timeout(180)

every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


@dataclass(frozen=True, slots=True)
class Place:
    """A listener of a gateway.

    Attributes:
        context: what its clients trust; None: it speaks no TLS.
        as_written: it has `SETTINGS`. The listener of management has the defaults of an acceptor.
    """

    gateway: FiguresGateway
    port: int
    context: ssl.SSLContext | None = None
    as_written: bool = True


UNREAD_SECONDS = 3
SETTINGS = (
    f"acceptors.all.unread-timeout='{UNREAD_SECONDS}s'",
    "acceptors.all.max-unread-size=64KiB",
    'address-settings."full.#".max-size-messages=2',
    'address-settings."full.#".address-full-policy="BLOCK"',
    'address-settings."fail.#".max-size-messages=2',
    'address-settings."fail.#".address-full-policy="FAIL"',
)


Pair = tuple[Path, Path] | None


def made_for(wire: str, folder: Path) -> tuple[Pair, ssl.SSLContext | None]:
    """Return the files that a gateway has for `wire`, and what its clients trust."""
    if wire == "ws":
        return None, None
    authority = Authority(folder / "made")
    made = authority.issue()
    return (made.certificate, made.key), authority.client()


both_wires = pytest.mark.parametrize("wire", ["ws", "wss"])


@pytest.fixture(scope="module", params=["ws", "wss", "management"])
def where(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    at_management = request.param == "management"
    pair, context = made_for("ws" if at_management else request.param, folder)
    with FiguresGateway(folder, settings=SETTINGS, tls=pair) as running:
        if at_management:
            yield Place(running, running.management_port, as_written=False)
        else:
            yield Place(running, running.port, context)


def tab(where: Place, version: str = "1.2", connect: str = "") -> Tab:
    return Tab(where.port, version, context=where.context, connect=connect)


def bystander(where: Place) -> StompPeer:
    return StompPeer(where.gateway.port, context=where.context)


# ---- the disk


@contextlib.contextmanager
def full_disk(gateway: FiguresGateway) -> Iterator[None]:
    gateway.set_free(GIB)
    wait_until(lambda: bool(gateway.disk["full"]), SECONDS)
    try:
        yield
    finally:
        gateway.set_free(50 * GIB)
        wait_until(lambda: not gateway.disk["full"], SECONDS)


@every_version
def test_rabbitmq_server_17439_a_page_is_stopped_at_the_disk_limit(
    where: Place, version: str
) -> None:
    name = f"disk.{version}"
    gateway = where.gateway
    with tab(where, version) as reader, tab(where, version) as page:
        reader.subscribe(name, "client")
        page.send(name, "before", "1")
        assert page.frame()[1] == {"receipt-id": "1"}
        first = reader.frame()
        with full_disk(gateway):
            page.send(name, "refused", "2")
            command, headers, body = page.frame()
            assert (command, headers["receipt-id"]) == ("ERROR", "2")
            assert (headers["error-code"], headers["retry-after"]) == ("disk-full", "1")
            assert f"The disk is full: {GIB} of {TOTAL} bytes are free at /data" in body
            assert f"min-disk-free is {GIB} bytes (--set" in body
            assert page.closed() == (1013, "disk-full, retry-after 1")
            assert page.peer.rest() == b""
            # Who only consumes is not dropped, and makes room.
            reader.ack(first)
            wait_until(lambda: queue(gateway, name)["messageCount"] == 0, SECONDS)
            assert reader.end is None
        with tab(where, version) as again:
            again.send(name, "after", "3")
            assert again.frame()[1] == {"receipt-id": "3"}
        assert reader.frame()[2] == "after"


def test_amqp_over_websocket_has_no_credit_while_the_disk_is_full(where: Place) -> None:
    gateway = where.gateway
    with full_disk(gateway):
        client = amqp_sender(where, "amqp.disk")
        assert client.credit(0.5) == 0
    assert client.credit(SECONDS) > 0
    client.peer.socket.close()


def test_a_page_may_wait_for_the_disk_instead(tmp_path: Path) -> None:
    settings = ['acceptors.all.stomp-disk-full="pause"']
    with FiguresGateway(tmp_path, settings=settings) as gateway, Tab(gateway.port) as page:
        with full_disk(gateway):
            page.send("q", "x", "r")
            page.ping(b"there?")
            assert page.hear(0.5) == []
            assert page.pongs == [b"there?"]
        assert page.frame()[1] == {"receipt-id": "r"}


# ---- a full address


@every_version
def test_a_page_at_a_full_address_waits_alive_and_goes_on_without_loss(
    where: Place, version: str
) -> None:
    name = f"full.{version}"
    with tab(where, version, "heart-beat:500,500\n") as page:
        for number in range(1, 9):
            page.send(name, str(number), str(number))
        assert [page.frame()[1]["receipt-id"] for _ in range(2)] == ["1", "2"]
        beats = page.beats
        for number in range(4):
            page.say("\n")
            page.ping(b"%d" % number)
            assert page.hear(0.6) == []
        assert page.pongs == [b"0", b"1", b"2", b"3"]
        assert page.beats - beats >= 3
        assert page.end is None
        with tab(where, version) as reader:
            reader.subscribe(name, "client")
            came = []
            for _ in range(8):
                came.append(reader.frame())
                reader.ack(came[-1])
        assert [body for _, _, body in came] == [str(n) for n in range(1, 9)]
        assert [page.frame()[1]["receipt-id"] for _ in range(6)] == [str(n) for n in range(3, 9)]
    wait_until(lambda: queue(where.gateway, name)["messageCount"] == 0, SECONDS)


def test_a_page_that_leaves_while_it_waits_is_answered(where: Place) -> None:
    with tab(where) as page:
        for number in range(4):
            page.send("full.leaving", str(number))
        wait_until(lambda: queue(where.gateway, "full.leaving")["messageCount"] == 2, SECONDS)
        assert page.close(1001) == 1001


@every_version
def test_under_fail_a_page_is_told_when_to_try_again(where: Place, version: str) -> None:
    name = f"fail.{version}"
    with tab(where, version) as page:
        for number in range(3):
            page.send(name, str(number), str(number))
        assert [page.frame()[0] for _ in range(2)] == ["RECEIPT"] * 2
        command, headers, body = page.frame()
        assert (command, headers["receipt-id"]) == ("ERROR", "2")
        assert (headers["error-code"], headers["retry-after"]) == ("address-full", "5")
        assert "max-size-messages is 2" in body
        if version == "1.2":
            assert page.closed() == (1013, "address-full, retry-after 5")
        else:
            page.send("free", "x", "3")
            assert page.frame()[1] == {"receipt-id": "3"}


class AmqpSender(WebSocketClient):
    """A link to an address, over a WebSocket."""

    left = b""

    def credit(self, seconds: float) -> int:
        """Return the credit that the link is given first; 0: none within so many seconds."""
        end = time.monotonic() + seconds
        while (wait := end - time.monotonic()) > 0:
            if not select.select([self.peer.socket], [], [], wait)[0]:
                continue
            came, self.left = parse(self.left + self.read())
            for flow in of(came, Flow):
                if flow.handle is not None and flow.link_credit:
                    return int(flow.link_credit)
        return 0


def amqp_sender(where: Place, address: str) -> AmqpSender:
    client = AmqpSender(where.port, "/amqp", subprotocols=("amqp",), context=where.context)
    attach = Attach(
        name="s",
        handle=0,
        role=False,
        source=Source(),
        target=Target(address=address),
        initial_delivery_count=0,
    )
    begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
    client.say(
        b"AMQP\x00\x01\x00\x00" + frame(Open(container_id="tab")) + frame(begin) + frame(attach)
    )
    return client


def test_amqp_over_websocket_has_credit_again_when_there_is_room(where: Place) -> None:
    peer = bystander(where)
    for number in range(2):
        peer.send("full.amqp", b"x", str(number))
        assert peer.read()[0] == "RECEIPT"
    client = amqp_sender(where, "full.amqp")
    assert client.credit(0.5) == 0
    peer.write("SUBSCRIBE\nid:s\ndestination:full.amqp\nack:auto\n\n")
    assert client.credit(SECONDS) > 0
    client.peer.socket.close()
    peer.close()


# ---- tabs that do not read, or do not acknowledge


KIB = 1 << 10
BODY = b"b" * (10 * KIB)
#: What a connection may have the gateway hold: output up to where no more is asked for, before it
#: a piece that the transport sends, and one hand-over of messages that were larger than the ones
#: before [protocols.stomp.subscription].
HELD_MAX = 2 * 1024 * KIB + 512 * KIB + 4096 * KIB


def put(where: Place, name: str, count: int) -> None:
    peer = bystander(where)
    for number in range(count):
        peer.send(name, BODY, "all" if number == count - 1 else "")
    assert peer.read()[1]["receipt-id"] == "all"
    peer.close()


def held_for(where: Place, page: Tab) -> int:
    """Return how many bytes the gateway holds since a page does not read them."""
    return held_by(where, page.peer.socket.getsockname()[1])


def held_by(where: Place, port: int) -> int:
    path = f"/api/v1/connections?remote=127.0.0.1:{port}"
    status, found = where.gateway.request("GET", path)
    assert status == 200
    assert isinstance(found, dict)
    (one,) = found["items"]
    return int(one["unreadBytes"])


@pytest.mark.parametrize(
    ("version", "ack"), [("1.0", "auto"), ("1.1", "client"), ("1.2", "client-individual")]
)
def test_a_tab_that_does_not_read_costs_its_window_and_its_buffer(
    where: Place, version: str, ack: str
) -> None:
    gateway, name, count = where.gateway, f"slow.{ack}", 3000
    put(where, name, count)
    before = resident(gateway)
    with tab(where, version) as slow, tab(where, version, "heart-beat:0,500\n") as other:
        port = slow.peer.socket.getsockname()[1]
        slow.peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        slow.subscribe(name, ack, "consumer-window-size:-1\n")
        wait_until(lambda: held_for(where, slow) > 0, SECONDS)
        most, beats, pings = 0, other.beats, 0
        while other.beats < beats + 3:
            other.ping(b"%d" % pings)
            pings += 1
            assert other.hear(0.1) == []
            with contextlib.suppress(ValueError):
                most = max(most, held_for(where, slow))
        assert len(other.pongs) >= pings - 1, "the others wait for it"
        assert most <= HELD_MAX
        assert resident(gateway) - before < GROWTH_MAX
        if where.as_written:
            said = f"has read nothing for {UNREAD_SECONDS} s"
            wait_log(gateway, f"127.0.0.1:{port}", said)
    # It is cut, or it leaves: what it has not acknowledged goes back.
    wait_until(lambda: queue(gateway, name)["deliveringCount"] == 0, SECONDS)
    left = int(queue(gateway, name)["messageCount"])
    if ack == "auto":
        # Written is acknowledged: what the sockets of both sides took is gone, the rest is there.
        assert left > count / 4
    else:
        assert left == count


def test_answers_that_a_tab_does_not_read_are_bounded_and_end_it(where: Place) -> None:
    gateway = where.gateway
    receipt = "r" * 8000
    sends = f"SEND\ndestination:unread\nreceipt:{receipt}\n\nx\0".encode() * 20
    hello = request("/stomp", Sec_WebSocket_Protocol="v12.stomp", Host=f"127.0.0.1:{where.port}")
    # By as much as one read makes it may be more, and the transport has a piece of as much before.
    most_kib = 1024 + (64 if where.as_written else 1024) + 512
    with Flood(gateway, where.port, where.context) as flood:
        flood.say(hello + masked(1, b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"))
        most = 0
        assert flood.pour(masked(1, sends)), f"{flood.sent} bytes were taken"
        if not flood.gone:
            most = held_by(where, flood.socket.getsockname()[1])
        # 1 MiB is no reason to stop yet; then so much of answers is as `max-unread-size` says.
        assert most <= 2 * most_kib * KIB
        assert flood.peak < GROWTH_MAX
        if where.as_written:
            assert flood.gone or flood.cut_within(UNREAD_SECONDS + SECONDS)


@pytest.mark.parametrize(
    ("asked", "goes"),
    [("", 7), ("consumer-window-size:-1\n", 40), ("consumer-window-size:0\n", 1)],
)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_page_that_asks_for_no_window_has_one(
    where: Place, ack: str, asked: str, goes: int
) -> None:
    """64 KiB: the seventh message of 10 KiB begins below it."""
    name = f"window.{ack}.{goes}"
    put(where, name, 40)
    with tab(where) as page:
        page.subscribe(name, ack, asked)
        came = [page.frame() for _ in range(goes)]
        assert page.hear(0.3) == []
        page.ack(came[-1] if ack == "client" else came[0])
        if goes < 40:
            assert page.frame()[0] == "MESSAGE"


def test_a_page_that_never_acknowledges_is_told_why_it_gets_nothing(tmp_path: Path) -> None:
    settings = [
        "acceptors.all.consumer-stuck-timeout=1s",
        "acceptors.all.stomp-ws-consumer-window-size=20KiB",
    ]
    with FiguresGateway(tmp_path, settings=settings) as gateway, Tab(gateway.port) as page:
        put(Place(gateway, gateway.port), "stuck", 10)
        page.subscribe("stuck", "client")
        assert [page.frame()[0] for _ in range(3)] == ["MESSAGE", "MESSAGE", "ERROR"]
        assert page.closed() == (1008, "slow-consumer")
        wait_log(gateway, "consumer-stuck-timeout", "consumer-window-size")
        wait_until(lambda: queue(gateway, "stuck")["deliveringCount"] == 0, SECONDS)
        assert queue(gateway, "stuck")["messageCount"] == 10


# ---- before and after


@both_wires
def test_a_page_that_comes_too_early_finds_no_port_and_then_all(tmp_path: Path, wire: str) -> None:
    pair, context = made_for(wire, tmp_path)
    gateway = FiguresGateway(tmp_path, tls=pair)
    starting = threading.Thread(target=gateway.start)
    starting.start()
    early = 0
    while True:
        try:
            page = Tab(gateway.port, context=context)
        except ConnectionRefusedError:
            early += 1
            time.sleep(0.01)
        else:
            break
    page.send("q", "x", "r")
    assert page.frame()[1] == {"receipt-id": "r"}
    starting.join()
    assert early, "nothing was tried before it was there"
    page.peer.socket.close()
    gateway.stop()


@both_wires
def test_a_page_for_which_there_is_no_place_is_told_when_to_come_again(
    tmp_path: Path, wire: str
) -> None:
    pair, context = made_for(wire, tmp_path)
    settings = ["acceptors.all.connections-allowed=1"]
    with FiguresGateway(tmp_path, settings=settings, tls=pair) as gateway:
        with Tab(gateway.port, context=context) as first:
            first.send("q", "x", "1")
            assert first.frame()[1] == {"receipt-id": "1"}
            with connected(gateway.port, context) as page:
                page.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n")
                answer = page.rest()
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nRetry-After: 10\r\n" in answer
            assert answer.endswith(b"connections-allowed is 1. Try again later.\n")
            other = StompPeer(gateway.port, context=context)
            command, headers, _ = other.greeting
            assert (command, headers["error-code"]) == ("ERROR", "too-many")
            assert headers["retry-after"] == "10"
            other.close()
            first.send("q", "y", "2")
            assert first.frame()[1] == {"receipt-id": "2"}
            told = wait_records(gateway, "connection.refused")
            assert "connections-allowed is 1 (--set" in told[0]["limit"]
        wait_until(lambda: comes_in(gateway.port, context), SECONDS)


def comes_in(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether a page is let in now."""
    try:
        page = Tab(port, context=context)
    except ClosedError:
        return False
    page.peer.socket.close()
    return True


@every_version
@both_wires
def test_a_stop_says_when_to_come_back(tmp_path: Path, wire: str, version: str) -> None:
    pair, context = made_for(wire, tmp_path)
    with FiguresGateway(tmp_path, tls=pair) as gateway:
        page = Tab(gateway.port, version, context=context)
        asking = connected(gateway.port, context)
        asking.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\n")
        time.sleep(0.2)
        os.kill(gateway.pid, signal.SIGTERM)
        command, headers, _ = page.frame()
        assert (command, headers["error-code"], headers["retry-after"]) == (
            "ERROR",
            "shutting-down",
            "5",
        )
        assert page.closed() == (1001, "gateway-stopping, retry-after 5")
        answer = asking.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 5\r\n" in answer
        page.peer.socket.close()
        asking.socket.close()
        while gateway.running():
            time.sleep(0.01)
