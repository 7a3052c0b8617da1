"""Pages as clients see them: Proton senders, consumers, selectors and drains over a real disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.reactor import Selector

from gateway.cli.scratch import ScratchGateway
from tests.interop.support import connected, queue, wait_until

pytestmark = pytest.mark.interop

COUNT = 700
CONFIG = """
[address-settings."#"]
max-size-messages = 10
page-size-bytes = "16K"
max-read-page-messages = 40

[acceptors.all]
endpoint = "tcp:0:interface=127.0.0.1"
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    folder: Path = tmp_path_factory.mktemp("pages")
    config = folder / "f.toml"
    config.write_text(CONFIG)
    with ScratchGateway(folder, config=config) as running:
        yield running


def fill(gateway: ScratchGateway, address: str, last_kind: str = "a") -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender(address)
        for number in range(COUNT):
            kind = last_kind if number == COUNT - 1 else "a"
            sender.send(Message(body=number, durable=True, properties={"k": kind}))
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
