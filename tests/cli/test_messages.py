"""`sluicegate send`, `receive` and `browse` against the real gateway, as a plain install has them.

The commands run in processes of their own that cannot import Proton, stomp.py or pyspark.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.message_form import as_object, as_text, encoded
from gateway.model.amqp_types import Described, Symbol, Timestamp, UByte, ULong, encode
from gateway.trial.scratch import ScratchGateway, free_ports, importing_environment
from gateway.trial.self_signed import self_signed

PLAIN_INSTALL = (
    "import sys\n"
    "for extra in ('proton', 'stomp', 'pyspark'): sys.modules[extra] = None\n"
    "from gateway.cli.main import main\n"
    "main()\n"
)


#: Ctrl-C comes when the last of three outcomes has been taken to be written, and is not yet.
INTERRUPTED = """
import os, signal
from gateway.cli.amqp_link import ClientLink
settle, take = ClientLink.settle, ClientLink.data_to_send
settled = []
def settles(link, *how):
    settled.append(how)
    settle(link, *how)
def takes(link):
    out = take(link)
    if len(settled) == 3 and out:
        settled.append("told")
        os.kill(os.getpid(), signal.SIGINT)
    return out
ClientLink.settle, ClientLink.data_to_send = settles, takes
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PLAIN_INSTALL, *arguments]


def run(
    *arguments: str, text: str = "", status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments),
        input=text,
        capture_output=True,
        text=True,
        env=importing_environment() | environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


class Served(ScratchGateway):
    """A gateway that listens with TLS, too."""

    def __init__(self, folder: Path, *settings: str) -> None:
        made = self_signed(folder)
        self.cafile = str(made.certificate)
        (self.tls_port,) = free_ports(1)
        endpoint = (
            f"ssl:{self.tls_port}:interface=127.0.0.1"
            f":privateKey={made.key}:certKey={made.certificate}"
        )
        super().__init__(folder, settings=[f'acceptors.tls.endpoint="{endpoint}"', *settings])

    def reached(self, scheme: str) -> list[str]:
        """Return the options that reach it."""
        if scheme == "amqp":
            return ["--url", f"amqp://127.0.0.1:{self.port}"]
        return ["--url", f"amqps://127.0.0.1:{self.tls_port}", "--cafile", self.cafile]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    full = 'address-settings.full={max-size-messages = 2, address-full-policy = "FAIL"}'
    with Served(tmp_path_factory.mktemp("served"), full) as served:
        yield served


@pytest.fixture(params=["amqp", "amqps"])
def reached(gateway: Served, request: pytest.FixtureRequest) -> list[str]:
    return gateway.reached(request.param)


def test_the_hint_at_the_start_works_without_extras(gateway: Served, reached: list[str]) -> None:
    sent = run("send", "hello", "hi", *reached)
    assert (sent.stdout, sent.stderr) == ("1 message sent to hello\n", "")
    browsed = run("browse", "hello", "--url", gateway.url)
    assert "hi" in browsed.stdout
    got = run("receive", "hello", "--timeout", "0.3", *reached)
    assert (got.stdout, got.stderr) == ("hi\n", "1 message received from hello\n")
    again = run("receive", "hello", "--timeout", "0.3", *reached)
    assert again.stdout == ""


def test_what_is_said_of_a_message_arrives(reached: list[str]) -> None:
    options = ("-H", "color=green", "--priority", "7", "--ttl", "60000", "--non-durable")
    run("send", "facts", "{}", *options, "--content-type", "application/json", *reached)
    got = run("receive", "facts", "--limit", "1", "--json", *reached)
    assert json.loads(got.stdout) == {
        "id": None,
        "subject": None,
        "contentType": "application/json",
        "correlationId": None,
        "replyTo": None,
        "durable": False,
        "priority": 7,
        "deliveryCount": 0,
        "properties": {"color": "green"},
        "body": "{}",
    }


