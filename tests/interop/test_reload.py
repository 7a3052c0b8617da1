"""A reload as clients meet it: what they see of it on the connections that they have."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection, LinkDetached, SendException

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment
from tests.certificates import Authority
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer
from tests.interop.support import add_user, connected, wait_until
from tests.logs import wait_records

pytestmark = pytest.mark.interop

FULL = '[address-settings."#"]\nmax-size-messages = {}\naddress-full-policy = "{}"\n'
PAGED = (
    '[address-settings."#"]\nmax-size-bytes = "1MiB"\npage-size-bytes = "1MiB"\n'
    "page-limit-bytes = {}\n"
)


def count(live: Live, name: str) -> int:
    status, facts = live.ask("GET", f"/api/v1/queues/{name}")
    assert status == 200, facts
    found: int = facts["messageCount"]
    return found


def address(live: Live, name: str) -> Any:
    return live.ask("GET", f"/api/v1/addresses/{name}")[1]


class Waiting:
    """A call that waits for something in a thread; `done` tells whether it came to its end."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.failure: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.failure = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def end(self, seconds: float = 30) -> None:
        self._thread.join(seconds)
        assert self.done
        if self.failure is not None:
            raise self.failure


def test_p23_a_page_limit_that_a_reload_changes(gateway_process: Start, tmp_path: Path) -> None:
    live = Live(gateway_process, tmp_path, PAGED.format(1 << 20))
    body = b"x" * 90_000
    peer = StompPeer(live.gateway.stomp_port)
    with connected(live.gateway) as connection:
        sender = connection.create_sender("p")
        for _ in range(14):
            sender.send(Message(body=body, durable=True))
        peer.send("p", body, "first")
        assert peer.read()[1]["receipt-id"] == "first"
        assert address(live, "p")["paging"] is True
        live.reload(PAGED.format((1 << 20) - 1))
        with pytest.raises(SendException):
            sender.send(Message(body=body, durable=True))
        peer.send("p", body, "full")
        command, headers, text = peer.read()
        assert (command, headers["error-code"], headers["receipt-id"]) == (
            "ERROR",
            "page-full",
            "full",
        )
        assert b"page-limit-bytes 1048575" in text
        assert count(live, "p") == 15
        live.reload(PAGED.format(2 << 20))
        sender.send(Message(body=body, durable=True))
    again = StompPeer(live.gateway.stomp_port)
    again.send("p", body, "room")
    assert again.read()[1]["receipt-id"] == "room"
    assert count(live, "p") == 17


def test_p36_a_limit_of_nothing_is_refused_by_a_reload_too(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, FULL.format(5, "FAIL"))
    for policy in ("FAIL", "DROP", "BLOCK"):
        for key in ("max-size-messages", "max-size-bytes"):
            live.write(FULL.replace("max-size-messages", key).format(0, policy))
            status, answer = live.ask("POST", "/api/v1/config:reload")
            assert status == 422
            assert f"{live.file}:2: address-settings" in answer["message"]
            assert "full for ever" in answer["message"]
    assert live.ask("GET", "/api/v1/config")[1]["reloads"] == 0
    assert live.reload(FULL.format(0, "PAGE"))["changed"] == 2
    peer = StompPeer(live.gateway.stomp_port)
    peer.send("q", b"1", "r")
    assert peer.read()[0] == "RECEIPT"
    assert address(live, "q")["paging"] is True


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_senders_that_wait_go_on_when_a_reload_raises_the_limit(
    gateway_process: Start, tmp_path: Path, policy: str
) -> None:
    live = Live(gateway_process, tmp_path, FULL.format(3, policy))
    peer = StompPeer(live.gateway.stomp_port)
    for number in range(3):
        peer.send("q", b"x", str(number))
        assert peer.read()[0] == "RECEIPT"
    if policy == "BLOCK":
        for number in range(3):
            peer.send("q", b"waits", f"w{number}")
    with connected(live.gateway) as connection:
        waiting = Waiting(
            lambda: connection.create_sender("q").send(Message(body=b"x", durable=True))
        )
        time.sleep(0.5)
        assert not waiting.done
        live.reload(FULL.format(50, policy))
        waiting.end()
    if policy == "BLOCK":
        assert {peer.read()[1]["receipt-id"] for _ in range(3)} == {"w0", "w1", "w2"}
    assert count(live, "q") == (7 if policy == "BLOCK" else 4)
    # And below what is there: the next one waits, or is refused.
    live.reload(FULL.format(2, policy))
    assert "max-size-messages is 2" in str(address(live, "q"))
    if policy == "FAIL":
        peer.send("q", b"x", "refused")
        assert peer.read()[1]["error-code"] == "address-full"


