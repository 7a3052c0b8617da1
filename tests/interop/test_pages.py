"""Pages as clients see them: Proton and STOMP clients, HTTP, over a real disk.

The gateway's reactor may read no page: the process would end, and a test says that it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.reactor import Copy, Selector

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.durability.faulty import ELSEWHERE, FaultyGateway
from tests.interop.support import connected, queue, raw, wait_until

pytestmark = pytest.mark.interop

COUNT = 700
SETTINGS = {
    "max-size-messages": "10",
    "page-size-bytes": '"16K"',
    "max-read-page-messages": "40",
    "dead-letter-address": '"DLQ"',
    "expiry-address": '"EXPIRED"',
    "auto-create-dead-letter-resources": "true",
    "auto-create-expiry-resources": "true",
}
SET = [f'address-settings."#".{key}={value}' for key, value in SETTINGS.items()]
#: The store reads where it is asked: on the reactor's thread.
AT_ONCE = """
from gateway.store.persistence import JournalStore
JournalStore.fetches = property(lambda self: None, lambda self, fetches: None)
"""


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with FaultyGateway(
        tmp_path_factory.mktemp("pages"), ELSEWHERE, settings=SET, tls=tls
    ) as running:
        yield running


def fill(gateway: ScratchGateway, address: str, last_kind: str = "a") -> None:
    with connected(gateway, timeout=20) as connection:
        link = connection.create_sender(address).link
        connection.wait(lambda: link.credit >= COUNT)
        sent = []
        for number in range(COUNT):
            kind = last_kind if number == COUNT - 1 else "a"
            sent.append(link.send(Message(body=number, durable=True, properties={"k": kind})))
        connection.wait(lambda: all(delivery.remote_state for delivery in sent))
    assert queue(gateway, address)["messageCount"] == COUNT


def test_a_backlog_on_pages_comes_in_order_over_one_credit(gateway: ScratchGateway) -> None:
    """The credit is given once: settling alone has to go on past max-read-page-messages."""
    fill(gateway, "order")
    with connected(gateway, timeout=20) as connection:
        receiver = connection.create_receiver("order", credit=COUNT)
        for number in range(COUNT):
            assert receiver.receive().body == number
            receiver.accept()
    wait_until(lambda: queue(gateway, "order")["messageCount"] == 0)


def test_p42_a_selector_finds_the_last_message_of_a_backlog(gateway: ScratchGateway) -> None:
    fill(gateway, "picky", last_kind="b")
    with connected(gateway, timeout=20) as connection:
        receiver = connection.create_receiver("picky", options=Selector("k = 'b'"))
        assert receiver.receive().body == COUNT - 1
        receiver.accept()
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.3)
    wait_until(lambda: queue(gateway, "picky")["messageCount"] == COUNT - 1)
    status, facts = gateway.request(
        "GET", "/api/v1/queues/picky/countMessages?filter=k%20%3D%20%27a%27"
    )
    assert (status, facts) == (200, {"messages": COUNT - 1})


def ask(gateway: ScratchGateway, method: str, path: str, body: object | None = None) -> object:
    status, found = gateway.request(method, f"/api/v1/queues/{path}", body)
    assert status == 200, found
    return found


def test_a_browser_sees_all_of_a_backlog_in_order_and_takes_nothing(
    gateway: ScratchGateway,
) -> None:
    fill(gateway, "seen")
    with connected(gateway, timeout=20) as connection:
        browser = connection.create_receiver("seen", credit=50, options=Copy())
        for number in range(COUNT):
            assert browser.receive().body == number
            browser.accept()
        with pytest.raises(Timeout):
            browser.receive(timeout=0.3)
    assert queue(gateway, "seen")["messageCount"] == COUNT


def test_a_browser_over_stomp_is_told_the_end_behind_the_last_message(
    gateway: ScratchGateway,
) -> None:
    fill(gateway, "shown")
    with raw(gateway, gateway.stomp_port, timeout=20) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        peer.sendall(b"SUBSCRIBE\nid:1\ndestination:shown\nbrowser:true\nack:auto\n\n\0")
        got = b""
        while b"browser:end" not in got:
            data = peer.recv(1 << 16)
            assert data, got[-200:]
            got += data
    frames = [frame for frame in got.split(b"\0") if frame.strip().startswith(b"MESSAGE")]
    assert len(frames) == COUNT + 1
    assert b"browser:end" in frames[-1]


@pytest.mark.parametrize("wanted", [5, 40, 2000])
def test_a_drain_is_answered_when_all_has_come(gateway: ScratchGateway, wanted: int) -> None:
    """40 are read back while none is settled; a drain that has more credit ends with them."""
    name = f"drained.{wanted}"
    fill(gateway, name)
    with connected(gateway, timeout=20) as connection:
        receiver = connection.create_receiver(name, credit=0)
        came = receiver.fetcher.incoming
        receiver.link.drain(wanted)
        connection.wait(lambda: receiver.link.credit == 0)
        assert len(came) == min(wanted, 40)
        assert [message.body for message, _ in came] == list(range(len(came)))


def test_operators_list_move_and_remove_what_lies_on_pages(gateway: ScratchGateway) -> None:
    fill(gateway, "many", last_kind="b")
    (last,) = ask(gateway, "GET", f"many/messages?limit=5&offset={COUNT - 1}")["items"]
    assert (last["state"], last["body"]) == ("paged", str(COUNT - 1))
    found = ask(gateway, "GET", "many/messages?filter=k%3D'b'")["items"]
    assert [item["sequence"] for item in found] == [last["sequence"]]
    assert ask(gateway, "GET", f"many/messages/{last['sequence']}")["body"] == last["body"]
    status, _ = gateway.request("DELETE", f"/api/v1/queues/many/messages/{last['sequence']}")
    assert status == 204
    assert ask(gateway, "GET", "many/countMessages?groupByProperty=k") == {
        "messages": COUNT - 1,
        "groups": {"a": COUNT - 1},
    }
    left = COUNT - 1
    for call, count in (("sendMessagesToDeadLetterAddress", 300), ("expireMessages", 50)):
        body = {"filter": "k = 'a'", "limit": count}
        assert ask(gateway, "POST", f"many/{call}", body) == {"messages": count}
        left -= count
    assert ask(gateway, "POST", "DLQ.many/retryMessages", {}) == {"messages": 300}
    left += 300
    gateway.request("POST", "/api/v1/queues", {"name": "more", "address": "more"})
    body = {"target": "more", "filter": "k = 'a'"}
    assert ask(gateway, "POST", "many/moveMessages", body) == {"messages": left}
    assert queue(gateway, "many")["messageCount"] == 0
    assert ask(gateway, "POST", "more/removeAllMessages", {}) == {"messages": left}


def test_a_reactor_that_reads_pages_itself_would_be_noticed(tmp_path: Path) -> None:
    gateway = FaultyGateway(tmp_path, ELSEWHERE, AT_ONCE, settings=SET)
    gateway.start()
    try:
        fill(gateway, "here")
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            gateway.request("GET", "/api/v1/queues/here/messages?offset=600")
        wait_until(lambda: not gateway.running())
        assert "page_pread" in gateway.log_text()
    finally:
        gateway.kill()
