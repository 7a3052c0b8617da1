"""Temporary nodes are read by the connection that made them; all others only send to them."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message
from proton.reactor import Copy
from proton.utils import LinkDetached

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import connected, raw
from tests.interop.test_crossing import Topic, stomped

pytestmark = pytest.mark.interop


def asked_by_stomp(gateway: ScratchGateway, version: str, headers: str) -> str:
    """Return what a SUBSCRIBE is answered with."""
    with raw(gateway, gateway.stomp_port) as peer:
        peer.sendall(f"CONNECT\naccept-version:{version}\nhost:x\n\n\0".encode())
        peer.sendall(f"SUBSCRIBE\nid:s\nreceipt:r\n{headers}\n\n\0".encode())
        came = b""
        while b"receipt-id:r" not in came:
            chunk = peer.recv(65536)
            if not chunk:
                break
            came += chunk
    return came.split(b"\0", 1)[1].decode()


@pytest.mark.parametrize("options", [None, Copy(), Topic()], ids=["take", "browse", "topic"])
def test_the_answers_of_another_connection_are_not_read_over_amqp(
    shared: ScratchGateway, options: Any
) -> None:
    with connected(shared) as owner, connected(shared) as other:
        answers = owner.create_receiver(None, dynamic=True)
        name = answers.remote_source.address
        other.create_sender(name).send(Message(body="for the owner"))
        for wanted in (name, f"{name}::{name}"):
            with pytest.raises(LinkDetached, match="belongs to the connection that made it") as one:
                other.create_receiver(wanted, options=options)
            assert one.value.condition == "amqp:unauthorized-access"
        assert answers.receive().body == "for the owner"
        answers.accept()


def test_the_connection_itself_reads_on_a_second_link(shared: ScratchGateway) -> None:
    with connected(shared) as owner, connected(shared) as other:
        first = owner.create_receiver(None, dynamic=True, credit=0)
        name = first.remote_source.address
        second = owner.create_receiver(name, credit=1)
        other.create_sender(name).send(Message(body="either"))
        assert second.receive().body == "either"
        second.accept()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("more", ["", "\nbrowser:true"], ids=["take", "browse"])
def test_the_answers_of_an_amqp_connection_are_not_read_over_stomp(
    shared: ScratchGateway, version: str, more: str
) -> None:
    with connected(shared) as owner:
        name = owner.create_receiver(None, dynamic=True).remote_source.address
        answer = asked_by_stomp(shared, version, f"destination:{name}{more}")
        assert answer.lstrip().startswith("ERROR")
        assert "not-authorized" in answer
        assert "belongs to the connection that made it" in answer


def test_a_subscription_without_a_name_is_read_by_its_connection_alone(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as owner, connected(shared) as other, stomped(shared) as client:
        client.subscribe(f"/topic/{address}")
        mine = owner.create_receiver(address, options=Topic())
        status, answer = shared.request("GET", f"/api/v1/queues?address={address}")
        assert status == 200
        assert isinstance(answer, dict)
        names = [one["name"] for one in answer["items"] if one["address"] == address]
        assert len(names) == 2
        for name in names:
            with pytest.raises(LinkDetached, match="belongs to the connection that made it"):
                other.create_receiver(f"{address}::{name}")
            answer = asked_by_stomp(shared, "1.2", f"destination:{address}::{name}")
            assert "belongs to the connection that made it" in answer
        other.create_sender(address).send(Message(body=b"to both", inferred=True))
        assert client.get().body == b"to both"
        assert bytes(mine.receive().body) == b"to both"
        mine.accept()


@pytest.mark.parametrize("pattern", ["#", "*"])
def test_a_wildcard_does_not_hear_what_goes_to_a_temporary_node(
    shared: ScratchGateway, pattern: str
) -> None:
    with connected(shared) as owner, connected(shared) as other, stomped(shared) as client:
        client.subscribe(f"/topic/{pattern}")
        answers = owner.create_receiver(None, dynamic=True)
        to = other.create_sender(answers.remote_source.address)
        to.send(Message(body=b"secret", inferred=True))
        other.create_sender("heard").send(Message(body=b"heard", inferred=True))
        assert client.get().body == b"heard"
        assert bytes(answers.receive().body) == b"secret"
        answers.accept()
