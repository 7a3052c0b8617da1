"""What a person meets first: the commands that the banner names, and errors that say what to do."""

from __future__ import annotations

import datetime as dt
import os
import pty
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from gateway.assembly.first_steps import first_steps
from gateway.cli.errors import CliError
from gateway.cli.http_client import Api
from gateway.cli.tls_trust import Trust
from gateway.config.endpoints import read_endpoint
from gateway.trial.scratch import free_ports, importing_environment
from gateway.trial.self_signed import self_signed
from tests.certificates import Authority

GATEWAY = [sys.executable, "-m", "gateway"]


def test_the_commands_of_the_banner_reach_a_gateway_that_speaks_tls_only(tmp_path: Path) -> None:
    self_signed(tmp_path)
    (port,) = free_ports(1)
    (tmp_path / "sluicegate.toml").write_text(
        f'[acceptors.secure]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n'
        '[acceptors.secure.tls]\ncertificate = "certificate.pem"\nkey = "key.pem"\n'
        "[management]\nenabled = false\n"
    )
    process = subprocess.Popen(
        [*GATEWAY, "run", "-c", "sluicegate.toml", "--data", "d"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=importing_environment(),
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("sluicegate receive"):
            line = process.stdout.readline()
            assert line, lines
            lines.append(line.strip())
        sent, received = (
            subprocess.run(
                GATEWAY + shlex.split(line)[1:],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=importing_environment(),
                timeout=60,
                check=False,
            )
            for line in lines[-2:]
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
    assert (sent.stdout, sent.stderr) == ("1 message sent to hello\n", "")
    assert received.stdout == "hi\n"


def steps(*listeners: tuple[str, str], login: bool = False) -> list[str]:
    """Return the commands that are told of, without what is the same in both."""
    found = [(read_endpoint(endpoint), address) for endpoint, address in listeners]
    return [line.strip() for line in first_steps(found, login=login)][1:]


def test_the_shortest_way_in_is_told() -> None:
    plain = ("tcp:5672:interface=127.0.0.1", "127.0.0.1:5672")
    secure = ("tls:certs:port=5671", "*:5671")
    assert steps(secure, plain) == ['sluicegate send hello "hi"', "sluicegate receive hello"]
    assert steps(plain, login=True)[1] == "sluicegate receive hello --user NAME"
    assert steps(secure)[1] == "sluicegate receive hello --url amqps://127.0.0.1:5671"
    other = ("tcp:5673:interface=127.0.0.1", "127.0.0.1:5673")
    assert steps(other)[1] == "sluicegate receive hello --url amqp://127.0.0.1:5673"


def test_who_speaks_no_amqp_is_told_no_command() -> None:
    assert first_steps([], login=False) == ["  Ctrl-C stops cleanly"]


@contextmanager
def peer(answer: bytes | None, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer one client with these bytes, then close; None: never, until it leaves."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                if context is not None:
                    context.wrap_socket(connection, server_side=True).close()
                    return
                connection.settimeout(20)
                connection.recv(65536)
                if answer is not None:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass  # a close with something unread would be a reset
            except OSError:
                pass  # the client has left, as it should

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)


@pytest.mark.parametrize(
    ("names", "until", "trusts", "words", "attempt"),
    [
        ((), None, False, "unable to get local issuer", "--cafile FILE with"),
        ((), dt.datetime(2020, 1, 2, tzinfo=dt.UTC), True, "expired", "a new certificate for"),
        (("other.example",), None, True, "IP address mismatch", "--url with a name"),
    ],
)
def test_what_helps_against_a_certificate_depends_on_what_is_wrong_with_it(
    names: tuple[str, ...],
    until: dt.datetime | None,
    trusts: bool,
    words: str,
    attempt: str,
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "a")
    pair = authority.issue(*names, **({"until": until} if until else {}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    known = authority if trusts else Authority(tmp_path / "another")
    with (
        peer(b"", context) as port,
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        pytest.raises(CliError) as raised,
    ):
        Trust(str(known.root)).wrap(plain, "127.0.0.1", f"amqps://127.0.0.1:{port}")
    assert (raised.value.code, raised.value.status) == ("bad-certificate", 69)
    assert words in raised.value.message
    assert (raised.value.attempt or "").startswith(attempt)


@pytest.mark.parametrize(
    ("scheme", "answer", "words", "attempt"),
    [
        ("http", b"", "closed the connection without an answer", "--url https://127.0.0.1:{port}"),
        ("http", b"AMQP\0\1\0\0", "what answers there is no HTTP", "beside `management`"),
        ("http", b"HTTP/1.1 400 No\r\n\r\nno", "answers 400 without JSON", "beside `management`"),
        ("http", None, "no answer within 2 s", "sluicegate run, or --url http://"),
        ("https", None, "nothing answers a TLS handshake", "--url http://127.0.0.1:{port}"),
    ],
)
def test_what_is_no_management_listener_is_told_with_what_to_try(
    scheme: str, answer: bytes | None, words: str, attempt: str
) -> None:
    with peer(answer) as port, pytest.raises(CliError) as raised:
        Api(f"{scheme}://127.0.0.1:{port}").post("/readyz", None, seconds=2.0)
    assert (raised.value.code, raised.value.status) == ("not-connected", 69)
    assert words in raised.value.message
    assert attempt.format(port=port) in (raised.value.attempt or "")


@pytest.mark.parametrize(
    ("arguments", "attempt"),
    [
        (("send", "a", "x", "--user", "ann"), "SLUICEGATE_PASSWORD in the environment, or"),
        (("connections", "ls", "--user", "ann"), "SLUICEGATE_PASSWORD in the environment, or"),
        (("user", "add", "ann", "--data", "d"), "--password-stdin"),
    ],
)
def test_a_password_is_not_asked_for_where_nobody_can_answer(
    arguments: tuple[str, ...], attempt: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*GATEWAY, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=importing_environment(),
        start_new_session=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 64
    assert done.stderr.startswith("error: no-password: ")
    assert f"  try: {attempt}" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_bench_that_reaches_nobody_is_69() -> None:
    (port,) = free_ports(1)
    done = subprocess.run(
        [*GATEWAY, "bench", "--target", f"127.0.0.1:{port}", "--rows", "amqp-in",
         "--scale", "0.001"],
        capture_output=True, text=True, env=importing_environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 69, done.stderr
    assert f"error: not-connected: amqp send at 127.0.0.1:{port}: " in done.stderr
    assert "  try: sluicegate run, or another --target" in done.stderr


def test_ids_of_connections_are_whole_on_a_terminal_of_80_columns() -> None:
    """`connections close` takes them."""
    client = "e3cf0639-9efc-4cff-870b-7567535135b3"
    row = (
        "secure-1234",
        "-",
        "127.0.0.1:44010",
        "AMQP 1.0 TLS",
        client,
        "12m",
        "3s",
        "0",
        "1",
        "7",
    )
    script = f"from gateway.cli.connections import _show; _show([{row!r}])"
    ours, its = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", script],
        stdout=its,
        env=importing_environment() | {"COLUMNS": "80", "TERM": "dumb"},
        timeout=60,
        check=True,
    )
    os.close(its)
    shown = "\n".join(line.rstrip() for line in os.read(ours, 65536).decode().splitlines())
    os.close(ours)
    assert "secure-1234" in shown
    assert "127.0.0.1:44010" in shown
    assert shown.split()[:3] == ["in", "id", "user"]
    assert shown.splitlines()[1].endswith("out")
    assert max(map(len, shown.splitlines())) <= 80
