"""Many tokens that end in the same second: `python -m tests.bench.token_ends [--count 10000]`.

Each connection comes in by a token of its own and reads one queue, which a sender fills. All tokens
end at one date. Told: when the last message came to any of them, when the last one was told and
when the last one was closed, behind that date; and the slowest answer that another connection got
meanwhile. Needs twice as many descriptors as connections, in both processes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import resource
import select
import socket
import tempfile
import threading
import time
from pathlib import Path

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.tokens import minting
from tests.tokens.live import LiveIssuer, believing
from tests.tokens.minting import ec, jwk

#: Connections that log in at a time; more strangers are not let in.
AT_ONCE = 40
#: Ones that are told, and then closed.
ROUNDS = 100


class Readers:
    """The connections whose tokens end."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.messages = 0
        self.last_message = self.last_told = self.last_closed = 0.0
        self.told: set[int] = set()

    def open(self, port: int, tokens: list[str]) -> None:
        """Log all of them in, a few at a time."""
        for start in range(0, len(tokens), AT_ONCE):
            some = []
            for token in tokens[start : start + AT_ONCE]:
                skt = socket.create_connection((HOST, port), timeout=30)
                skt.sendall(f"CONNECT\naccept-version:1.2\nhost:x\npasscode:{token}\n\n\0".encode())
                some.append(skt)
            for skt in some:
                assert skt.recv(4096).startswith(b"CONNECTED"), "not let in"
                skt.sendall(b"SUBSCRIBE\ndestination:work\nid:1\nack:auto\n\n\0")
                skt.setblocking(False)
                self.sockets[skt.fileno()] = skt
                self.poll.register(skt.fileno(), select.EPOLLIN)

    def read_until(self, deadline: float) -> None:
        """Read what comes until all are closed, or the date has come."""
        while self.sockets and time.time() < deadline:
            for number, _ in self.poll.poll(0.05):
                self._read(number)

    def _read(self, number: int) -> None:
        try:
            data = self.sockets[number].recv(65536)
        except ConnectionResetError:
            data = b""
        now = time.time()
        if b"MESSAGE\n" in data:
            self.messages += data.count(b"MESSAGE\n")
            self.last_message = now
        if b"token-expired" in data:
            self.told.add(number)
            self.last_told = now
        if not data:
            self.poll.unregister(number)
            self.sockets.pop(number).close()
            self.last_closed = now


class Probe(threading.Thread):
    """Another connection: sends, with receipts, and remembers the slowest answer."""

    def __init__(self, gateway: ScratchGateway, token: str) -> None:
        super().__init__(daemon=True)
        self.peer = StompPeer(gateway.stomp_port, ("", token))
        self.waits: list[tuple[float, float]] = []
        self.over = False

    def run(self) -> None:
        number = 0
        while not self.over:
            began = time.time()
            for _ in range(4):
                number += 1
                self.peer.send("work", b"m", f"r{number}")
            for _ in range(4):
                self.peer.read()
            self.waits.append((began, time.time() - began))
            time.sleep(0.002)


def turns(gateway: ScratchGateway, token: str) -> dict[str, int]:
    """Return how many turns of the reactor were late by how much, counted up to each bound."""
    said = {"Authorization": f"Bearer {token}"}
    conn = http.client.HTTPConnection(HOST, gateway.management_port, timeout=30)
    conn.request("GET", "/metrics", headers=said)
    text = conn.getresponse().read().decode()
    conn.close()
    found = re.findall(r'reactor_lag_seconds_bucket{le="([^"]+)"} (\d+)', text)
    return {bound: int(count) for bound, count in found}


def measure(count: int, live: float) -> dict[str, object]:
    """Return what was measured, in ms; `live` is for how many seconds all of them are in."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many = [f"user-max-{kind}=-1" for kind in ("queues", "consumers", "addresses", "links")]
    many += [f"global-max-{kind}=-1" for kind in ("consumers", "links")]
    many += [f"acceptors.stomp.connections-allowed={count + 100}"]
    many += ["acceptors.stomp.connection-ttl=-1"]
    with LiveIssuer() as issuer, tempfile.TemporaryDirectory() as folder:
        issuer.key = ec("bench")
        issuer.keys = [jwk(issuer.key)]
        with believing(Path(folder), issuer, *many) as gateway:
            ends = int(time.time() + live + count / 400)
            tokens = [
                minting.token(
                    issuer.key, "ES256", iss=issuer.url, sub=f"u{n}", exp=ends, nbf=None, iat=None
                )
                for n in range(count)
            ]
            began = time.time()
            readers = Readers()
            readers.open(gateway.stomp_port, tokens)
            logins = (time.time() - began) / count
            late = minting.token(
                issuer.key, "ES256", iss=issuer.url, sub="probe", exp=ends + 600, nbf=None, iat=None
            )
            probe = Probe(gateway, late)
            probe.start()
            left = ends - time.time()
            assert left > 1, f"all were in {-left:.1f} s too late; raise --live"
            readers.read_until(ends + 30.0)
            probe.over = True
            probe.join()
            lag = turns(gateway, late)
    during = [wait for began, wait in probe.waits if ends <= began <= readers.last_closed]
    before = [wait for began, wait in probe.waits if began < ends - 0.5]
    return {
        "connections": count,
        "told": len(readers.told),
        "open_at_the_end": len(readers.sockets),
        "messages_before": readers.messages,
        "login_ms_each": round(logins * 1000, 3),
        "last_message_ms": round((readers.last_message - ends) * 1000),
        "last_told_ms": round((readers.last_told - ends) * 1000),
        "last_closed_ms": round((readers.last_closed - ends) * 1000),
        "slowest_answer_before_ms": round(max(before, default=0.0) * 1000, 1),
        "slowest_answer_during_ms": round(max(during, default=0.0) * 1000, 1),
        "turns_by_seconds": lag,
        "soft_limit_was": soft,
    }


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--live", type=float, default=10.0)
    given = parser.parse_args()
    print(json.dumps(measure(given.count, given.live)))


if __name__ == "__main__":
    main()
