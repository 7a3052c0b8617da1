"""A disk that refuses: what the gateway does, what its operator sees, and what is there later.

Faults are system calls of the real process that fail (strace), or reads that do.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import time
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway
from tests.durability.faulty import REFUSING, UNREADABLE, FaultyGateway
from tests.durability.rounds import StompSender, drain
from tests.durability.test_syscalls import SETTINGS, TracedGateway, works
from tests.logs import wait_log, whole_log

EX_IOERR = 74
#: The k-th call of a thread fails, once: the next one would succeed.
ONCE = [
    ("fdatasync", "EIO", 14),
    ("fdatasync", "ENOSPC", 15),
    ("fdatasync", "EDQUOT", 16),
    ("fdatasync", "EROFS", 17),
    ("pwrite64", "EIO", 21),
    ("pwrite64", "EROFS", 22),
    ("pwrite64", "EDQUOT", 23),
]


@pytest.fixture(scope="module", autouse=True)
def _strace() -> None:
    reason = works()
    if reason is not None:
        pytest.skip(reason)


def status_of(gateway: TracedGateway, seconds: float = 20.0) -> int | None:
    """Return the exit status of strace, which is the gateway's; None: it goes on."""
    process = gateway._process
    assert process is not None
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process.poll()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("call", "error", "k"), ONCE)
def test_a_disk_that_refuses_once_is_not_asked_again(
    tmp_path: Path, call: str, error: str, k: int
) -> None:
    folder = tmp_path / "gateway"
    gateway = TracedGateway(folder, call, f"error={error}", k)
    gateway.start()
    try:
        sender = StompSender(gateway.stomp_port, "m", padding=2000)
        sender.start()
        assert status_of(gateway) == EX_IOERR
        sender.join(20)
    finally:
        gateway.end()
    lines = gateway.calls.read_text().splitlines()
    (struck,) = [n for n, line in enumerate(lines) if "INJECTED" in line]
    thread = lines[struck].split()[0]
    begun = [line for line in lines[: struck + 1] if line.startswith(f"{thread} ")]
    refused = [re.search(rf"{call}\((\d+)", line) for line in begun]
    descriptor = [found[1] for found in refused if found is not None][-1]
    after = [line for line in lines[struck + 1 :] if f"{call}(" in line]
    assert [line for line in after if line.startswith(f"{thread} ")] == []
    assert [line for line in after if re.search(rf"{call}\({descriptor}\b", line)] == []
    # Only of the spare's own thread, and one: it may have been about to ask when the disk refused,
    # before the process could know.
    assert len(after) <= 1
    log = gateway.log.read_text()
    assert "store.failed" in log
    assert "store-failed" in log
    with ScratchGateway(folder, settings=SETTINGS) as again:
        taken = [body.rstrip(".") for body, _ in drain(again)]
    assert sender.confirmed.keys() <= set(taken)
    assert set(taken) <= sender.sent


def send(port: int, address: str, bodies: list[str]) -> None:
    """Send all, some at a time; fails with the gateway's last words when it closes."""
    with socket.create_connection((HOST, port), timeout=20) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        for at in range(0, len(bodies), 500):
            some = bodies[at : at + 500]
            frames = [
                f"SEND\ndestination:/queue/{address}\nreceipt:{body}\n\n{body}{'.' * 200}\0"
                for body in some
            ]
            peer.sendall("".join(frames).encode())
            came = b""
            while came.count(b"receipt-id:") < len(some):
                data = peer.recv(65536)
                assert data, came
                came += data


@pytest.mark.timeout(60)
def test_a_journal_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    bodies = [f"b{n}" for n in range(20)]
    with ScratchGateway(folder, settings=SETTINGS) as first:
        send(first.stomp_port, "kill.q", bodies)
    before = {path.name: path.read_bytes() for path in (first.data / "journal").iterdir()}
    broken = FaultyGateway(folder, UNREADABLE, settings=SETTINGS)
    broken.switch.write_text("/journal/0")
    with pytest.raises(GatewayFailedError, match="status 74"):
        broken.start()
    assert re.search(r"/journal/0+1\.journal: Input/output error", broken.log_text())
    after = {path.name: path.read_bytes() for path in (first.data / "journal").iterdir()}
    assert after == before
    with ScratchGateway(folder, settings=SETTINGS) as again:
        assert [body.rstrip(".") for body, _ in drain(again)] == bodies


