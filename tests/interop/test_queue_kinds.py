"""Last-value and non-destructive queues, and message groups, as Proton and stomp.py see them.

Rows A16 to A21, R14 and C11.
"""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_crossing import stomped

pytestmark = pytest.mark.interop

KEY = "_AMQ_LVQ_NAME"


def make(gateway: ScratchGateway, name: str, **attributes: object) -> None:
    status, shown = gateway.request("POST", "/api/v1/queues", {"name": name, **attributes})
    assert status == 201, shown


def priced(key: str, body: str) -> Message:
    return Message(body=body, durable=True, properties={KEY: key})


def text(body: Any) -> str:
    return body if isinstance(body, str) else bytes(body).decode()


def take(receiver: Any, count: int) -> list[Any]:
    """Receive and accept so many; returns their bodies."""
    bodies = []
    for _ in range(count):
        message = receiver.receive()  # whose memory the body is
        bodies.append(text(message.body))
        receiver.accept()
    return bodies


def test_a16_a17_a18_proton_gets_last_values_in_their_order(shared, address) -> None:
    make(shared, address, lastValue=True)
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for key, body in (("a", "a1"), ("b", "b2"), ("a", "a3")):
            sender.send(priced(key, body))
        sender.send(Message(body="no key"))
        sender.send(Message(body="no key either"))
        shown = queue(shared, address)
        assert (shown["messagesAdded"], shown["messageCount"]) == (5, 4)
        assert shown["messagesReplaced"] == 1
        got = take(connection.create_receiver(address, credit=10), 4)
        assert got == ["b2", "a3", "no key", "no key either"]


def test_a19_a20_a_value_that_stomp_holds_is_followed_or_replaced(shared, address) -> None:
    make(shared, address, lastValue=True, lastValueKey="share")
    with connected(shared) as connection, stomped(shared) as holder, stomped(shared) as sender:
        sender.send(address, "1", share="x")
        holder.subscribe(address, ack="client-individual")
        assert holder.get().body == b"1"
        holder.connection.unsubscribe("s")
        wait_until(lambda: queue(shared, address)["deliveringCount"] == 0)
        with stomped(shared) as second:
            second.subscribe(address, ack="client-individual")
            assert second.get().body == b"1"
            sender.send(address, "2", share="x")
            assert second.get().body == b"2"
            assert queue(shared, address)["messageCount"] == 2
            second.request("unsubscribe", "s")
        shown = queue(shared, address)
        assert (shown["messageCount"], shown["messagesReplaced"]) == (1, 1)
        (last,) = take(connection.create_receiver(address, credit=1), 1)
        assert last == "2"


def test_a21_keys_are_known_after_kill_9(tmp_path, address, tls) -> None:
    with ScratchGateway(tmp_path, tls=tls) as gateway:
        make(gateway, address, lastValue=True, nonDestructive=True)
        with connected(gateway) as connection:
            sender = connection.create_sender(address)
            for key, body in (("a", "a1"), ("b", "b1"), ("a", "a2")):
                sender.send(priced(key, body))
        gateway.kill()
        gateway.start()
        assert queue(gateway, address)["messageCount"] == 2
        with connected(gateway) as connection:
            connection.create_sender(address).send(priced("a", "a3"))
            assert queue(gateway, address)["messageCount"] == 2
            for name in ("one", "other"):
                got = take(connection.create_receiver(address, name=name, credit=5), 2)
                assert got == ["b1", "a3"]


def test_r14_each_reader_sees_all_and_nothing_goes(shared, address) -> None:
    make(shared, address, nonDestructive=True, ringSize=3)
    with connected(shared) as connection, stomped(shared) as reader:
        sender = connection.create_sender(address)
        for number in range(5):
            sender.send(Message(body=f"h{number}", durable=True))
        for name in ("one", "other"):
            receiver = connection.create_receiver(address, name=name, credit=10)
            assert take(receiver, 3) == ["h2", "h3", "h4"]
            receiver.close()
        reader.subscribe(address)
        assert [reader.get().body for _ in range(3)] == [b"h2", b"h3", b"h4"]
        sender.send(Message(body="h5", durable=True))
        assert reader.get().body == b"h5"
        shown = queue(shared, address)
        assert (shown["messageCount"], shown["messagesReplaced"]) == (3, 3)
        assert shown["messagesAcknowledged"] == 0


def test_c11_groups_are_sticky_across_protocols(shared, address) -> None:
    make(shared, address, groupFirstKey="first")
    with connected(shared) as connection, stomped(shared) as client, stomped(shared) as reader:
        receiver = connection.create_receiver(address, credit=20)
        reader.subscribe(address)
        sender = connection.create_sender(address)
        for number in range(4):
            for group in ("g", "h"):
                sender.send(Message(body=f"{group}{number}", group_id=group))
                client.send(address, f"{group}{number}s", JMSXGroupID=group)
        assert queue(shared, address)["groupCount"] == 2
        mine = []
        for _ in range(8):
            message = receiver.receive()
            mine.append((text(message.body), "first" in (message.properties or {})))
        others = [reader.get() for _ in range(8)]
        owned = mine[0][0][0]
        expected = [f"{owned}{n}{end}" for n in range(4) for end in ("", "s")]
        assert [body for body, _ in mine] == expected
        assert {frame.body[:1] for frame in others} == {b"g", b"h"} - {owned.encode()}
        assert [first for _, first in mine] == [True] + [False] * 7
        assert [frame.headers.get("first") for frame in others] == ["true"] + [None] * 7


def test_the_last_message_of_a_group_frees_it(shared, address) -> None:
    make(shared, address)
    with connected(shared) as connection:
        one = connection.create_receiver(address, credit=5)
        sender = connection.create_sender(address)
        sender.send(Message(body="1", group_id="g"))
        assert queue(shared, address)["groupCount"] == 1
        sender.send(Message(body="2", group_id="g", group_sequence=0xFFFFFFFF))
        assert queue(shared, address)["groupCount"] == 0
        assert take(one, 2) == ["1", "2"]