def test_more_than_any_window_goes_in_order(reached: list[str]) -> None:
    sent = run("send", "many", "n{{n}}", "--count", "9000", "--non-durable", "--json", *reached)
    assert json.loads(sent.stdout) == {"address": "many", "confirmed": 9000}
    first = run("receive", "many", "--limit", "2500", *reached)
    rest = run("receive", "many", "--timeout", "0.5", *reached)
    came = (first.stdout + rest.stdout).splitlines()
    assert len(first.stdout.splitlines()) == 2500
    assert came == [f"n{n}" for n in range(1, 9001)]


def test_a_body_of_many_frames_goes_both_ways(reached: list[str]) -> None:
    body = "0123456789abcdef" * (3 << 16)
    run("send", "large", "-", *reached, text=body)
    assert run("receive", "large", "--limit", "1", *reached).stdout == body + "\n"


def test_a_refusal_is_told_in_the_gateways_words(reached: list[str]) -> None:
    refused = run("send", "full", "x", "--count", "3", *reached, status=1)
    assert refused.stderr.startswith("error: address-full: ")
    assert run("receive", "full", "--timeout", "0.3", *reached).stdout == "x\nx\n"
    bad = run("send", "$x", "x", *reached, status=1)
    assert bad.stderr.startswith("error: ")
    assert "Traceback" not in bad.stderr


def test_rate_holds_messages_apart_and_loses_none(reached: list[str]) -> None:
    run("send", "slowly", "n{{n}}", "--count", "5", "--rate", "50", *reached)
    assert run("receive", "slowly", "--limit", "5", *reached).stdout.split() == [
        f"n{n}" for n in range(1, 6)
    ]


def test_a_stopped_receiver_has_accepted_all_that_it_printed(
    gateway: Served, reached: list[str]
) -> None:
    run("send", "followed", "n{{n}}", "--count", "3", *reached)
    following = subprocess.Popen(
        command("receive", "followed", "--follow", *reached),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    assert following.stdout is not None
    assert [following.stdout.readline() for _ in range(3)] == ["n1\n", "n2\n", "n3\n"]
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=20)
    assert following.returncode == 130
    assert "Traceback" not in errors
    assert run("receive", "followed", "--timeout", "0.3", *reached).stdout == ""


def test_an_outcome_that_is_being_written_when_ctrl_c_comes_is_not_lost(
    reached: list[str],
) -> None:
    run("send", "halved", "n{{n}}", "--count", "3", *reached)
    stopped = subprocess.run(
        [sys.executable, "-c", INTERRUPTED + PLAIN_INSTALL, "receive", "halved", *reached],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )
    assert (stopped.returncode, stopped.stdout) == (130, "n1\nn2\nn3\n"), stopped.stderr
    assert run("receive", "halved", "--timeout", "0.3", *reached).stdout == ""


