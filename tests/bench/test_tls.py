"""The bench over TLS: rows against brokers of a few lines, and against the real gateway."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.bench.command import bench
from gateway.bench.rows import ROWS, Row
from gateway.bench.run import BenchError, Target, measure
from gateway.bench.tls import TlsSocket
from gateway.trial.self_signed import self_signed
from tests.bench.brokers import broker


def row(key: str) -> Row:
    return replace(next(one for one in ROWS if one.key == key), count=600)


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket whose connections speak one version of TLS."""
    made = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = request.param
    context.load_cert_chain(made.certificate, made.key)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        context.wrap_socket(listening, server_side=True) as secure,
    ):
        yield secure


def test_what_is_written_arrives_and_what_arrives_is_read(server: socket.socket) -> None:
    size = 3_000_000

    def echo() -> None:
        client, _ = server.accept()
        with client:
            left = size
            while left:
                data = client.recv(1 << 16)
                client.sendall(data)
                left -= len(data)
            assert client.recv(10) == b""  # close_notify came

    echoing = threading.Thread(target=echo, daemon=True)
    echoing.start()
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    with closing(socket.create_connection(server.getsockname()[:2], timeout=20)) as plain:
        tls = TlsSocket(plain, "127.0.0.1")
        assert tls.version.startswith("TLSv1.")
        sent, came = 0, b""
        while len(came) < size:
            if sent < size:
                sent += tls.send(memoryview(body)[sent:])
            else:
                tls.flush()
            try:
                plain.settimeout(0.05 if sent < size else 5)
                came += tls.recv() or b""
            except TimeoutError:
                continue
        assert came == body
        plain.settimeout(5)
        tls.end()
        assert tls.recv() in (b"", None)
    echoing.join(10)
    assert not echoing.is_alive()


def test_a_peer_that_speaks_no_tls_is_named() -> None:
    with broker("stomp") as (port, _):
        target = Target(name="broker", host="127.0.0.1", ports={"stomp": port}, pids={}, tls=True)
        with pytest.raises(BenchError, match=r"stomp send at 127\.0\.0\.1:\d+: .*"):
            measure(row("stomp-in"), target)


@pytest.mark.slow
def test_every_kind_of_row_is_measured_over_tls_beside_plain_tcp() -> None:
    rows = "amqp-in,amqp-out,amqp-both,amqp-in-w1,amqp-10x100,stomp-in,stomp-out,stomp-both-durable"
    arguments = ["--tls", "--rows", rows, "--scale", "0.01", "--json"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["rows"]
    assert [one["key"] for one in found] == rows.split(",")
    for one in found:
        for side in (one["median"], one["peer"]["median"]):
            assert side["rate"] > 0
            assert side["cpu"] is not None
