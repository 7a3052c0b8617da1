"""A tapped address replayed by Proton and stomp.py, from each place, over TCP and TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton import Described, Message, symbol, timestamp, ulong
from proton.reactor import Copy, Filter, ReceiverOption
from proton.utils import LinkDetached

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import SECONDS, connected, queue, wait_until
from tests.interop.test_crossing import stomped

pytestmark = pytest.mark.interop

RABBITMQ = "rabbitmq:stream-offset-spec"
OWN = "sluicegate:stream-offset"


class From(Filter):  # type: ignore[misc]
    """A receiver that begins at a place, named as RabbitMQ's clients do, with a selector or none.

    Proton takes one option with filters: a second one writes a second map behind the first.
    """

    def __init__(self, value: Any, name: str = RABBITMQ, selector: str = "") -> None:
        found = {symbol(name): Described(symbol(name), value)}
        if selector:
            descriptor = symbol("apache.org:selector-filter:string")
            found[symbol("selector")] = Described(descriptor, selector)
        super().__init__(found)


def tap(gateway: ScratchGateway, address: str) -> None:
    body = {"name": address, "address": address}
    assert gateway.request("POST", "/api/v1/streams", body)[0] == 201


def stream(gateway: ScratchGateway, address: str) -> Any:
    status, facts = gateway.request("GET", f"/api/v1/streams/{address}")
    assert status == 200, facts
    return facts


def send(amqp: Any, address: str, *bodies: Any, **fields: Any) -> None:
    sender = amqp.create_sender(address)
    for body in bodies:
        sender.send(Message(body=body, durable=True, **fields))
    sender.close()


def offset_of(message: Message) -> int:
    found = message.annotations
    assert found["x-opt-stream-offset"] == found["x-stream-offset"]
    return int(found["x-opt-stream-offset"])


def take(receiver: Any, count: int) -> list[tuple[int, Any]]:
    taken = []
    for _ in range(count):
        message = receiver.receive(timeout=SECONDS)
        receiver.accept()
        taken.append((offset_of(message), plain(message.body)))
    return taken


def plain(body: Any) -> Any:
    """Return a body of Proton's with bytes as bytes."""
    return bytes(body) if isinstance(body, memoryview) else body


def test_from_each_place_taking_nothing(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, "a", "b", "c")
        time.sleep(0.05)
        between = round(time.time() * 1000)
        time.sleep(0.05)
        send(amqp, address, "d", "e")
        everything = list(enumerate("abcde"))
        for value, expected in (
            ("first", everything),
            (symbol("first"), everything),
            ("last", everything[4:]),
            (ulong(2), everything[2:]),
            (0, everything),
            (timestamp(between), everything[3:]),
            ("offset=1", everything[1:]),
            (f"timestamp={between / 1000}", everything[3:]),
        ):
            for name in (RABBITMQ, OWN):
                receiver = amqp.create_receiver(address, options=From(value, name))
                assert take(receiver, len(expected)) == expected, value
                receiver.close()
        receiver = amqp.create_receiver(address, options=From("next"))
        send(amqp, address, "f")
        assert take(receiver, 1) == [(5, "f")]
        receiver.close()
    assert queue(shared, address)["messageCount"] == 6
    assert stream(shared, address)["consumers"] == 0


class Names(ReceiverOption):  # type: ignore[misc]
    """Keeps the link, to look at what the gateway has answered."""

    def apply(self, receiver: Any) -> None:
        self.link = receiver


