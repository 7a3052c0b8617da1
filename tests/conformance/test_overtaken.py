"""Rows of concurrent store and dispatch over the real journal, with a disk that stands still."""

from __future__ import annotations

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.store.persistence import JournalStore
from protocols.amqp.performatives import Accepted, Disposition
from storage.journal import Journal
from storage.overtaking import Overtaken
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import Amqp, Stomp, took
from tests.protocols.amqp.peer import RECEIVER, data_message, of
from tests.storage.test_journal import Paper


class StandingDisk(Core):
    """A broker over the real journal, whose writer answers when it is told to."""

    def __init__(self, *entries: SettingsEntry) -> None:
        super().__init__(*entries)
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


class Reader:
    """A STOMP reader, and the senders of what it gets, over a disk that stands."""

    def __init__(self, *queues: str, ack: str = "client-individual", **settings: object) -> None:
        entries = [entry("#", **settings)] if settings else []
        self.core = StandingDisk(*entries)
        self.stomp = Stomp(self.core)
        for queue in queues or ("q",):
            self.stomp.say(f"SUBSCRIBE\nid:{queue}\ndestination:{queue}\nack:{ack}\n\n\0")
        self.core.occupied()
        self.sender = Stomp(self.core)

    def send(self, *texts: str, to: str = "q") -> list[str]:
        """Send, and return what the reader can acknowledge."""
        self.sender.more()  # what came late
        for text in texts:
            assert self.sender.ask("SEND", text, destination=to, persistent="true") == []
        return [headers["ack"] for name, headers, _ in self.stomp.more() if name == "MESSAGE"]

    def ack(self, delivery: str, receipt: str = "a", command: str = "ACK") -> list[str]:
        """Settle, and return the receipts that come at once."""
        return kinds(self.stomp.say(f"{command}\nid:{delivery}\nreceipt:{receipt}\n\n\0"))


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
    core.journal._overtaking.overtaken = Overtaken.NOW
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
    core.journal._overtaking.overtaken = Overtaken.NOW
    sender.say("SEND\npersistent:true\ndestination:elsewhere\n\nkept\0")
    sender.say("SEND\npersistent:true\ndestination:q\n\nm\0")
    assert sender.say("DISCONNECT\nreceipt:bye\n\n\0") == []
    ((_, headers, _),) = reader.more()
    reader.say(f"ACK\nid:{headers['ack']}\n\n\0")
    assert sender.more() == []
    core.answer()
    assert kinds(sender.more()) == ["RECEIPT bye"]


def test_k1_the_acknowledgement_is_confirmed_at_once_too():
    reader = Reader()
    given = len(reader.core.paper.written)
    (delivery,) = reader.send("m")
    assert reader.ack(delivery) == ["RECEIPT a"]
    assert kinds(reader.sender.more()) == ["RECEIPT r"]
    assert reader.core.journal.writing
    reader.core.answer()
    assert not any(batch.adds or batch.removes for batch in reader.core.paper.written[given:])


def test_k1_both_are_confirmed_over_amqp():
    core = StandingDisk()
    sender, reader = Amqp.at(core), Amqp.at(core)
    core.occupied()
    reader.receiver(credit=5)
    sender.sender()
    core.occupied()
    given = len(core.paper.written)
    sender.say(sender.transfer(data_message(b"m", durable=True)))
    ((delivery, _),) = took(reader.more())
    told = Disposition(role=RECEIVER, first=delivery, settled=False, state=Accepted())
    (back,) = of(reader.tell(told) + reader.more(), Disposition)
    assert (back.first, back.settled, back.state) == (delivery, True, Accepted())
    (said,) = of(sender.more(), Disposition)
    assert said.settled
    assert core.journal.writing
    core.answer()
    assert not any(batch.adds or batch.removes for batch in core.paper.written[given:])


def test_k1_a_turn_that_was_set_aside_is_as_free():
    reader = Reader()
    reader.core.journal._overtaking.overtaken = Overtaken.NOW
    first, second = reader.send("1", "2")
    assert reader.core.journal.unsynced > reader.core.journal.busy_with + 1
    assert reader.ack(second, "b") == ["RECEIPT b"]
    assert reader.ack(first, "a") == ["RECEIPT a"]


