"""Full addresses that hold their senders: STOMP clients that come and go get nothing past them.

A client of STOMP has no credit. What it sends to an address that is full (BLOCK), or that an
operator has blocked, waits unanswered; whoever leaves before there is room was never confirmed.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from proton import Message

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.support import connected, queue, raw, wait_until

pytestmark = pytest.mark.interop

VERSIONS = ["1.0", "1.1", "1.2"]
FEW = ('address-settings."few".max-size-messages=5',)
SETTINGS = (
    'address-settings."few.#".address-full-policy="BLOCK"',
    'address-settings."few.#".max-size-messages=5',
    'address-settings."small.#".address-full-policy="BLOCK"',
    'address-settings."small.#".max-size-bytes="1MiB"',
    'address-settings."held.#".address-full-policy="BLOCK"',
)


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("full"), settings=SETTINGS, tls=tls) as running:
        yield running


def opened(gateway: ScratchGateway, version: str) -> socket.socket:
    peer = raw(gateway, gateway.stomp_port)
    accept = "" if version == "1.0" else f"accept-version:{version}\n"
    peer.sendall(f"CONNECT\n{accept}host:x\n\n\0".encode())
    assert peer.recv(4096).startswith(b"CONNECTED")
    return peer


def send(address: str, body: bytes) -> bytes:
    head = f"SEND\ndestination:{address}\ncontent-length:{len(body)}\nreceipt:r\n\n"
    return head.encode() + body + b"\0"


def receipts(peers: list[socket.socket], seconds: float = 1.0) -> int:
    """Return how many of the peers have a receipt once none has come for so long."""
    found = 0
    silent = list(peers)
    while silent and (heard := select.select(silent, [], [], seconds)[0]):
        for peer in heard:
            found += peer.recv(4096).startswith(b"RECEIPT")
            silent.remove(peer)
    return found


def count(gateway: ScratchGateway, name: str) -> int:
    return int(queue(gateway, name)["messageCount"])


def holds(gateway: ScratchGateway, name: str, number: int) -> bool:
    """Whether a queue, which what was sent may still have to make, holds so many."""
    status, facts = gateway.request("GET", f"/api/v1/queues/{name}")
    return status == 200 and isinstance(facts, dict) and facts["messageCount"] == number


@pytest.mark.parametrize("version", VERSIONS)
def test_a_hundred_connections_of_one_send_each_store_five(
    gateway: ScratchGateway, version: str, address: str
) -> None:
    name = f"few.{address}"
    with ExitStack() as stack:
        peers = [stack.enter_context(opened(gateway, version)) for _ in range(100)]
        for peer in peers:
            peer.sendall(send(name, b"x"))
        wait_until(lambda: holds(gateway, name, 5))
        assert receipts(peers) == 5
        assert count(gateway, name) == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_all_in_one_read_stops_at_the_limit_and_goes_on_in_order(
    gateway: ScratchGateway, version: str, address: str
) -> None:
    name = f"few.{address}"
    with opened(gateway, version) as peer, connected(gateway) as connection:
        peer.sendall(b"".join(send(name, b"%d" % n) for n in range(40)))
        wait_until(lambda: holds(gateway, name, 5))
        receiver = connection.create_receiver(name, credit=1)
        got = []
        for _ in range(40):
            message = receiver.receive(timeout=10)
            got.append(bytes(message.body) if not isinstance(message.body, str) else message.body)
            receiver.accept()
            assert count(gateway, name) <= 6
        assert [int(body) for body in got] == list(range(40))


def test_megabytes_of_many_connections_are_not_taken(gateway: ScratchGateway, address: str) -> None:
    """What reaches the limit is taken, as everywhere; no more than that."""
    name = f"small.{address}"
    with ExitStack() as stack:
        peers = [stack.enter_context(opened(gateway, "1.2")) for _ in range(30)]
        for peer in peers:
            peer.settimeout(10)
            peer.sendall(send(name, b"m" * 1_000_000))
        wait_until(lambda: holds(gateway, name, 2))
        assert receipts(peers) == 2
        assert count(gateway, name) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_m7_what_an_operator_blocks_takes_nothing_of_those_that_come(
    gateway: ScratchGateway, version: str, address: str
) -> None:
    name = f"held.{address}"
    assert gateway.request("POST", "/api/v1/addresses", {"name": name})[0] in (200, 201)
    assert gateway.request("POST", "/api/v1/queues", {"name": name, "address": name})[0] == 201
    assert gateway.request("POST", f"/api/v1/addresses/{name}/block", {})[0] == 200
    with ExitStack() as stack:
        peers = [stack.enter_context(opened(gateway, version)) for _ in range(20)]
        for peer in peers:
            peer.sendall(send(name, b"x"))
        assert receipts(peers) == 0
        assert count(gateway, name) == 0
        connection = stack.enter_context(connected(gateway))
        sender = connection.create_sender(name)
        assert sender.link.credit == 0
        assert gateway.request("POST", f"/api/v1/addresses/{name}/unblock", {})[0] == 200
        wait_until(lambda: holds(gateway, name, 20))
        assert receipts(peers) == 20
        sender.send(Message(body="amqp"))
    assert count(gateway, name) == 21


def disconnect(receipt: str) -> bytes:
    return f"DISCONNECT\nreceipt:{receipt}\n\n\0".encode()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_disconnect_behind_what_waits_is_confirmed_after_it(
    gateway: ScratchGateway, version: str, address: str
) -> None:
    name = f"few.{address}"
    with opened(gateway, version) as filler, opened(gateway, version) as peer:
        filler.sendall(b"".join(send(name, b"%d" % n) for n in range(5)))
        wait_until(lambda: holds(gateway, name, 5))
        peer.sendall(send(name, b"5") + disconnect("bye"))
        assert receipts([peer]) == 0
        assert count(gateway, name) == 5
        with connected(gateway) as connection:
            receiver = connection.create_receiver(name, credit=6)
            for _ in range(6):
                receiver.receive(timeout=10)
                receiver.accept()
        peer.settimeout(10)
        heard = b""
        while more := peer.recv(4096):  # up to the end of the connection
            heard += more
        assert heard.index(b"receipt-id:r") < heard.index(b"receipt-id:bye")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_waited_of_those_that_left_is_not_stored_and_a_restart_keeps_the_rest(
    tmp_path: Path, version: str
) -> None:
    settings = ('address-settings."few".address-full-policy="BLOCK"', *FEW)
    with ScratchGateway(tmp_path, settings=settings) as gateway:
        with opened(gateway, version) as filler:
            filler.sendall(b"".join(send("few", b"%d" % n) for n in range(5)))
            heard = b""
            while heard.count(b"receipt-id:r") < 5:  # on disk, which a kill leaves alone
                more = filler.recv(4096)
                assert more, heard
                heard += more
        with ExitStack() as stack:
            peers = [stack.enter_context(opened(gateway, version)) for _ in range(10)]
            for peer in peers:
                peer.sendall(send("few", b"waits"))
            assert receipts(peers) == 0
            gateway.kill()
        gateway.start()
        assert count(gateway, "few") == 5
        with opened(gateway, version) as peer:
            peer.sendall(send("few", b"5"))
            assert receipts([peer]) == 0
            with connected(gateway) as connection:
                receiver = connection.create_receiver("few", credit=10)
                bodies = []
                for _ in range(6):
                    message = receiver.receive(timeout=10)  # kept: the body may point into it
                    body = message.body
                    bodies.append(int(body if isinstance(body, str) else bytes(body)))
                    receiver.accept()
        assert bodies == list(range(6))


GLOBAL = ('address-settings."#".address-full-policy="BLOCK"', 'global-max-size="2MiB"')


@pytest.mark.parametrize("protocol", ["amqp", *VERSIONS])
def test_sixty_megabytes_do_not_pass_the_limit_of_the_gateway(
    tmp_path: Path, protocol: str
) -> None:
    """What reaches the limit is taken: three of a megabyte each."""
    body = b"m" * 1_000_000
    with ScratchGateway(tmp_path, settings=GLOBAL) as gateway, ExitStack() as stack:
        if protocol == "amqp":
            for _ in range(60):
                sender = stack.enter_context(connected(gateway)).create_sender("g")
                if sender.link.credit:
                    sender.send(Message(body=body))
        else:
            peers = [stack.enter_context(opened(gateway, protocol)) for _ in range(60)]
            for peer in peers:
                peer.sendall(send("g", body))
            wait_until(lambda: holds(gateway, "g", 3))
            assert receipts(peers) == 3
        assert count(gateway, "g") == 3
        facts = gateway.request("GET", "/readyz")[1]
        assert isinstance(facts, dict)
        assert facts["full"][0]["limit"] == "global-max-size"