def test_who_waits_for_room_is_refused_once_the_policy_is_to_fail(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, FULL.format(2, "BLOCK"))
    peer = StompPeer(live.gateway.stomp_port)
    for number in range(2):
        peer.send("q", b"x", str(number))
        assert peer.read()[0] == "RECEIPT"
    peer.send("q", b"waits", "w1")
    peer.send("q", b"waits", "w2")
    assert peer.silent(0.3) or peer.read()[0] == "RECEIPT"
    with connected(live.gateway) as connection:
        waiting = Waiting(
            lambda: connection.create_sender("q").send(Message(body=b"x", durable=True))
        )
        live.reload(FULL.format(2, "FAIL"))
        command, headers, text = peer.read()
        assert (command, headers["error-code"]) == ("ERROR", "address-full")
        assert b"max-size-messages is 2" in text
        # Who sends by credit has none, and waits for it under either policy.
        time.sleep(0.3)
        assert not waiting.done
        live.reload(FULL.format(9, "FAIL"))
        waiting.end()


def test_a_policy_that_changes_and_changes_back(gateway_process: Start, tmp_path: Path) -> None:
    live = Live(gateway_process, tmp_path, FULL.format(2, "PAGE"))
    with connected(live.gateway) as connection:
        sender = connection.create_sender("q")
        for number in range(5):
            sender.send(Message(body=str(number), durable=True))
        live.reload(FULL.format(2, "FAIL"))
        sender.send(Message(body="5", durable=True))  # page mode goes on until it is consumed
        receiver = connection.create_receiver("q", credit=10)
        taken = []
        for _ in range(6):
            taken.append(receiver.receive(timeout=10).body)
            receiver.accept()
        assert taken == [str(number) for number in range(6)]
        receiver.close()
        wait_until(lambda: not address(live, "q")["paging"])
        sender.send(Message(body="6", durable=True))
        sender.send(Message(body="7", durable=True))
        with pytest.raises(SendException):
            sender.send(Message(body="8", durable=True))  # on credit that it has
        live.reload(FULL.format(2, "PAGE"))
        connection.create_sender("q", name="b").send(Message(body="9", durable=True))
    assert count(live, "q") == 3
    assert address(live, "q")["paging"] is True


def test_limits_of_connections_are_for_new_ones(gateway_process: Start, tmp_path: Path) -> None:
    acceptors = (
        "[acceptors.all]\nmax-message-size = {0}\n"
        '[acceptors.stomp]\nmax-message-size = {0}\nprotocols = ["STOMP"]\n'
    )
    live = Live(gateway_process, tmp_path, acceptors.format(100_000))
    body = b"x" * 50_000
    peer = StompPeer(live.gateway.stomp_port)
    with connected(live.gateway) as old:
        sender = old.create_sender("q")
        sender.send(Message(body=body))
        answer = live.reload(acceptors.format(10_000))
        assert set(live.effects(answer).values()) == {"new-connections"}
        sender.send(Message(body=body))
        peer.send("q", body, "r")
        assert peer.read()[0] == "RECEIPT"
        with connected(live.gateway) as new:
            attached = new.create_sender("q")
            assert attached.link.remote_max_message_size == 10_000
            with pytest.raises((LinkDetached, SendException, ConnectionException)):
                attached.send(Message(body=body))
    late = StompPeer(live.gateway.stomp_port)
    late.send("q", body, "r")
    assert late.read()[1]["error-code"] == "too-large"
    assert count(live, "q") == 3


def test_a_disk_limit_that_is_full_by_a_reload_and_is_not_any_more(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, "min-disk-free = 1\n")
    with connected(live.gateway) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(body="1", durable=True))
        live.reload('min-disk-free = "1000TiB"\n')
        live.wait_log("disk.filled")
        peer = StompPeer(live.gateway.stomp_port)
        peer.send("q", b"2", "r")
        assert peer.read()[1]["error-code"] == "disk-full"
        waiting = Waiting(
            lambda: connection.create_sender("q", name="b").send(Message(body="3", durable=True))
        )
        live.reload("min-disk-free = 1\n")
        live.wait_log("disk.freed")
        waiting.end()
    assert count(live, "q") == 2