def test_a_reader_who_leaves_gets_no_more_and_the_rest_stays(reached: list[str]) -> None:
    run("send", "piped", "n{{n}}", "--count", "3000", "--non-durable", *reached)
    receiving = subprocess.Popen(
        command("receive", "piped", "--timeout", "2", *reached),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    assert receiving.stdout is not None
    assert receiving.stderr is not None
    assert receiving.stdout.readline() == "n1\n"
    receiving.stdout.close()
    errors = receiving.stderr.read()
    receiving.stderr.close()
    # As the shell says of a command that SIGPIPE has ended.
    assert (receiving.wait(20), errors) == (141, "")
    rest = run("receive", "piped", "--timeout", "0.5", *reached).stdout.split()
    assert rest
    assert rest == [f"n{n}" for n in range(3001 - len(rest), 3001)]


def test_a_certificate_that_is_not_trusted(gateway: Served) -> None:
    url = gateway.reached("amqps")[:2]
    refused = run("send", "a", "x", *url, status=69)
    assert refused.stderr.startswith("error: bad-certificate: ")
    assert "try: --cafile" in refused.stderr
    assert run("send", "trusting", "x", *url, "--insecure").stdout == "1 message sent to trusting\n"
    missing = run("send", "a", "x", *url, "--cafile", "/nowhere", status=64)
    assert missing.stderr.startswith("error: bad-cafile: --cafile /nowhere cannot be read: No such")
    assert "try: --cafile" in missing.stderr
    key = str(Path(gateway.cafile).with_name("key.pem"))
    keys = run("send", "a", "x", *url, "--cafile", key, status=64)
    assert "holds no certificate in PEM" in keys.stderr


def test_the_wrong_scheme_is_named(gateway: Served) -> None:
    plain = run("send", "a", "x", "--url", f"amqps://127.0.0.1:{gateway.port}", status=69)
    assert "there is no TLS" in plain.stderr
    assert f"try: --url amqp://127.0.0.1:{gateway.port}" in plain.stderr
    secure = run("send", "a", "x", "--url", f"amqp://127.0.0.1:{gateway.tls_port}", status=69)
    assert secure.stderr.startswith("error: not-connected: ")
    assert f"try: --url amqps://127.0.0.1:{gateway.tls_port}" in secure.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login(tmp_path: Path, mechanism: str) -> None:
    more = [] if mechanism == "PLAIN" else ["--scram"]
    data = str(tmp_path / "data")
    run("user", "add", "ann", "--password-stdin", "--data", data, *more, text="pä ss\n")
    offered = f'acceptors.tls.sasl-mechanisms=["{mechanism}"]'
    with Served(tmp_path, offered) as gateway:
        url = gateway.reached("amqps")
        ann = ("--user", "ann", *url)
        run("send", "a", "x", *ann, SLUICEGATE_PASSWORD="pä ss")
        got = run("receive", "a", "--limit", "1", "--password-stdin", *ann, text="pä ss\n")
        assert got.stdout == "x\n"
        wrong = run("send", "a", "x", *ann, SLUICEGATE_PASSWORD="wrong", status=1)
        assert wrong.stderr.startswith("error: not-authorized: ")
        assert "refused user ann" in wrong.stderr
        nobody = run("send", "a", "x", *url, status=1)
        assert "refused a connection without a user" in nobody.stderr
        assert "try: --user NAME" in nobody.stderr
        named = ["--url", url[1].replace("//", "//ann@"), *url[2:]]
        run("send", "a", "x", *named, SLUICEGATE_PASSWORD="pä ss")


def test_a_permission_that_is_missing_is_told_as_one(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    for name in ("ann", "boss"):
        role = "admin" if name == "boss" else "shops"
        run("user", "add", name, "--role", role, "--password-stdin", "--data", data, text="tea\n")
    with Served(tmp_path, 'security-settings."#".consume=["shops"]') as gateway:
        ann = ("--user", "ann", *gateway.reached("amqps"))
        told = run("send", "a", "x", *ann, SLUICEGATE_PASSWORD="tea", status=1).stderr
    assert told.startswith("error: not-authorized: User 'ann' may not send to 'a'")
    assert "try: --user NAME of a user with a role that may" in told
    assert "password" not in told


def answering(data: bytes) -> tuple[int, threading.Thread]:
    """Serve one connection with fixed bytes; returns the port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as peer:
            peer.recv(100)
            peer.sendall(data)
            if data:
                peer.settimeout(20)
                peer.recv(100)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listening.getsockname()[1], thread


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"AMQP\x00\x00\x09\x01", "it wants AMQP 0-9-1, not AMQP 1.0"),
        (b"AMQP\x03\x01\x00\x00\x00\x00\x00\x01\x02\x01\x00\x00", "a frame of 1 bytes"),
        (b"AMQP\x03\x01\x00\x00\x00\x00\x00\x0c\x02\x01\x00\x00abcd", "cannot be read"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no AMQP 1.0"),
        (b"", "the connection was cut"),
    ],
)
def test_what_is_no_amqp_broker_is_an_error_that_says_so(data: bytes, words: str) -> None:
    port, thread = answering(data)
    done = run("send", "a", "x", "--url", f"amqp://127.0.0.1:{port}", status=69)
    thread.join(5)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_that_stops_is_told(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served:
        following = subprocess.Popen(
            command("receive", "q", "--follow", *served.reached("amqp")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=importing_environment(),
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and served.request("GET", "/api/v1/queues/q")[0] != 200:
            time.sleep(0.05)
    _, errors = following.communicate(timeout=20)
    assert following.returncode in (1, 69)
    assert errors.startswith("error: ")
    assert "Traceback" not in errors


# ---- what is printed of a message


def message(*sections: tuple[int, object]) -> bytes:
    return b"".join(encode(Described(ULong(code), value)) for code, value in sections)


def test_bodies_of_every_kind_are_printed() -> None:
    assert as_text(message((0x75, b"ab"), (0x75, b"\xff"))) == "ab\\xff"
    assert as_text(message((0x76, [1, "b"]))) == '[1,"b"]'
    assert as_text(message((0x77, {"k": True}))) == '{"k":true}'
    assert as_text(message((0x77, Timestamp(0)))) == "1970-01-01T00:00:00.000Z"
    assert as_text(message()) == ""
    assert as_text(b"\x00\x53\x75") == "\0Su"
    assert as_object(message((0x75, b"\xff")))["bodyEncoding"] == "base64"
    assert as_object(b"\x00\x53\x75")["unreadable"]
    assert as_object(message((0x73, [ULong(5)]), (0x77, None)))["id"] == "ID:AMQP_ULONG:5"
    plain = encoded(
        "b", durable=True, priority=4, ttl_ms=0, content_type="text/plain", properties={}
    )
    assert plain == message(
        (0x70, [True, UByte(4), None]),
        (0x73, [None] * 6 + [Symbol("text/plain")]),
        (0x77, "b"),
    )


def test_browse_tells_how_many_there_are_and_not_only_how_many_it_showed(
    gateway: Served,
) -> None:
    run("send", "many", "n {{n}}", "--count", "5", "-H", "kind=a", *gateway.reached("amqp"))
    run("send", "many", "other", "-H", "kind=b", *gateway.reached("amqp"))
    cases = {
        (): "6 messages waiting in many\n",
        ("--limit", "2"): "2 of 6 messages waiting in many\n",
        ("--offset", "4"): "2 of 6 messages waiting in many\n",
        ("--limit", "2", "--filter", "kind='a'"): "2 of 5 messages waiting in many that match\n",
        ("--filter", "kind='b'"): "1 message waiting in many that matches\n",
    }
    for options, told in cases.items():
        assert run("browse", "many", *options, "--url", gateway.url).stderr == told
    status, page = gateway.request("GET", "/api/v1/queues/many/messages?limit=4")
    assert (status, page["total"], len(page["items"])) == (200, 6, 4)
    status, rest = gateway.request(
        "GET", f"/api/v1/queues/many/messages?limit=4&cursor={page['cursor']}"
    )
    assert (rest["total"], rest["cursor"]) == (6, None)
    assert [one["body"] for one in rest["items"]] == ["n 5", "other"]


def test_connections_are_listed_and_closed(gateway: Served) -> None:
    held = subprocess.Popen(
        command("receive", "waited", "--follow", *gateway.reached("amqp")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=importing_environment(),
    )  # fmt: skip
    listing = ("connections", "ls", "--address", "waited", "--url", gateway.url)
    deadline = time.monotonic() + 20
    while not (shown := run(*listing, "--json").stdout):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    one = json.loads(shown)
    table = run(*listing)
    assert table.stdout.splitlines()[0].split()[:4] == ["id", "user", "remote", "protocol"]
    assert one["id"] in table.stdout
    assert "AMQP 1.0" in table.stdout
    assert table.stderr == "1 connection\n"
    assert one["id"] in run("connections", "--url", gateway.url).stdout
    closed = run("connections", "close", one["id"], "--reason", "go home", "--url", gateway.url)
    assert closed.stdout == f"{one['id']} closed\n"
    told = held.communicate(timeout=20)[1]
    assert "closed by an operator: go home" in told
    again = run("connections", "close", one["id"], "--url", gateway.url, status=1)
    assert "not-found" in again.stderr
