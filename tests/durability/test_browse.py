"""A browser on a disk that stands: it shows what was confirmed before, and nothing else.

The real process, whose syncs hang while a file is there; over AMQP, STOMP, HTTP and the command.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.reactor import Copy
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, importing_environment
from tests.durability.faulty import HANG, FaultyGateway
from tests.durability.test_hang import send as stomp_send
from tests.interop.support import SECONDS, connected, wait_until

pytestmark = pytest.mark.timeout(90)

CONFIRMED = [f"confirmed-{number}" for number in range(5)]


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[FaultyGateway]:
    """A gateway with five confirmed messages on `kill.q` whose disk stands with two more."""
    gateway = FaultyGateway(tmp_path / "gateway", HANG)
    with gateway:
        with connected(gateway) as connection:
            sender = connection.create_sender("kill.q")
            for body in CONFIRMED:
                sender.send(Message(body=body, durable=True))
        gateway.switch.touch()
        late = [stomp_send(gateway.stomp_port, "late-1")]
        # The first one is in the writer's hands, the second waits behind it.
        wait_until(lambda: gateway.request("GET", "/api/v1/queues/kill.q")[1]["messageCount"] == 6)
        late.append(stomp_send(gateway.stomp_port, "late-2"))
        wait_until(lambda: gateway.request("GET", "/api/v1/queues/kill.q")[1]["messageCount"] == 7)
        try:
            yield gateway
        finally:
            gateway.switch.unlink(missing_ok=True)
            for peer in late:
                peer.close()


def amqp_browse(connection: BlockingConnection, count: int, wait: float = SECONDS) -> list[str]:
    """Browse until so many came, or nothing does for a while."""
    receiver = connection.create_receiver("kill.q", credit=100, options=Copy())
    bodies: list[str] = []
    try:
        while len(bodies) < count:
            body = receiver.receive(timeout=wait).body
            bodies.append(body if isinstance(body, str) else bytes(body).decode())
    except Timeout:
        pass
    finally:
        receiver.close()
    return bodies


def test_over_amqp(standing: FaultyGateway) -> None:
    with connected(standing) as connection:
        assert amqp_browse(connection, 5) == CONFIRMED
        assert amqp_browse(connection, 6, wait=0.5) == CONFIRMED
        standing.switch.unlink()
        assert amqp_browse(connection, 7) == [*CONFIRMED, "late-1", "late-2"]


def test_an_amqp_browser_that_stays_sees_the_rest_when_the_disk_moves(
    standing: FaultyGateway,
) -> None:
    with connected(standing) as connection:
        receiver = connection.create_receiver("kill.q", credit=100, options=Copy())
        assert [receiver.receive(timeout=SECONDS).body for _ in CONFIRMED] == CONFIRMED
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.5)
        standing.switch.unlink()
        assert [receiver.receive(timeout=SECONDS).body for _ in range(2)] == ["late-1", "late-2"]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_over_stomp(standing: FaultyGateway, version: str) -> None:
    with socket.create_connection((HOST, standing.stomp_port), timeout=SECONDS) as peer:
        peer.sendall(f"CONNECT\naccept-version:{version}\nhost:h\n\n\0".encode())
        peer.sendall(b"SUBSCRIBE\nid:1\ndestination:kill.q\nbrowser:true\nack:auto\n\n\0")
        came = b""
        while came.count(b"confirmed-") < 5:
            came += peer.recv(65536)
        assert b"late" not in came
        standing.switch.unlink()
        while b"browser:end" not in came:
            came += peer.recv(65536)
        assert came.count(b"late-") == 2


def test_over_http(standing: FaultyGateway) -> None:
    status, page = standing.request("GET", "/api/v1/queues/kill.q/messages?limit=5")
    assert (status, [item["body"] for item in page["items"]]) == (200, CONFIRMED)
    status, page = standing.request("GET", "/api/v1/queues/kill.q/messages")
    assert (status, [item["body"] for item in page["items"]]) == (200, CONFIRMED)
    status, page = standing.request("GET", "/api/v1/queues/kill.q/messages?filter=1%3D1")
    assert (status, [item["body"] for item in page["items"]]) == (200, CONFIRMED)
    sequence = page["items"][0]["sequence"]
    status, one = standing.request("GET", f"/api/v1/queues/kill.q/messages/{sequence}")
    assert (status, one["body"]) == (200, CONFIRMED[0])
    standing.switch.unlink()
    wait_until(
        lambda: len(standing.request("GET", "/api/v1/queues/kill.q/messages")[1]["items"]) == 7
    )


def test_by_the_command(standing: FaultyGateway) -> None:
    url = standing.url
    ended = subprocess.run(
        [sys.executable, "-m", "gateway", "browse", "kill.q", "--url", url],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert [line.rpartition(" ")[2] for line in ended.stdout.splitlines()] == CONFIRMED