def test_the_answer_names_the_filters_in_force(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        names = Names()
        options = [From(ulong(0), selector="n > 1"), Copy(), names]
        receiver = amqp.create_receiver(address, options=options)
        source = names.link.remote_source
        assert source.distribution_mode == source.DIST_MODE_COPY
        source.filter.rewind()
        source.filter.next()
        answered = source.filter.get_dict()
        assert answered[symbol(RABBITMQ)] == Described(symbol(RABBITMQ), ulong(0))
        assert symbol("selector") in answered
        for n in range(4):
            send(amqp, address, n, properties={"n": n})
        assert take(receiver, 2) == [(2, 2), (3, 3)]
        receiver.close()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("middle", "write first, last, next, offset=N or timestamp=T"),
        (True, "True' (bool) names no place"),
        (-1, "'-1' (int) names no place"),
        (ulong(77), "no offset 77 yet; the next message gets 0"),
        ("timestamp=1732545600000", "T is in seconds"),
        ("timestamp=2026-01-01T00:00:00", "names no place"),
    ],
)
def test_bad_places_are_refused_by_name(
    shared: ScratchGateway, address: str, value: Any, said: str
) -> None:
    tap(shared, address)
    with connected(shared) as amqp, pytest.raises(LinkDetached) as refused:
        amqp.create_receiver(address, options=From(value))
    assert said in str(refused.value)


def test_an_address_without_a_stream(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp:
        with pytest.raises(LinkDetached, match=r"No stream taps.*POST /api/v1/streams"):
            amqp.create_receiver(address, options=From("first"))
        assert shared.request("GET", f"/api/v1/streams/{address}")[0] == 404
        assert shared.request("GET", f"/api/v1/addresses/{address}")[0] == 404
        tap(shared, address)
        with pytest.raises(LinkDetached, match=r"A stream keeps what its address accepts"):
            amqp.create_receiver(f"{address}::other", options=From("first"))


def test_outcomes_change_nothing(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, *"abcde")
        receiver = amqp.create_receiver(address, options=From("first"), credit=10)
        seen = []
        for outcome in ("accept", "reject", "release"):
            seen.append(receiver.receive(timeout=SECONDS).body)
            getattr(receiver, outcome)()
        seen.append(receiver.receive(timeout=SECONDS).body)
        receiver.release(delivered=True)
        seen.append(receiver.receive(timeout=SECONDS).body)
        receiver.accept()
        assert seen == list("abcde")
        receiver.close()
    assert queue(shared, address)["messageCount"] == 5
    status, dead = shared.request("GET", "/api/v1/queues/DLQ")
    assert status == 404 or dead["messageCount"] == 0


def test_large_messages_come_in_frames(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    bodies = [bytes([n]) * 300_000 for n in range(5)]
    with connected(shared) as amqp:
        send(amqp, address, *bodies)
        receiver = amqp.create_receiver(address, options=From("first"))
        assert take(receiver, 5) == list(enumerate(bodies))
        receiver.close()


def test_the_api_lists_a_replay(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, *range(8))
        receiver = amqp.create_receiver(address, options=From(ulong(2)), credit=3)

        def shown() -> Any:
            status, found = shared.request("GET", f"/api/v1/consumers?address={address}")
            assert status == 200
            return found["items"][0]

        wait_until(lambda: bool(shown()["offset"] == 5))
        facts = shown()
        assert (facts["stream"], facts["lag"], facts["inFlight"]) == (address, 3, 3)
        assert (facts["queue"], facts["browser"]) == (None, True)
        assert stream(shared, address)["consumers"] == 1
        receiver.close()


# ---- STOMP


@contextmanager
def replaying(
    gateway: ScratchGateway, address: str, start: str, ack: str = "auto", **headers: str
) -> Iterator[Any]:
    with stomped(gateway) as client:
        more = {"x-stream-offset": start, **headers}
        client.request("subscribe", f"/queue/{address}", "s", ack=ack, headers=more)
        yield client


def frames(client: Any, count: int) -> list[tuple[int, bytes]]:
    found = []
    for _ in range(count):
        frame = client.get()
        found.append((int(frame.headers["x-stream-offset"]), frame.body))
    return found


def test_stomp_from_each_place(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with stomped(shared) as client:
        for body in "abc":
            client.send(f"/queue/{address}", body, persistent="true")
        time.sleep(0.05)
        between = time.time()
        iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(between)) + f"{between % 1:.3f}"[1:]
        time.sleep(0.05)
        for body in "de":
            client.send(f"/queue/{address}", body, persistent="true")
        everything = [(n, b"abcde"[n : n + 1]) for n in range(5)]
        for start, expected in (
            ("first", everything),
            ("last", everything[4:]),
            ("offset=2", everything[2:]),
            ("timestamp=0", everything),
            (f"timestamp={between:.3f}", everything[3:]),
            (f"timestamp={iso}Z", everything[3:]),
        ):
            for ack in ("auto", "client", "client-individual"):
                with replaying(shared, address, start, ack) as reader:
                    assert frames(reader, len(expected)) == expected, start
        with replaying(shared, address, "next") as reader:
            client.send(f"/queue/{address}", "f", persistent="true")
            assert frames(reader, 1) == [(5, b"f")]
    assert queue(shared, address)["messageCount"] == 6


def test_an_ack_opens_the_window(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, *[b"x"] * 6)
    with replaying(shared, address, "first", "client", **{"prefetch-count": "2"}) as reader:
        got = [reader.get() for _ in range(2)]
        time.sleep(0.2)
        assert reader.arrived.empty()
        reader.connection.ack(got[1].headers["ack"])
        more = [reader.get() for _ in range(2)]
        assert [int(f.headers["x-stream-offset"]) for f in got + more] == [0, 1, 2, 3]
        reader.connection.nack(more[1].headers["ack"])
        assert frames(reader, 2) == [(4, b"x"), (5, b"x")]
    assert queue(shared, address)["messageCount"] == 6


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"x-stream-offset": "5"}, "write first, last, next, offset=N or timestamp=T"),
        ({"x-stream-offset": "offset=9"}, "no offset 9 yet"),
        ({"x-stream-offset": "first", "browser": "true"}, "leave one of the two out"),
        ({"x-stream-offset": "first", "no-local": "true"}, "leave one of the two out"),
    ],
)
def test_stomp_refusals(
    shared: ScratchGateway, address: str, headers: dict[str, str], said: str
) -> None:
    tap(shared, address)
    with stomped(shared) as client:
        client.connection.subscribe(f"/queue/{address}", "s", headers=headers)
        wait_until(lambda: bool(client.errors))
        assert said in client.errors[0]["message"]
        client.errors.clear()