@pytest.mark.timeout(60)
def test_pages_that_cannot_be_read_cost_their_messages_alone(tmp_path: Path) -> None:
    settings = ('address-settings."kill.q".max-size-messages=4',)
    with FaultyGateway(tmp_path / "gateway", UNREADABLE, settings=settings) as gateway:
        bodies = [f"b{n:02d}" for n in range(40)]
        send(gateway.stomp_port, "kill.q", bodies)
        send(gateway.stomp_port, "other.q", ["other"])
        gateway.switch.write_text(".page")
        with socket.create_connection((HOST, gateway.stomp_port), timeout=20) as peer:
            peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
            peer.sendall(b"SUBSCRIBE\nid:s\nack:auto\ndestination:/queue/kill.q\n\n\0")
            came = b""
            deadline = time.monotonic() + 20
            left = 40
            while left and time.monotonic() < deadline:
                peer.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    came += peer.recv(65536)
                _, queue = gateway.request("GET", "/api/v1/queues/kill.q")
                assert isinstance(queue, dict)
                left = int(queue["messageCount"])
            # The queue is empty when all was handed out, which may still be on its way here.
            with contextlib.suppress(TimeoutError):
                while data := peer.recv(65536):
                    came += data
        assert left == 0
        got = re.findall(rb"\n\n(b\d\d)\.{200}\0", came)
        assert [body.decode() for body in got] == bodies[: len(got)]
        assert 0 < len(got) < 40
        wait_log(gateway, '"event": "page.messages_lost"')
        gateway.switch.unlink()
        send(gateway.stomp_port, "kill.q", ["after"])
        assert [body.rstrip(".") for body, _ in drain(gateway)] == ["after"]


def place(gateway: ScratchGateway) -> dict[str, int]:
    status, shown = gateway.request("GET", "/api/v1/streams/tap")
    assert status == 200
    assert isinstance(shown, dict)
    return shown


def read(gateway: ScratchGateway, end: int) -> tuple[int, bytes]:
    """Return the status and the answer, as far as it comes."""
    ranges = [{"stream": "tap", "epoch": place(gateway)["epoch"], "start": 0, "end": end}]
    peer = http.client.HTTPConnection(HOST, gateway.management_port, timeout=20)
    body = json.dumps({"ranges": ranges, "columns": ["offset", "body"]}).encode()
    peer.request("POST", "/api/v1/streams/read", body, {"Content-Type": "application/json"})
    answer = peer.getresponse()
    try:
        return answer.status, answer.read()
    except http.client.IncompleteRead as cut:
        return 0, cut.partial
    finally:
        peer.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["ENOSPC pwrite /streams/", "EIO fsync /streams/"])
def test_a_stream_whose_files_take_nothing_stays_in_the_journal(tmp_path: Path, fault: str) -> None:
    settings = ('streams.tap.address="tapped"',)
    gateway = FaultyGateway(tmp_path / "gateway", REFUSING, settings=settings)
    gateway.start()
    gateway.switch.write_text(fault)
    bodies = [f"b{n}" for n in range(5000)]
    send(gateway.stomp_port, "tapped", bodies)
    wait_log(gateway, "stream.seal_failed")
    send(gateway.stomp_port, "tapped", ["after"])
    time.sleep(1.0)
    assert whole_log(gateway).count("stream.seal_failed") < 10  # told, not poured out
    gateway.kill()
    gateway.switch.unlink()
    with FaultyGateway(tmp_path / "gateway", UNREADABLE, settings=settings) as again:
        assert 5001 in place(again).values()
        status, whole = read(again, 5001)
        assert status == 200
        assert all(body.encode() in whole for body in [*bodies[::500], "after"])
        send(again.stomp_port, "tapped", ["more"])  # the tail is looked at again
        deadline = time.monotonic() + 20
        while not _has_block(again) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _has_block(again)
        again.switch.write_text("/streams/")
        status, part = read(again, 5001)
        assert status == 200
        assert b"Input/output error" in part  # in the words of the answer's last batch
        assert bodies[0].encode() not in part
        assert again.request("GET", "/readyz")[0] == 200
        again.switch.unlink()
        status, whole = read(again, 5001)
        assert all(body.encode() in whole for body in [*bodies[::500], "after"])


def _has_block(gateway: ScratchGateway) -> bool:
    """Whether a stream's files hold what the tail held."""
    index = list(gateway.data.glob("streams/*/*.index"))
    return any(path.stat().st_size > 32 for path in index)  # its header