def test_what_the_file_declares_is_made_and_what_has_gone_stays(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, "[addresses.old]\nqueues = [{ name = 'old' }]\n")
    text = (
        "[addresses.orders]\nqueues = [{ name = 'orders', ring-size = 5 }]\n"
        "[addresses.audit]\nqueues = [{ name = 'audit' }]\n"
        "[diverts.copy]\naddress = 'orders'\nforwarding-address = 'audit'\n"
        "[streams.tap]\naddress = 'orders'\n"
    )
    effects = live.effects(live.reload(text))
    assert effects == {
        "addresses.old": "stays",
        "addresses.orders": "at-once",
        "addresses.audit": "at-once",
        "diverts.copy": "at-once",
        "streams.tap": "at-once",
    }
    peer = StompPeer(live.gateway.stomp_port)
    for number in range(7):
        peer.send("orders", b"x", str(number))
        assert peer.read()[0] == "RECEIPT"
    assert (count(live, "orders"), count(live, "audit"), count(live, "old")) == (5, 7, 0)
    assert live.ask("GET", "/api/v1/streams/tap")[0] == 200
    # One queue of another kind than the stored one refuses all of it.
    contrary = text.replace("name = 'orders'", "name = 'orders', durable = false")
    live.write("global-max-messages = 5\n" + contrary)
    status, answer = live.ask("POST", "/api/v1/config:reload")
    assert (status, len(answer["problems"])) == (422, 1)
    assert "queue orders is stored as ANYCAST" in answer["message"]
    peer.send("orders", b"x", "still")
    assert peer.read()[0] == "RECEIPT"
    # A divert that has gone works on until a restart, or until it is deleted.
    effects = live.effects(live.reload(text[: text.index("[diverts")]))
    assert effects == {"diverts.copy": "restart", "streams.tap": "stays"}
    assert live.effects(live.reload())["diverts.copy"] == "restart"
    assert live.ask("DELETE", "/api/v1/diverts/copy")[0] == 204
    assert live.reload()["items"] == []
    assert live.ask("GET", "/api/v1/streams/tap")[0] == 200


def test_what_reloads_change_loses_nothing_under_load(
    gateway_process: Start, tmp_path: Path
) -> None:
    texts = [
        FULL.format(200, "BLOCK"),
        FULL.format(100, "PAGE") + 'page-size-bytes = "64KiB"\nstrict-dispatch = true\n',
        FULL.format(-1, "PAGE") + "[logging]\nlevel = 'warning'\n",
        FULL.format(50, "BLOCK") + "[addresses.more]\nqueues = [{ name = 'more' }]\n",
    ]
    live = Live(gateway_process, tmp_path, texts[0])
    amount = 1500
    stop = threading.Event()

    def by_stomp() -> None:
        peer = StompPeer(live.gateway.stomp_port)
        for number in range(amount):
            peer.send("load", b"s%05d" % number, str(number))
            assert peer.read()[1]["receipt-id"] == str(number)

    def by_amqp() -> None:
        with connected(live.gateway, timeout=30) as connection:
            sender = connection.create_sender("load")
            for number in range(amount):
                sender.send(Message(body=b"a%05d" % number, durable=True, inferred=True))

    taken: list[bytes] = []

    def consume() -> None:
        with connected(live.gateway, timeout=30) as connection:
            receiver = connection.create_receiver("load", credit=50)
            while len(taken) < 2 * amount:
                message = receiver.receive(timeout=30)  # the body is a view into it
                taken.append(bytes(message.body))
                receiver.accept()

    def reload() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            live.reload(texts[number % len(texts)])
        assert number > 5

    reloading = Waiting(reload)
    senders = [Waiting(by_stomp), Waiting(by_amqp), Waiting(consume)]
    try:
        for one in senders:
            one.end(90)
    finally:
        stop.set()
    reloading.end()
    for kind in b"s", b"a":
        mine = [body for body in taken if body[:1] == kind]
        assert mine == [kind + b"%05d" % number for number in range(amount)]
    assert count(live, "load") == 0


# ---- users

ANN, BOB = ("ann", "one"), ("bob", "two")


def drop_user(live: Live, name: str) -> None:
    path = live.gateway.data / "users.toml"
    tables = path.read_text().split("[users.")
    path.write_text("[users.".join(t for t in tables if not t.startswith(name)))


def amqp(live: Live, login: tuple[str, str]) -> BlockingConnection:
    """Log in with a password, over TLS where the gateway has it."""
    certificate = live.gateway.certificate
    domain = None
    if certificate is not None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(certificate.with_name("root.pem")))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return BlockingConnection(
        f"amqp://{HOST}:{live.gateway.port}"
        if domain is None
        else f"amqps://localhost:{live.gateway.port}",
        timeout=10,
        ssl_domain=domain,
        user=login[0],
        password=login[1],
        allow_insecure_mechs=True,
    )


def stomp(live: Live, login: tuple[str, str] | None = None) -> StompPeer:
    certificate = live.gateway.certificate
    context = None
    if certificate is not None:
        context = ssl.create_default_context(cafile=str(certificate.with_name("root.pem")))
    return StompPeer(live.gateway.stomp_port, login, context)


