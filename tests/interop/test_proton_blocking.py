"""Proton's blocking client: outcomes, order, times, subscriptions, requests, logins, limits."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
from proton import (
    ConnectionException,
    Delivery,
    Described,
    Message,
    Terminus,
    Timeout,
    symbol,
    timestamp,
    ulong,
)
from proton.reactor import (
    AtMostOnce,
    Container,
    Copy,
    DurableSubscription,
    Filter,
    ReceiverOption,
    Selector,
)
from proton.utils import (
    BlockingConnection,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import blocking, connected, queue, wait_until

pytestmark = pytest.mark.interop

NO_LOCAL = Filter({symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])})
LARGE = bytes(range(256)) * 20_480  # 5 MiB


class Topic(ReceiverOption):
    """Asks for a topic, as JMS clients do."""

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("topic"))


def test_every_field_of_a_message_arrives_as_it_was_sent(
    shared: ScratchGateway, address: str
) -> None:
    properties = {
        "text": "grün",
        "long": 1 << 40,
        "unsigned": ulong(1 << 63),
        "true": True,
        "nothing": None,
        "id": uuid.UUID(int=7),
        "when": timestamp(1_700_000_000_123),
        "bytes": b"\x00\xff",
        "real": 0.5,
    }
    message = Message(
        id=uuid.UUID(int=1),
        user_id=b"ann",
        address="somewhere else",
        subject="s",
        reply_to="answers",
        correlation_id=ulong(5),
        content_type=symbol("application/x-thing"),
        content_encoding=symbol("identity"),
        expiry_time=4_000_000_000.0,
        creation_time=1_700_000_000.5,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        durable=True,
        priority=7,
        properties=properties,
        annotations={symbol("x-opt-mine"): [1, {"a": b"b"}]},
        body={"a": [1, 2.5, None], "b": {"c": symbol("d")}},
    )
    with connected(shared) as connection:
        connection.create_sender(address).send(message)
        receiver = connection.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
    fields = (
        "id user_id address subject reply_to correlation_id content_type content_encoding "
        "expiry_time creation_time group_id group_sequence reply_to_group_id durable priority "
        "properties body inferred first_acquirer delivery_count"
    )
    expected = {name: getattr(message, name) for name in fields.split()}
    expected |= {"delivery_count": 0, "first_acquirer": True}
    assert {name: getattr(got, name) for name in fields.split()} == expected
    assert got.annotations[symbol("x-opt-mine")] == [1, {"a": b"b"}]
    assert type(got.properties["unsigned"]) is ulong
    assert type(got.properties["when"]) is timestamp
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


@pytest.mark.parametrize("body", [b"", "", None, 7, [1, "two"], {"k": "v"}, b"x" * 70_000])
def test_a_body_of_any_type_arrives(shared: ScratchGateway, address: str, body: Any) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(Message(body=body))
        receiver = connection.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
        # What Proton gives for a binary is a view of the message, gone with it.
        assert (bytes(got.body) if isinstance(body, bytes) else got.body) == body


def test_accepted_is_gone_and_released_comes_back_uncounted(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for number in range(3):
            sender.send(Message(body=number, durable=True))
        receiver = connection.create_receiver(address)
        # More often than max-delivery-attempts: a release is no attempt.
        for _ in range(8):
            got = receiver.receive()
            assert (got.body, got.delivery_count) == (0, 0)
            receiver.release(delivered=False)
        bodies = []
        for _ in range(3):
            bodies.append(receiver.receive().body)
            receiver.accept()
        assert bodies == [0, 1, 2]
    assert queue(shared, address)["messageCount"] == 0


def test_modified_as_failed_counts_until_it_goes_to_the_dead_letters(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(Message(body=address, durable=True))
        receiver = connection.create_receiver(address)
        counts = []
        for _ in range(5):
            counts.append(receiver.receive().delivery_count)
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        assert counts == [0, 1, 2, 3, 4]
        receiver.close()
        letter = take_dead(connection, address)
    assert letter.annotations[symbol("x-opt-ORIG-ADDRESS")] == address
    assert queue(shared, address)["messageCount"] == 0


def test_rejected_goes_to_the_dead_letters_at_once(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(Message(body=address, durable=True, priority=6))
        receiver = connection.create_receiver(address)
        receiver.receive()
        receiver.reject()
        letter = take_dead(connection, address)
    assert letter.annotations[symbol("x-opt-ORIG-QUEUE")] == address
    assert (letter.durable, letter.priority) == (True, 6)


def take_dead(connection: BlockingConnection, body: str) -> Message:
    """Take the dead letter with this body, leave those of other tests."""
    receiver = connection.create_receiver("DLQ", credit=100)
    while True:
        message = receiver.receive()
        mine = message.body == body
        receiver.settle(Delivery.ACCEPTED if mine else Delivery.RELEASED)
        if mine:
            receiver.close()
            return message


def test_undeliverable_here_goes_to_another_link(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(Message(body="for the other", durable=True))
        first = connection.create_receiver(address, credit=5, name="first")
        first.receive()
        delivery = first.fetcher.unsettled.popleft()
        delivery.local.undeliverable = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
        second = connection.create_receiver(address, credit=5, name="second")
        got = second.receive()
        second.accept()
        assert (got.body, got.delivery_count) == ("for the other", 0)
        assert not first.fetcher.has_message


def test_five_megabytes_cross_in_frames_of_either_size(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared, max_frame_size=16_384) as small, connected(shared) as large:
        small.create_sender(address).send(Message(body=LARGE, durable=True))
        large.create_sender(address).send(Message(body=LARGE[::-1], durable=True))
        receiver = small.create_receiver(address)
        assert receiver.receive().body == LARGE
        receiver.accept()
        other = large.create_receiver(address)
        assert other.receive().body == LARGE[::-1]
        other.accept()
    assert queue(shared, address)["messageCount"] == 0


def test_a_message_above_the_limit_costs_its_link_only(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        keeps = connection.create_sender(address, name="keeps")
        sender = connection.create_sender(address)
        assert sender.remote_max_message_size == 16 << 20
        with pytest.raises(LinkDetached, match=r"message-size-exceeded.*16777216"):
            sender.send(Message(body=b"x" * (17 << 20)))
        keeps.send(Message(body="small"))
        receiver = connection.create_receiver(address)
        assert receiver.receive().body == "small"
        receiver.accept()


def test_the_highest_priority_comes_first_and_each_in_order(
    shared: ScratchGateway, address: str
) -> None:
    sent = [(priority, number) for number in range(3) for priority in (4, 0, 9, 1, 7, 5)]
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for priority, number in sent:
            sender.send(Message(body=[priority, number], priority=priority))
        receiver = connection.create_receiver(address, credit=len(sent))
        got = []
        for _ in sent:
            message = receiver.receive()
            assert message.priority == message.body[0]
            got.append(tuple(message.body))
            receiver.accept()
    assert got == sorted(sent, key=lambda one: (-one[0], one[1]))


def test_what_is_too_old_expires_and_the_rest_keeps_its_ttl(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        sender.send(Message(body="short", ttl=0.2, durable=True))
        sender.send(Message(body="long", ttl=60, durable=True))
        wait_until(lambda: queue(shared, address)["messageCount"] == 1)
        expired = connection.create_receiver("ExpiryQueue")
        assert expired.receive().body == "short"
        expired.accept()
        receiver = connection.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
        assert (got.body, got.ttl) == ("long", 60)


def test_parameters_of_an_address_are_no_part_of_its_name(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as one, connected(shared) as other:
        low = one.create_receiver(f"{address}?consumer-priority=1", credit=1)
        high = other.create_receiver(f"{address}?consumer-priority=7&x=y", credit=1)
        one.create_sender(address).send(Message(body="first"))
        assert high.receive(timeout=10).body == "first"
        high.accept()
        high.close()
        one.create_sender(f"{address}?x=y").send(Message(body="second"))
        assert low.receive(timeout=10).body == "second"
        with pytest.raises(LinkDetached, match="consumer-priority"):
            other.create_receiver(f"{address}?consumer-priority=high")


def test_who_comes_back_steals_its_durable_subscription_with_what_it_held(
    shared: ScratchGateway, address: str
) -> None:
    options = [DurableSubscription(), Topic()]
    with connected(shared, container=container("thief")) as old:
        held = old.create_receiver(address, name="mine", options=options, credit=10)
        with connected(shared) as connection:
            sender = connection.create_sender(address)
            for number in range(3):
                sender.send(Message(body=number, durable=True))
        assert held.receive().body == 0
        with connected(shared, container=container("thief")) as new:
            receiver = new.create_receiver(address, name="mine", options=options, credit=10)
            for number in range(3):
                assert receiver.receive().body == number
                receiver.accept()
            with pytest.raises(LinkDetached, match="stolen"):
                list(iter(lambda: held.receive(timeout=5), None))
            receiver.close()


def test_a_durable_subscription_keeps_what_came_while_its_reader_was_away(
    shared: ScratchGateway, address: str
) -> None:
    options = [DurableSubscription(), Topic()]
    with connected(shared, container=container("reader")) as away:
        receiver = away.create_receiver(address, name="mine", options=options)
        subscription = own_queue(shared, address)
        receiver.link.detach()
        away.wait(lambda: queue(shared, subscription)["consumerCount"] == 0)
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for number in range(5):
            sender.send(Message(body=number, durable=True))
    with connected(shared, container=container("reader")) as back:
        receiver = back.create_receiver(address, name="mine", options=options, credit=10)
        for number in range(5):
            assert receiver.receive().body == number
            receiver.accept()
        assert receiver.link.remote_source.durability == Terminus.DELIVERIES
        receiver.close()
    gone = shared.request("GET", f"/api/v1/queues/{subscription}")[0]
    assert gone == 404, "closed, not detached: the subscription is over"


def own_queue(gateway: ScratchGateway, address: str) -> str:
    """Return the name of the one queue that an address has."""
    status, queues = gateway.request("GET", "/api/v1/queues")
    assert status == 200
    assert isinstance(queues, dict)
    (name,) = [one["name"] for one in queues["items"] if one["address"] == address]
    return str(name)


def container(name: str) -> Any:
    made = Container()
    made.container_id = name
    return made


def test_requests_are_answered_at_a_dynamic_address(shared: ScratchGateway, address: str) -> None:
    def serve() -> None:
        with connected(shared) as server:
            requests = server.create_receiver(address)
            answers = server.create_sender(None)
            for _ in range(3):
                request = requests.receive()
                answers.send(
                    Message(
                        address=request.reply_to,
                        correlation_id=request.correlation_id,
                        body=request.body.upper(),
                    )
                )
                requests.accept()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with connected(shared) as connection:
        client = SyncRequestResponse(connection, address)
        name = client.reply_to
        assert [client.call(Message(body=text)).body for text in ("a", "b", "c")] == list("ABC")
        thread.join(10)
        assert not thread.is_alive()
        assert queue(shared, name)["consumerCount"] == 1
    wait_until(lambda: shared.request("GET", f"/api/v1/queues/{name}")[0] == 404)


def test_an_anonymous_sender_is_refused_what_has_no_address(shared: ScratchGateway) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(None)
        with pytest.raises(SendException):
            sender.send(Message(body="to nobody"))
        sender.send(Message(address="relayed", body="to somebody"))
        receiver = connection.create_receiver("relayed")
        assert receiver.receive().body == "to somebody"
        receiver.accept()


def test_a_browser_sees_what_waits_and_takes_nothing(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for number in range(5):
            sender.send(Message(body=number, properties={"odd": number % 2}))
        browser = connection.create_receiver(address, credit=10, options=[Copy()])
        assert [browser.receive().body for _ in range(5)] == list(range(5))
        sender.send(Message(body=5))
        assert browser.receive().body == 5
        browser.accept()
        some = connection.create_receiver(
            address, credit=10, name="some", options=[Copy(), Selector("odd = 1")]
        )
        assert [some.receive().body for _ in range(2)] == [1, 3]
        browser.close()
        state = queue(shared, address)
        assert (state["messageCount"], state["deliveringCount"]) == (6, 0)
        assert (state["consumerCount"], state["messagesAcknowledged"]) == (0, 0)


def test_a_selector_takes_what_it_says(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for number in range(20):
            sender.send(Message(body=number, properties={"number": number}))
        receiver = connection.create_receiver(address, options=Selector("number BETWEEN 5 AND 7"))
        assert [receiver.receive().body for _ in range(3)] == [5, 6, 7]
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.2)
        wait_until(lambda: queue(shared, address)["messageCount"] == 20)
        with pytest.raises(LinkDetached, match=r"invalid-field.*column"):
            connection.create_receiver(address, name="wrong", options=Selector("number = = 1"))


def test_at_most_once_needs_no_settlement(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address, options=AtMostOnce())
        for number in range(10):
            sender.send(Message(body=number))
        receiver = connection.create_receiver(address, credit=10, options=AtMostOnce())
        assert [receiver.receive().body for _ in range(10)] == list(range(10))
        assert not receiver.fetcher.unsettled
        wait_until(lambda: queue(shared, address)["messageCount"] == 0)


def test_no_local_is_deaf_to_its_own_connection(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection, connected(shared) as other:
        receiver = connection.create_receiver(address, options=NO_LOCAL)
        connection.create_sender(address).send(Message(body="mine"))
        other.create_sender(address).send(Message(body="not mine"))
        assert receiver.receive().body == "not mine"
        receiver.accept()
        receiver.close()
        wait_until(lambda: queue(shared, address)["messageCount"] == 1)


def test_a_name_that_cannot_be_is_refused_on_its_link(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        with pytest.raises(LinkDetached):
            connection.create_sender("$odd", name="odd")
        connection.create_sender(address).send(Message(body="goes on"))


def test_plain_takes_the_users_of_the_file_only(guarded: ScratchGateway, address: str) -> None:
    login = {"user": "ann", "password": "se:cret", "allowed_mechs": "PLAIN"}
    with connected(guarded, **login) as connection:
        connection.create_sender(address).send(Message(body="from ann", durable=True))
        receiver = connection.create_receiver(address)
        assert receiver.receive().body == "from ann"
        receiver.accept()
    for wrong in ({"password": "secret"}, {"user": "bob"}, {"allowed_mechs": "ANONYMOUS"}):
        with pytest.raises(ConnectionException) as refused:
            blocking(guarded, **(login | wrong))
        assert (
            "unauthorized" in str(refused.value) or "authentication" in str(refused.value).lower()
        )


def test_a_peer_that_is_kept_alive_outlives_its_idle_time_out(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared, heartbeat=0.6) as connection:
        sender = connection.create_sender(address)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            connection.container.process()
        # Proton has closed the connection by now if the gateway sent no empty frames.
        sender.send(Message(body="still here"))
        assert connection.conn.transport.remote_idle_timeout == 30.0