def test_k4_what_is_being_written_is_waited_for():
    reader = Reader()
    (delivery,) = reader.send("m")
    core = reader.core
    core.journal.written(core.paper.written[-1], 1)
    core.turn()
    assert core.journal.writing
    assert core.paper.written[-1].adds
    assert reader.ack(delivery) == []
    core.answer()
    assert kinds(reader.stomp.more()) == ["RECEIPT a"]
    assert any(batch.removes for batch in core.paper.written)


def test_k1_one_acknowledgement_of_stored_and_cancelled_messages_waits():
    reader = Reader(ack="client")
    core = reader.core
    reader.send("stored")
    core.answer()
    core.occupied()
    (last,) = reader.send("cancelled")
    assert reader.ack(last) == []
    core.answer()
    assert kinds(reader.stomp.more()) == ["RECEIPT a"]


def test_k1_receipts_of_acknowledgements_keep_the_order_of_frames():
    reader = Reader()
    core = reader.core
    (stored,) = reader.send("stored")
    core.answer()
    core.occupied()
    (cancelled,) = reader.send("cancelled")
    assert reader.ack(stored, "first") == []
    assert reader.ack(cancelled, "second") == []
    core.answer()
    assert kinds(reader.stomp.more()) == ["RECEIPT first", "RECEIPT second"]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_k5_in_a_transaction_and_given_back_it_waits(command: str):
    reader = Reader()
    (delivery,) = reader.send("m")
    if command == "ACK":
        reader.stomp.say("BEGIN\ntransaction:t\n\n\0")
        reader.stomp.say(f"ACK\nid:{delivery}\ntransaction:t\n\n\0")
        assert kinds(reader.stomp.say("COMMIT\ntransaction:t\nreceipt:a\n\n\0")) == []
    else:
        assert "RECEIPT a" not in reader.ack(delivery, command=command)
    reader.core.answer()
    assert "RECEIPT a" in kinds(reader.stomp.more())


def test_k1_a_dead_letter_is_not_done_before_what_died_is_gone():
    reader = Reader("q", "dead", dead_letter_address="dead", max_delivery_attempts=1)
    core = reader.core
    (stored,) = reader.send("m")
    core.answer()
    core.occupied()
    came = reader.stomp.say(f"NACK\nid:{stored}\n\n\0")
    ((_, headers, _),) = came
    assert headers["subscription"] == "dead"
    assert reader.ack(headers["ack"]) == [], "a kill now brings back what died"
    core.answer()
    assert kinds(reader.stomp.more()) == ["RECEIPT a"]


@pytest.mark.parametrize("kind", ["ring", "last-value"])
def test_k1_what_took_the_place_of_another_waits_until_that_is_gone(kind: str):
    core = StandingDisk()
    if kind == "ring":
        core.administration.create_queue("q", "q", ANYCAST, ring_size=1)
    else:
        core.administration.create_queue("q", "q", ANYCAST, attributes={"last_value_key": "k"})
    sender, reader = Stomp(core), Stomp(core)

    def send(text: str) -> None:
        sender.say(f"SEND\ndestination:q\npersistent:true\nk:v\n\n{text}\0")

    send("old")
    core.answer()
    core.occupied()
    send("new")
    came = reader.say("SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0")
    ((_, headers, body),) = came
    assert body == b"new"
    answers = kinds(reader.say(f"ACK\nid:{headers['ack']}\nreceipt:a\n\n\0"))
    assert answers == [], "a kill now brings back the old one"
    core.answer()
    assert kinds(reader.more()) == ["RECEIPT a"]


def test_k1_of_two_subscriptions_each_is_told_when_it_is_done():
    core = StandingDisk()
    for name in ("one", "two"):
        core.administration.create_queue(name, "t", MULTICAST)
    sender, one, two = Stomp(core), Stomp(core), Stomp(core)
    for reader, name in ((one, "one"), (two, "two")):
        reader.say(f"SUBSCRIBE\nid:s\ndestination:t::{name}\nack:client-individual\n\n\0")
    core.occupied()
    assert sender.ask("SEND", "m", destination="/topic/t", persistent="true") == []
    ((_, first, _),), ((_, second, _),) = one.more(), two.more()
    assert kinds(one.say(f"ACK\nid:{first['ack']}\nreceipt:a\n\n\0")) == ["RECEIPT a"]
    assert sender.more() == [], "the other one may still need it"
    assert kinds(two.say(f"ACK\nid:{second['ack']}\nreceipt:b\n\n\0")) == ["RECEIPT b"]
    assert kinds(sender.more()) == ["RECEIPT r"]