@pytest.fixture(params=["plain", "tls"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    """A gateway with the users ann and bob."""
    pair = Authority(tmp_path / "ca").issue() if request.param == "tls" else None
    started: list[ScratchGateway] = []

    def start(config: Path) -> ScratchGateway:
        gateway = ScratchGateway(tmp_path / "guarded", config=config, tls=pair)
        for login in (ANN, BOB):
            add_user(gateway, *login)
        started.append(gateway)
        gateway.start()
        return gateway

    yield Live(start, tmp_path)
    assert [gateway.stop() for gateway in started] == [0]


def test_users_that_come_go_or_have_another_password(guarded: Live) -> None:
    live = guarded
    with pytest.raises(ConnectionException):
        amqp(live, ("eve", "three"))
    add_user(live.gateway, "eve", "three")
    wait_records(live.gateway, "config.changed", key="users.eve")
    amqp(live, ("eve", "three")).close()
    old, other = amqp(live, ANN), amqp(live, BOB)
    sender = old.create_sender("q")
    add_user(live.gateway, "ann", "new", "--replace")
    (told,) = wait_records(live.gateway, "config.changed", key="users.ann.password")
    assert (told["old"], told["new"]) == ("(not shown)", "(changed)")
    # The old password is worth nothing at once, also where it was remembered.
    assert live.ask("GET", "/api/v1/queues", login=ANN)[0] == 401
    with pytest.raises(ConnectionException):
        amqp(live, ANN)
    assert stomp(live, ANN).greeting[0] == "ERROR"
    assert stomp(live, ("ann", "new")).greeting[0] == "CONNECTED"
    amqp(live, ("ann", "new")).close()
    # Who came in with it has to come again; others stay.
    with pytest.raises(ConnectionException) as caught:
        sender.send(Message(body="1"))
    assert "another password now" in str(caught.value)
    other.create_sender("q").send(Message(body="still"))
    other.close()
    assert "argon2" not in live.gateway.log.read_text()


def test_connections_of_a_user_that_is_gone_are_closed_with_the_reason(guarded: Live) -> None:
    live = guarded
    gone = amqp(live, BOB)
    sender = gone.create_sender("q")
    sender.send(Message(body="1", durable=True))
    gone_stomp = stomp(live, BOB)
    stays = amqp(live, ANN)
    stays_stomp = stomp(live, ANN)
    drop_user(live, "bob")
    (told,) = live.wait_log("users.reloaded")
    assert (told["changes"], told["connections_closed"]) == (1, 2)
    command, headers, text = gone_stomp.read()
    assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    assert b"users of this gateway have changed" in text
    with pytest.raises(EOFError):  # and its end is an end, not a cut
        gone_stomp.read()
    with pytest.raises(ConnectionException) as caught:
        sender.send(Message(body="2", durable=True))
    assert "amqp:unauthorized-access" in str(caught.value)
    assert live.ask("GET", "/api/v1/queues", login=BOB)[0] == 401
    stays.create_sender("q").send(Message(body="3", durable=True))
    stays_stomp.send("q", b"4", "r")
    assert stays_stomp.read()[0] == "RECEIPT"
    stays.close()


def test_the_last_user_is_not_taken_away_by_a_reload(guarded: Live) -> None:
    live = guarded
    for path in (live.gateway.data / "users.toml",):
        kept = path.read_text()
        path.write_text("")
        status, answer = live.ask("POST", "/api/v1/config:reload", login=ANN)
        assert (status, answer["code"]) == (422, "bad-configuration")
        assert "has no users any more" in answer["message"]
        path.unlink()
        assert live.ask("POST", "/api/v1/config:reload", login=ANN)[0] == 422
        assert live.ask("GET", "/api/v1/queues")[0] == 401
        path.write_text("[users.x]\npassword = 'plain'\n")
        assert "argon2 hash" in live.ask("POST", "/api/v1/config:reload", login=ANN)[1]["message"]
        path.write_text(kept)
    assert live.reload(login=ANN)["items"] == []


def test_a_reload_without_a_login_is_refused_where_there_are_users(guarded: Live) -> None:
    live = guarded
    assert live.ask("POST", "/api/v1/config:reload")[0] == 401
    assert live.ask("GET", "/api/v1/config")[0] == 401
    login = ("--user", "ann", "--password-stdin")
    done = subprocess.run(
        [*(sys.executable, "-m", "gateway", "reload"), "--url", live.gateway.url, *login],
        input="one\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=importing_environment(),
    )
    assert (done.returncode, done.stdout) == (0, "nothing is different\n")


def test_the_first_user_closes_the_gate_for_those_that_are_in(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path)
    anybody = amqp(live, ("ann", "whatever"))
    silent = StompPeer(live.gateway.stomp_port)
    add_user(live.gateway, *ANN)
    (told,) = live.wait_log("users.reloaded")
    assert told["connections_closed"] == 2
    assert silent.read()[1]["error-code"] == "not-authorized"
    with pytest.raises(ConnectionException):
        anybody.create_sender("q")
    assert live.ask("GET", "/api/v1/queues")[0] == 401
    assert StompPeer(live.gateway.stomp_port).greeting[0] == "ERROR"
    amqp(live, ANN).close()
