"""Rows of concurrent store and dispatch over the real journal, with a disk that stands still."""

from __future__ import annotations

import pytest

from gateway.persistence import JournalStore
from protocols.amqp.performatives import Accepted, Disposition
from storage.journal import Journal
from tests.broker.core import Core
from tests.conformance.clients import Amqp, Stomp, took
from tests.protocols.amqp.peer import data_message, of
from tests.storage.test_journal import Paper


class StandingDisk(Core):
    """A broker over the real journal, whose writer answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper()
        self.journal = Journal(next_ticket=1, next_segment=1)
        self.journal.start(self.paper)
        self.store = JournalStore(self.journal)
        self._make()
        self.journal.on_durable = self.gateway.durable_up_to
        self.journal.on_consumed = self.gateway.listeners.consumed

    def sync(self) -> None:
        """End turns; the disk stands still."""
        self.turn()

    def answer(self) -> None:
        """Let the disk finish all that it is given."""
        self.turn()
        while self.journal.writing:
            self.journal.written(self.paper.written[-1], 1)
            self.turn()

    def occupied(self) -> StandingDisk:
        """Give the disk something to stand over."""
        self.answer()
        self.gateway.directory.make_address("elsewhere")
        self.gateway.turn.need_end()
        self.turn()
        assert self.journal.writing
        return self


def kinds(came: list[tuple[str, dict[str, str], bytes]]) -> list[str]:
    return [f"{name} {headers.get('receipt-id', '')}".strip() for name, headers, _ in came]


def test_k1_a_sender_is_confirmed_when_its_message_is_consumed_though_the_disk_stands():
    core = StandingDisk()
    reader, sender = Stomp(core), Stomp(core)
    reader.say("SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0")
    core.occupied()
    assert sender.ask("SEND", "m", destination="q", persistent="true") == []
    ((name, headers, _),) = reader.more()
    assert name == "MESSAGE"
    given = len(core.paper.written)
    reader.say(f"ACK\nid:{headers['ack']}\n\n\0")
    assert kinds(sender.more()) == ["RECEIPT r"]
    core.answer()
    assert not any(batch.adds or batch.removes for batch in core.paper.written[given:])


def test_k1_over_amqp():
    core = StandingDisk()
    sender, reader = Amqp.at(core), Amqp.at(core)
    core.occupied()
    reader.receiver(credit=5)
    sender.sender()
    core.occupied()
    sent = sender.transfer(data_message(b"m", durable=True))
    assert of(sender.say(sent) + sender.more(), Disposition) == []
    ((delivery, _),) = took(reader.more())
    reader.settle(delivery, Accepted())
    (said,) = of(sender.more(), Disposition)
    assert said.settled
    assert core.journal.writing


def test_k1_what_another_one_waits_for_is_not_confirmed_with_it():
    core = StandingDisk()
    reader, sender, other = Stomp(core), Stomp(core), Stomp(core)
    reader.say("SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0")
    core.occupied()
    assert other.ask("SEND", "kept", destination="elsewhere", persistent="true") == []
    assert sender.ask("SEND", "m", destination="q", persistent="true") == []
    ((_, headers, _),) = reader.more()
    reader.say(f"ACK\nid:{headers['ack']}\n\n\0")
    assert other.more() == []
    core.answer()
    assert kinds(other.more()) == ["RECEIPT r"]
    assert kinds(sender.more()) in ([], ["RECEIPT r"])


@pytest.mark.parametrize("first", ["kept", "consumed"])
def test_k1_receipts_keep_the_order_of_frames(first: str):
    core = StandingDisk()
    reader, sender = Stomp(core), Stomp(core)
    reader.say("SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0")
    core.occupied()
    core.journal._overtaken = 2
    order = {"kept": "elsewhere", "consumed": "q"}
    names = [first, *(order.keys() - {first})]
    for name in names:
        text = f"SEND\nreceipt:{name}\npersistent:true\ndestination:{order[name]}\n\nm\0"
        assert sender.say(text) == []
    ((_, headers, _),) = reader.more()
    reader.say(f"ACK\nid:{headers['ack']}\n\n\0")
    early = kinds(sender.more())
    assert early == (["RECEIPT consumed"] if first == "consumed" else [])
    core.answer()
    assert early + kinds(sender.more()) == [f"RECEIPT {name}" for name in names]


def test_k1_a_disconnect_waits_for_all_that_came_before_it():
    core = StandingDisk()
    reader, sender = Stomp(core), Stomp(core)
    reader.say("SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0")
    core.occupied()
    core.journal._overtaken = 2
    sender.say("SEND\npersistent:true\ndestination:elsewhere\n\nkept\0")
    sender.say("SEND\npersistent:true\ndestination:q\n\nm\0")
    assert sender.say("DISCONNECT\nreceipt:bye\n\n\0") == []
    ((_, headers, _),) = reader.more()
    reader.say(f"ACK\nid:{headers['ack']}\n\n\0")
    assert sender.more() == []
    core.answer()
    assert kinds(sender.more()) == ["RECEIPT bye"]
