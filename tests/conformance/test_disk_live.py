"""The disk rows through real clients against a gateway process; the last ones on a disk that ends.

Rows D4, D8, D9, D13, D14, D16, U3, and what `reliability` asks of a journal without room: consumers
and acknowledgements go on, nothing that was confirmed is lost.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp
from proton import Message, ProtonException
from proton.utils import BlockingConnection

from gateway.trial.scratch import GatewayFailedError
from tests.conformance.small_disk import GIB, FiguresGateway, MountedGateway, mounted
from tests.logs import wait_log

SECONDS = 15.0


def until(condition: Any, what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


class Listener(stomp.ConnectionListener):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.messages: list[Any] = []
        self.receipts: list[str] = []
        self.lost = threading.Event()

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)

    def on_message(self, frame: Any) -> None:
        self.messages.append(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self.lost.set()


def stomp_client(port: int) -> tuple[Any, Listener]:
    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    listener = Listener()
    connection.set_listener("", listener)
    connection.connect(wait=True)
    return connection, listener


class AmqpSender(threading.Thread):
    """Sends one message on a connection of its own, and waits for its outcome."""

    def __init__(self, port: int, address: str | None) -> None:
        super().__init__(daemon=True)
        self.connection = BlockingConnection(f"127.0.0.1:{port}", timeout=SECONDS)
        self.sender = self.connection.create_sender(address)
        self.address = address
        self.outcome: object = None

    def run(self) -> None:
        try:
            to = None if self.address else "relayed"
            self.sender.send(Message(address=to, body="x", durable=True))
            self.outcome = "accepted"
        except (ProtonException, OSError) as error:
            self.outcome = error


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FiguresGateway]:
    with FiguresGateway(tmp_path) as one:
        yield one


def fill(gateway: FiguresGateway) -> None:
    gateway.set_free(GIB)
    until(lambda: gateway.disk["full"], "the disk is full")


def count(gateway: Any, name: str) -> int:
    status, queue = gateway.request("GET", f"/api/v1/queues/{name}")
    assert status in (200, 404), queue
    return queue["messageCount"] if status == 200 else 0


def test_d4_u3_amqp_senders_wait_and_all_go_on_when_there_is_room(gateway: FiguresGateway) -> None:
    fill(gateway)
    senders = [AmqpSender(gateway.port, address) for address in ("a", "b", None)]
    for sender in senders:
        sender.start()
    until(lambda: gateway.disk["heldSenders"] == 3, "three senders are held")
    time.sleep(0.3)
    assert [sender.outcome for sender in senders] == [None] * 3
    # All are let go by one scan: the disk becomes free no sooner than a second after it was full.
    gateway.set_free(2 * GIB)
    for sender in senders:
        sender.join(SECONDS)
    assert [sender.outcome for sender in senders] == ["accepted"] * 3
    assert gateway.disk["heldSenders"] == 0
    assert [count(gateway, name) for name in ("a", "b", "relayed")] == [1, 1, 1]
    for sender in senders:
        sender.connection.close()


def test_d8_d9_d16_stomp_senders_are_told_and_dropped_others_go_on(gateway: FiguresGateway) -> None:
    before, _ = stomp_client(gateway.stomp_port)
    before.send("/queue/q", "one", receipt="r")
    reader, heard = stomp_client(gateway.stomp_port)
    reader.subscribe("/queue/q", id="s", ack="client-individual")
    until(lambda: heard.messages, "the first message")
    fill(gateway)

    sender, told = stomp_client(gateway.stomp_port)
    sender.send("/queue/q", "two", receipt="mine")
    assert told.lost.wait(SECONDS)
    (error,) = told.errors
    assert error.headers["receipt-id"] == "mine"
    assert error.headers["error-code"] == "disk-full"
    assert f"{GIB} of {100 * GIB} bytes are free" in error.headers["message"]
    assert told.receipts == []
    assert count(gateway, "q") == 1

    reader.ack(heard.messages[0].headers["ack"], receipt="acked")
    until(lambda: "acked" in heard.receipts, "the receipt of an ACK")
    assert count(gateway, "q") == 0
    # The API works, changes included; it says what is wrong.
    assert gateway.request("POST", "/api/v1/queues", {"name": "made"})[0] == 201
    status, ready = gateway.request("GET", "/readyz")
    assert (status, ready["status"], ready["code"]) == (200, "ready", "disk-full")
    _, address = gateway.request("GET", "/api/v1/addresses/q")
    assert (address["blocked"], address["full"]) == (True, False)
    assert "min-disk-free is 1073741824 bytes" in address["reason"]

    gateway.set_free(2 * GIB)
    until(lambda: not gateway.disk["full"], "there is room")
    again, told = stomp_client(gateway.stomp_port)
    again.send("/queue/q", "three", receipt="r3")
    until(lambda: "r3" in told.receipts, "a receipt after the disk was freed")
    until(lambda: len(heard.messages) == 2, "the message sent afterwards")
    for one in (before, reader, again):
        one.disconnect()


def test_d14_full_at_the_start_is_full_at_once(tmp_path: Path) -> None:
    gateway = FiguresGateway(tmp_path, settings=["disk-scan-period=60000"])
    gateway.set_free(1)
    with gateway:
        wait_log(gateway, "FULL")
        sender, told = stomp_client(gateway.stomp_port)
        sender.send("/queue/q", "x")
        assert told.lost.wait(SECONDS)
        assert [one.headers["error-code"] for one in told.errors] == ["disk-full"]
        waiting = AmqpSender(gateway.port, "q")
        waiting.start()
        until(lambda: gateway.disk["heldSenders"] == 1, "the sender is held")
        assert waiting.outcome is None
        assert count(gateway, "q") == 0
    waiting.join(SECONDS)


def test_stomp_may_wait_instead(tmp_path: Path) -> None:
    settings = ['acceptors.stomp.stomp-disk-full="pause"']
    with FiguresGateway(tmp_path, settings=settings) as gateway:
        fill(gateway)
        sender, told = stomp_client(gateway.stomp_port)
        sender.send("/queue/q", "x", receipt="r")
        assert not told.lost.wait(0.3)
        assert (told.receipts, count(gateway, "q")) == ([], 0)
        gateway.set_free(2 * GIB)
        until(lambda: told.receipts == ["r"], "the receipt after the wait")
        assert count(gateway, "q") == 1
        sender.disconnect()


def test_metrics_and_log_tell_of_it(gateway: FiguresGateway) -> None:
    def metric(name: str) -> str | None:
        status, text = raw(gateway, "/metrics")
        assert status == 200
        found = [line for line in text.splitlines() if line.startswith(f"sluicegate_{name} ")]
        return found[0].split()[1] if found else None

    assert metric("disk_full") == "0"
    assert metric("disk_limit_free_bytes") == str(GIB)
    fill(gateway)
    assert (metric("disk_full"), metric("disk_filled_total")) == ("1", "1")
    assert metric("disk_seconds_to_full") == "0.0"
    gateway.set_free(50 * GIB)
    until(lambda: metric("disk_full") == "0", "the metric falls")
    log = wait_log(gateway, "disk.freed")
    assert log.index("disk.watched") < log.index("disk.filled") < log.index("disk.freed")


def raw(gateway: FiguresGateway, path: str) -> tuple[int, str]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", gateway.management_port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


# ---- a file system that ends


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[int]:
    with mounted(tmp_path, "48m") as pid:
        if pid is None:
            pytest.skip("this machine does not let us mount a file system")
        yield pid


SMALL = ["journal-file-size=2MiB", "disk-scan-period=100"]


def test_a_small_file_system_blocks_and_lets_go(tmp_path: Path, holder: int) -> None:
    settings = [*SMALL, 'min-disk-free="8MiB"']
    with MountedGateway(tmp_path, holder, settings=settings) as gateway:
        early = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        early.create_sender("q").send(Message(body="1", durable=True))
        gateway.fill(leave=1 << 20)
        until(lambda: full(gateway), "the disk is full")
        waiting = AmqpSender(gateway.port, "q")
        waiting.start()
        _, told = refused(gateway)
        assert "max-disk-usage" not in told
        assert "min-disk-free is 8388608 bytes" in told
        assert waiting.outcome is None
        gateway.free()
        waiting.join(SECONDS)
        assert waiting.outcome == "accepted"
        assert count(gateway, "q") == 2
        waiting.connection.close()
        early.close()


def full(gateway: MountedGateway) -> bool:
    _, store = gateway.request("GET", "/api/v1/store")
    return bool(store["disk"]["full"])


def refused(gateway: MountedGateway) -> tuple[str, str]:
    sender, told = stomp_client(gateway.stomp_port)
    sender.send("/queue/q", "x", receipt="r")
    assert told.lost.wait(SECONDS)
    (error,) = told.errors
    return error.headers["error-code"], error.headers["message"]


def test_d13_a_journal_without_room_lives_on_its_ballast(tmp_path: Path, holder: int) -> None:
    gateway = MountedGateway(tmp_path, holder, settings=[*SMALL, "max-disk-usage=-1"])
    body = "x" * 10_000
    with gateway:
        connection = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        sender = connection.create_sender("q")
        sender.send(Message(body=body, durable=True))
        gateway.fill()
        confirmed = 1
        # Until the journal needs a file that it cannot have: then it gives no more credit.
        while not full(gateway):
            sender.send(Message(body=body, durable=True))
            confirmed += 1
            assert confirmed < 2000, "the disk never ended"
        assert refused(gateway)[0] == "disk-full"
        _, store = gateway.request("GET", "/api/v1/store")
        assert store["disk"]["ballastMissingBytes"] > 0
        assert "no room left" in store["disk"]["reason"]
        # Nothing confirmed is lost to a power cut now.
        gateway.kill()
        gateway.start()
        until(lambda: count(gateway, "q") >= confirmed, "all that was confirmed")

        reader = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        receiver = reader.create_receiver("q", credit=100)
        for _ in range(count(gateway, "q")):
            assert len(receiver.receive().body) == len(body)
            receiver.accept()
        reader.close()
        until(lambda: count(gateway, "q") == 0, "everything is consumed and acknowledged")

        gateway.free()
        until(lambda: not full(gateway), "the ballast is whole again")
        _, store = gateway.request("GET", "/api/v1/store")
        assert store["disk"]["ballastMissingBytes"] == 0
        writer = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        writer.create_sender("q").send(Message(body="after", durable=True))
        assert count(gateway, "q") == 1
        writer.close()


# ---- limits that hold, and disks that can be drained


def free_on(gateway: MountedGateway) -> int:
    facts = os.statvfs(gateway.seen)
    return facts.f_bavail * facts.f_frsize


@pytest.mark.parametrize("size", [1000, 200_000])
def test_writing_at_full_speed_does_not_pass_min_disk_free(
    tmp_path: Path, holder: int, size: int
) -> None:
    # No scan by the clock would come in time.
    limit = 16 << 20
    settings = ["journal-file-size=2MiB", "disk-scan-period=600000", f"min-disk-free={limit}"]
    with MountedGateway(tmp_path, holder, settings=settings) as gateway:
        sender = socket.create_connection(("127.0.0.1", gateway.stomp_port), timeout=SECONDS)
        sender.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        frame = b"SEND\ndestination:/queue/q\n\n" + b"x" * size + b"\0"
        least = free_on(gateway)
        assert least > limit
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 200 << 20:
                sender.sendall(frame * max(1, 200_000 // size))
                sent += max(size, 200_000)
                least = min(least, free_on(gateway))
        assert full(gateway)
        least = min(least, free_on(gateway))
        assert least >= limit
        sender.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[int]:
    with mounted(tmp_path, "14m") as pid:
        if pid is None:
            pytest.skip("this machine does not let us mount a file system")
        yield pid


def test_a_tiny_disk_is_drained_after_it_was_filled_also_by_a_new_start(
    tmp_path: Path, tiny: int
) -> None:
    settings = ["journal-file-size=1MiB", "max-disk-usage=-1", "disk-scan-period=100"]
    gateway = MountedGateway(tmp_path, tiny, settings=settings)
    with gateway:
        connection = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        sender = connection.create_sender("q")
        confirmed = 0
        with contextlib.suppress(Exception):
            while not full(gateway) and confirmed < 2000:
                sender.send(Message(body="x" * 20_000, durable=True), timeout=2)
                confirmed += 1
        assert confirmed > 100
        assert gateway.running()
        gateway.kill()
        gateway.start()
        until(lambda: count(gateway, "q") >= confirmed, "all that was confirmed")
        reader = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        receiver = reader.create_receiver("q", credit=100)
        for _ in range(count(gateway, "q")):
            receiver.receive()
            receiver.accept()
        reader.close()
        until(lambda: count(gateway, "q") == 0, "everything is consumed and acknowledged")
        assert gateway.running()


def test_a_file_system_too_small_to_be_drained_is_refused_by_name(
    tmp_path: Path, tiny: int
) -> None:
    gateway = MountedGateway(tmp_path, tiny, settings=["journal-file-size=4MiB"])
    with pytest.raises(GatewayFailedError, match=r"status 64[\s\S]*journal-file-size"):
        gateway.start()


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[int]:
    with mounted(tmp_path, "48m,nr_inodes=80") as pid:
        if pid is None:
            pytest.skip("this machine does not let us mount a file system")
        yield pid


def test_a_disk_without_inodes_is_full_and_is_drained(tmp_path: Path, few_files: int) -> None:
    settings = ["journal-file-size=1MiB", "min-disk-free=1000000", "disk-scan-period=50"]
    with MountedGateway(tmp_path, few_files, settings=settings) as gateway:
        connection = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=SECONDS)
        sender = connection.create_sender("q")
        for _ in range(100):
            sender.send(Message(body="x" * 10_000, durable=True))
        taken = []
        with contextlib.suppress(OSError):
            for number in range(100):
                taken.append(gateway.seen / f"taken-{number}")
                taken[-1].touch()
        until(lambda: full(gateway), "the disk takes no files")
        assert "inodes" in refused(gateway)[1]
        receiver = connection.create_receiver("q", credit=100)
        for _ in range(100):
            receiver.receive()
            receiver.accept()
        connection.close()
        until(lambda: count(gateway, "q") == 0, "everything is consumed and acknowledged")
        for one in taken:
            one.unlink(missing_ok=True)
        until(lambda: not full(gateway), "there is room again")
