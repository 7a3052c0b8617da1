"""What the interop tests share: the management API as a witness, users, ways to connect.

A gateway's `certificate` says whether its listeners speak TLS; what is here connects accordingly,
and trusts that certificate and no other.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import stomp
from proton import SSLDomain
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment

SECONDS = 10.0


def add_user(gateway: ScratchGateway, name: str, password: str, *options: str) -> None:
    """Put a user into the users file, by the command that people use; before the start."""
    gateway.data.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "gateway", "user", "add", name, "--password-stdin"]
    subprocess.run(
        [*command, *options, "--data", str(gateway.data)],
        input=password + "\n",
        text=True,
        check=True,
        capture_output=True,
        env=importing_environment(),
        timeout=30,
    )


def queue(gateway: ScratchGateway, name: str) -> dict[str, Any]:
    """Return the management API's view of a queue, which must exist."""
    status, facts = gateway.request("GET", f"/api/v1/queues/{name}")
    assert status == 200, f"{name}: {status} {facts}"
    assert isinstance(facts, dict)
    return facts


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def amqp_url(gateway: ScratchGateway) -> str:
    """Return where AMQP is spoken, by the scheme that says whether over TLS."""
    scheme = "amqp" if gateway.certificate is None else "amqps"
    return f"{scheme}://{HOST}:{gateway.port}"


def trust(gateway: ScratchGateway) -> SSLDomain | None:
    """Return what a Proton client of the gateway takes for true, or None over plain TCP."""
    if gateway.certificate is None:
        return None
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(gateway.certificate))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    return domain


def raw(gateway: ScratchGateway, port: int, timeout: float = SECONDS) -> socket.socket:
    """Return a connected socket, over TLS where the gateway speaks that."""
    plain = socket.create_connection((HOST, port), timeout=timeout)
    if gateway.certificate is None:
        return plain
    context = ssl.create_default_context(cafile=str(gateway.certificate))
    return context.wrap_socket(plain, server_hostname=HOST)


def over_tls(connection: stomp.Connection, gateway: ScratchGateway) -> None:
    """Have a connection of stomp.py speak TLS, where the gateway does.

    stomp.py takes the end of a TLS connection for silence and looks for more without a pause; here
    it is told.
    """
    if gateway.certificate is None:
        return
    where = [(HOST, gateway.stomp_port)]
    connection.set_ssl(for_hosts=where, ca_certs=str(gateway.certificate))
    transport = connection.transport
    receive = transport.receive

    def hear() -> bytes | None:
        data: bytes | None = receive()
        if data == b"":
            transport.blocking = True  # to a blocking transport nothing means the end
        return data

    transport.receive = hear


def blocking(gateway: ScratchGateway, **options: Any) -> BlockingConnection:
    """Return an open blocking connection of Proton."""
    options.setdefault("timeout", SECONDS)
    return BlockingConnection(amqp_url(gateway), ssl_domain=trust(gateway), **options)


@contextmanager
def connected(gateway: ScratchGateway, **options: Any) -> Iterator[BlockingConnection]:
    """A blocking Proton connection, closed at the end."""
    connection = blocking(gateway, **options)
    try:
        yield connection
    finally:
        connection.close()