# ---- one protocol's messages for a client of the other


def test_what_stomp_sent_replayed_over_amqp(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with stomped(shared) as client, connected(shared) as amqp:
        client.send(f"/queue/{address}", "grün", persistent="true", kind="k", priority="7")
        receiver = amqp.create_receiver(address, options=From("first", selector="kind = 'k'"))
        message = receiver.receive(timeout=SECONDS)
        receiver.accept()
        assert (offset_of(message), message.priority) == (0, 7)
        assert plain(message.body) == "grün".encode()
        assert message.properties["kind"] == "k"
        assert message.annotations["x-opt-jms-msg-type"] == 3
        receiver.close()


def test_what_amqp_sent_replayed_over_stomp(shared: ScratchGateway, address: str) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, b"x", b"y", properties={"n": 1}, subject="s", annotations={"own": 3})
    with replaying(shared, address, "first", selector="n = 1") as reader:
        for offset in (0, 1):
            headers = reader.get().headers
            assert (headers["x-stream-offset"], headers["n"]) == (str(offset), "1")
            assert (headers["type"], headers["JMS_AMQP_MA_own"]) == ("s", "3")


def test_a_replayed_message_is_sent_on_with_another_offset(
    shared: ScratchGateway, address: str
) -> None:
    tap(shared, address)
    with connected(shared) as amqp:
        send(amqp, address, "a", "b")
        receiver = amqp.create_receiver(address, options=From(ulong(1)))
        message = receiver.receive(timeout=SECONDS)
        receiver.accept()
        sender = amqp.create_sender(address)
        sender.send(message)
        again = receiver.receive(timeout=SECONDS)
        receiver.accept()
        assert (offset_of(message), offset_of(again), again.body) == (1, 2, "b")
        receiver.close()
