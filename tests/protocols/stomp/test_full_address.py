"""Full addresses: BLOCK stops reading or spools, FAIL is an ERROR, and order holds through both."""

from __future__ import annotations

import pytest

from gateway.model.budget import Budget
from gateway.model.run import Outcome, Run
from protocols.stomp.limits import StompLimits
from tests.protocols.scripted_ends import ScriptedProducer
from tests.protocols.stomp.peer import Peer, frames, message


def send(body: str, receipt: str = "", destination: str = "q") -> bytes:
    line = f"receipt:{receipt}\n" if receipt else ""
    return f"SEND\ndestination:{destination}\n{line}\n{body}\0".encode()


def receipts(data: bytes) -> list[str]:
    found = frames(data)
    assert all(command == "RECEIPT" for command, _, _ in found), found
    return [headers["receipt-id"] for _, headers, _ in found]


def full(peer: Peer) -> ScriptedProducer:
    """Send one message, and let its address become full under BLOCK."""
    peer.say(send("0"))
    producer = peer.broker.producer("q")
    producer.block()
    return producer


# ---- BLOCK


def test_u6_reading_stops_and_goes_on_without_loss() -> None:
    peer = Peer()
    producer = full(peer)
    assert not peer.session.paused_reading
    peer.say(send("1", "a") + send("2", "b") + send("3", "c"))
    assert peer.session.paused_reading
    assert peer.bodies() == [b"0"], "a full address takes nothing"
    peer.say(send("4", "d"))
    assert peer.bodies() == [b"0"]
    assert receipts(peer.sync()) == []
    producer.unblock()
    assert peer.wakes
    peer.hear()
    assert not peer.session.paused_reading
    assert peer.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert receipts(peer.sync()) == ["a", "b", "c", "d"]


def test_an_address_that_is_full_from_the_start() -> None:
    peer = Peer()
    peer.broker.full_addresses.add("q")
    peer.say(send("1") + send("2"))
    assert peer.session.paused_reading
    assert peer.bodies() == []
    peer.broker.producer("q").unblock()
    peer.hear()
    assert peer.bodies() == [b"1", b"2"]


def test_room_that_came_back_unseen_is_noticed() -> None:
    peer = Peer()
    producer = full(peer)
    producer.full = None
    peer.say(send("1") + send("2"))
    assert not peer.session.paused_reading
    assert peer.bodies() == [b"0", b"1", b"2"]


def test_an_address_that_is_full_again_stops_again() -> None:
    peer = Peer()
    producer = full(peer)
    take = producer.send

    def take_and_fill(run: Run) -> Outcome:
        outcome = take(run)
        producer.block()
        return outcome

    producer.send = take_and_fill  # type: ignore[method-assign,assignment]
    # Different priorities: each is a run of its own.
    peer.say(b"".join(send(str(n), f"r{n}\npriority:{n}") for n in range(1, 8)))
    rounds = 0
    while peer.session.paused_reading:
        sent = len(peer.bodies())
        assert rounds < 9
        rounds += 1
        producer.unblock()
        peer.hear()
        assert len(peer.bodies()) == min(sent + 1, 8)
    assert rounds == 7
    assert peer.bodies() == [b"%d" % n for n in range(8)]
    assert receipts(peer.sync()) == [f"r{n}" for n in range(1, 8)]


def test_nothing_stops_for_an_address_that_is_not_sent_to() -> None:
    peer = Peer()
    full(peer)
    out = peer.say(send("z", "1", "z") * 2 + b"BEGIN\ntransaction:t\nreceipt:2\n\n\0")
    assert out == b""
    assert not peer.session.paused_reading
    assert receipts(peer.sync()) == ["1", "1", "2"]


def test_frames_behind_wait_in_order_too() -> None:
    peer = Peer()
    producer = full(peer)
    peer.say(
        send("1") + send("2", "a") + send("z", "b", "z") + b"BEGIN\ntransaction:t\nreceipt:c\n\n\0"
        + b"SUBSCRIBE\nid:s\ndestination:w\nreceipt:d\n\n\0" + send("3", "e")
    )  # fmt: skip
    assert peer.broker.of("subscribe") == []
    producer.unblock()
    peer.hear()
    assert peer.bodies() == [b"0", b"1", b"2", b"z", b"3"]
    assert receipts(peer.sync()) == ["a", "b", "c", "d", "e"]


def test_silence_that_we_cause_is_not_held_against_the_peer_and_beats_go_on() -> None:
    peer = Peer("1.2", connect="heart-beat:1000,1000\n")
    producer = full(peer)
    peer.say(send("1"))
    assert peer.session.paused_reading
    start = peer.now
    for second in range(1, 20):
        peer.now = start + second
        peer.session.tick(peer.now)
        assert peer.hear() == b"\n"
    assert not peer.session.closing
    producer.unblock()
    peer.hear()
    peer.session.tick(peer.now + 1)
    assert not peer.session.closing
    assert peer.session.tick(peer.now + 3) is None


def test_a_connection_lost_while_it_waits_sends_nothing_more() -> None:
    peer = Peer()
    producer = full(peer)
    peer.say(send("1") + send("2", "a"))
    peer.session.connection_lost(peer.now)
    producer.unblock()
    assert peer.hear() == b""
    assert peer.bodies() == [b"0"]


def test_a_send_in_a_transaction_waits_as_well() -> None:
    peer = Peer()
    producer = full(peer)
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nin it\0")
    assert peer.session.paused_reading
    assert peer.say(b"COMMIT\ntransaction:t\nreceipt:c\n\n\0") == b""
    assert peer.broker.of("commit") == []
    producer.unblock()
    peer.hear()
    assert len(peer.broker.of("commit")) == 1
    assert receipts(peer.sync()) == ["c"]


def test_what_waits_counts_with_unfinished_frames_and_is_let_go() -> None:
    budget = Budget(10_000)
    one = Peer(limits=StompLimits(unfinished=budget, unfinished_free_bytes=1000))
    producer = full(one)
    one.say(send("x" * 6000, "a") + send("y" * 3000, "b"))
    assert 9000 <= budget.held <= 10_000
    other = Peer(limits=StompLimits(unfinished=budget, unfinished_free_bytes=1000))
    full(other)
    ((command, headers, body),) = frames(other.say(send("z" * 2000, "c")))
    assert (command, headers["error-code"]) == ("ERROR", "memory-full")
    assert b"10000 bytes" in body
    assert other.session.closing
    producer.unblock()
    one.hear()
    assert receipts(one.sync()) == ["a", "b"]
    assert budget.held == 0


# ---- BLOCK while deliveries wait for ACKs: the spool


def holding(version: str = "1.2", **limits: int) -> tuple[Peer, ScriptedProducer]:
    peer = Peer(version, limits=StompLimits(**limits))  # type: ignore[arg-type]
    peer.say(b"SUBSCRIBE\nid:s\ndestination:in\nack:client-individual\n\n\0")
    peer.offer("in", message(b"a", 1), message(b"b", 2))
    return peer, full(peer)


def test_a_peer_with_unacknowledged_deliveries_is_read_on() -> None:
    peer, producer = holding()
    peer.say(send("1", "r1") + send("2", "r2"))
    assert not peer.session.paused_reading
    peer.say(send("3", "r3") + b"ACK\nid:c1-1-1\nreceipt:r4\n\n\0" + send("4", "r5"))
    assert peer.broker.of("acknowledge") == [("in", [1])]
    assert peer.bodies() == [b"0"]
    assert receipts(peer.sync()) == [], "the ACK's receipt stands behind the SENDs before it"
    producer.unblock()
    peer.hear()
    assert peer.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert receipts(peer.sync()) == ["r1", "r2", "r3", "r4", "r5"]


def test_plain_acks_and_nacks_are_heard_too() -> None:
    peer, _ = holding()
    peer.say(send("1") + b"ACK\nid:c1-1-1\n\n\0NACK\nid:c1-1-2\n\n\0")
    assert peer.broker.of("acknowledge") == [("in", [1])]
    assert peer.broker.of("release failed") == [("in", [2])]


def test_reading_stops_once_nothing_is_left_to_acknowledge() -> None:
    peer, producer = holding()
    peer.say(send("1") + send("2"))
    assert not peer.session.paused_reading
    peer.say(b"ACK\nid:c1-1-1\n\n\0")
    assert not peer.session.paused_reading
    peer.say(b"ACK\nid:c1-1-2\n\n\0")
    assert peer.session.paused_reading
    producer.unblock()
    peer.hear()
    assert not peer.session.paused_reading
    assert peer.bodies() == [b"0", b"1", b"2"]


def test_a_delivery_to_a_peer_that_is_not_read_makes_it_read() -> None:
    peer = Peer()
    peer.say(b"SUBSCRIBE\nid:s\ndestination:in\nack:client\n\n\0")
    producer = full(peer)
    peer.say(send("1") + send("2") + b"ACK\nid:c1-1-1\n\n\0")
    assert peer.session.paused_reading
    peer.offer("in", message(b"a", 1), message(b"b", 2))
    assert not peer.session.paused_reading, "what it had sent was looked at as well"
    peer.say(b"ACK\nid:c1-1-2\n\n\0")
    assert [call[1] for call in peer.broker.of("acknowledge")] == [[1], [2]]
    assert peer.session.paused_reading
    producer.unblock()
    peer.hear()
    assert peer.bodies() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_only_a_full_spool_is_an_error(version: str) -> None:
    peer, producer = holding(version, spool_bytes_max=10_000)
    peer.say(send("1"))
    assert peer.say(send("x" * 4000, "a")) == b""
    ((command, headers, body),) = frames(peer.say(send("y" * 6000, "b")))
    assert (command, headers["error-code"], headers["receipt-id"]) == ("ERROR", "address-full", "b")
    assert b"10000 is the limit" in body
    assert b"Address is full" in body
    assert peer.session.closing is (version == "1.2")
    if version == "1.2":
        assert peer.broker.of("release failed") == [("in", [1, 2])]
        return
    assert peer.say(send("z", "c")) == b""
    producer.unblock()
    peer.hear()
    assert [b[:1] for b in peer.bodies()] == [b"0", b"1", b"x", b"z"]
    assert receipts(peer.sync()) == ["a", "c"]
    for _ in range(3):
        producer.block()
        peer.say(send("1") + send("w" * 5000))
        producer.unblock()
        peer.hear()
    assert not peer.session.closing, "the spool is empty each time"


def test_transactions_and_disconnect_wait_behind_the_spool() -> None:
    peer, producer = holding()
    peer.say(
        send("1") + send("2", "a")
        + b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:z\ntransaction:t\n\ny\0"
        + b"ACK\nid:c1-1-1\ntransaction:t\n\n\0COMMIT\ntransaction:t\nreceipt:b\n\n\0"
        + b"DISCONNECT\nreceipt:bye\n\n\0"
    )  # fmt: skip
    assert peer.broker.of("commit") == []
    assert not peer.session.closing
    producer.unblock()
    peer.hear()
    kinds = [call[0] for call in peer.broker.calls]
    assert kinds.index("commit") > max(n for n, kind in enumerate(kinds) if kind == "send")
    assert receipts(peer.sync()) == ["a", "b", "bye"]
    assert peer.session.closing


def acked(peer: Peer) -> list[object]:
    return [call[1] for call in peer.broker.of("acknowledge")]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_later_ack_does_not_take_what_a_transaction_has(version: str) -> None:
    """Found by the simulation: the transaction failed, and what it acknowledged was gone."""
    peer = Peer(version)
    peer.say(b"SUBSCRIBE\nid:s\ndestination:in\nack:client\n\n\0")
    peer.offer("in", message(b"a", 1), message(b"b", 2))
    producer = full(peer)
    peer.say(send("1") + send("2"))
    name = "id:c1-1-%d" if version == "1.2" else "subscription:s\nmessage-id:c1-1-%d"
    first, second = (f"ACK\n{name % number}\n".encode() for number in (1, 2))
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:z\ntransaction:t\n\ny\0")
    peer.say(first + b"transaction:t\n\n\0" + second + b"\n\0")
    assert acked(peer) == [[2]], "it makes room, and leaves the transaction what it has"
    assert peer.say(b"COMMIT\ntransaction:t\nreceipt:done\n\n\0") == b""
    producer.unblock()
    peer.hear()
    assert receipts(peer.sync()) == ["done"]
    assert acked(peer) == [[2], [1]]


def test_acks_wait_behind_one_whose_transaction_cannot_begin_yet() -> None:
    peer = Peer()
    peer.say(b"SUBSCRIBE\nid:s\ndestination:in\nack:client\n\n\0")
    peer.offer("in", message(b"a", 1), message(b"b", 2), message(b"c", 3))
    producer = full(peer)
    peer.say(b"BEGIN\ntransaction:t\n\n\0" + send("1") + send("2"))
    peer.say(b"COMMIT\ntransaction:t\n\n\0BEGIN\ntransaction:t\n\n\0")
    peer.say(b"ACK\nid:c1-1-1\ntransaction:t\n\n\0ACK\nid:c1-1-2\n\n\0ACK\nid:c1-1-3\n\n\0")
    assert acked(peer) == []
    producer.unblock()
    peer.hear()
    assert acked(peer) == [[2], [3]]
    peer.say(b"COMMIT\ntransaction:t\nreceipt:done\n\n\0")
    assert receipts(peer.sync()) == ["done"]
    assert acked(peer) == [[2], [3], [1]]


def test_an_unknown_ack_while_waiting_is_an_error_with_its_receipt() -> None:
    peer, _ = holding("1.1")
    peer.say(send("1"))
    out = peer.say(b"ACK\nsubscription:s\nmessage-id:c1-1-9\nreceipt:r\n\n\0")
    assert frames(out)[0][1]["receipt-id"] == "r"


# ---- FAIL


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_p35_a_refused_send_is_told_with_its_cause(version: str) -> None:
    peer = Peer(version)
    peer.say(send("0"))
    producer = peer.broker.producer("q")
    producer.capacity = 2
    out = peer.say(b"".join(send(str(n), f"r{n}") for n in range(1, 6)))
    out += peer.sync()
    found = [(f[0], f[1]["receipt-id"]) for f in frames(out)]
    told = [("RECEIPT", "r1"), ("RECEIPT", "r2"), ("ERROR", "r3")]
    if version != "1.2":
        told += [("ERROR", "r4"), ("ERROR", "r5")]
    assert found == told
    assert all(
        f[1]["error-code"] == "address-full" and f[2] == b"Address is full.\n"
        for f in frames(out)
        if f[0] == "ERROR"
    )
    assert peer.bodies() == [b"0", b"1", b"2"]
    assert peer.session.closing is (version == "1.2")
    assert not peer.session.paused_reading


def test_an_address_that_says_it_is_full_and_refuses_is_fail_not_block() -> None:
    peer = Peer("1.1")
    producer = full(peer)
    producer.capacity = 0
    out = peer.say(send("1", "a") + send("2", "b"))
    assert [(f[0], f[1]["receipt-id"]) for f in frames(out)] == [("ERROR", "a"), ("ERROR", "b")]
    assert not peer.session.paused_reading
    producer.capacity = None
    producer.unblock()
    assert peer.say(send("3", "c")) == b""
    assert receipts(peer.sync()) == ["c"]


def test_a_refusal_in_the_middle_does_not_stop_what_fits_again() -> None:
    peer = Peer("1.1")
    peer.say(send("0"))
    producer = peer.broker.producer("q")
    producer.capacity = 1
    refill = producer.send

    def send_and_refill(run: Run) -> Outcome:
        outcome = refill(run)
        if outcome.refusal is not None:
            producer.capacity = 5
        return outcome

    producer.send = send_and_refill  # type: ignore[method-assign,assignment]
    out = peer.say(send("1", "a") + send("2", "b") + send("3", "c")) + peer.sync()
    assert [(f[0], f[1]["receipt-id"]) for f in frames(out)] == [
        ("RECEIPT", "a"), ("ERROR", "b"), ("RECEIPT", "c"),
    ]  # fmt: skip
    assert peer.bodies() == [b"0", b"1", b"3"]


def test_a_full_disk_can_pause_instead() -> None:
    peer = Peer(limits=StompLimits(disk_full_pause=True))
    peer.say(send("0"))
    producer = peer.broker.producer("q")
    peer.broker.fill_disk()
    peer.broker.refusal = peer.broker.disk  # type: ignore[assignment]
    producer.capacity = 0
    producer.block()
    assert peer.say(send("1", "a") + send("2", "b")) == b""
    assert peer.session.paused_reading
    assert peer.bodies() == [b"0"]
    producer.capacity = None
    producer.unblock()
    assert peer.session.paused_reading
    peer.broker.free_disk()
    peer.hear()
    assert receipts(peer.sync()) == ["a", "b"]
    assert peer.bodies() == [b"0", b"1", b"2"]


def test_a_stalled_address_that_starts_to_fail_is_told_after_the_wait() -> None:
    peer = Peer("1.1")
    producer = full(peer)
    peer.say(send("1", "a") + send("2", "b"))
    producer.capacity = 0
    producer.unblock()
    out = peer.hear() + peer.sync()
    assert [(f[0], f[1]["receipt-id"]) for f in frames(out)] == [("ERROR", "a"), ("ERROR", "b")]


def test_the_time_to_live_begins_anew_when_reading_goes_on() -> None:
    peer = Peer(connect="heart-beat:500,0\n")
    producer = full(peer)
    peer.say(send("1"))
    assert peer.session.paused_reading
    due = peer.session.tick(peer.now)
    for _ in range(100):
        assert due is not None
        due = peer.session.tick(due)
    assert due is not None
    assert due > peer.now + 60, "who is not read from is never silent for too long"
    producer.unblock()
    peer.hear()
    assert not peer.session.paused_reading
    due = peer.session.tick(due)
    assert not peer.session.closing, "its beats may still be on their way"
    assert due is not None
    assert peer.session.tick(due) is None
    assert peer.session.closing


# ---- what waits costs what it takes


def spooled(frames_: bytes) -> int:
    """Return what these cost while they wait."""
    peer, _ = holding("1.2")
    peer.say(send("first"))
    before = peer.limits.unfinished.held
    peer.say(frames_)
    return peer.limits.unfinished.held - before


def test_receipts_of_what_waits_are_counted() -> None:
    assert spooled(send("x", "r" * 8000) * 10) > 80_000


def test_every_message_that_waits_costs_more_than_its_bytes() -> None:
    assert spooled(send("x") * 1000) > 60_000


def test_headers_of_what_waits_are_counted() -> None:
    many = "".join(f"h{number}:\n" for number in range(90))
    begun = "".join(f"BEGIN\ntransaction:t{number}\n{many}\n\0" for number in range(10))
    late = f"SEND\ndestination:q\ntransaction:t1\n{many}\nx\0" * 10
    assert spooled((begun + late).encode()) > 10 * 90 * 100


def test_what_waits_is_given_back_to_the_budget() -> None:
    peer, producer = holding("1.2")
    peer.say(send("1", "a") + send("2", "b") * 5 + b"BEGIN\ntransaction:t\n\n\0")
    assert peer.limits.unfinished.held > 0
    producer.unblock()
    peer.hear()
    peer.sync()
    assert peer.limits.unfinished.held == 0


def test_receipts_that_wait_for_the_disk_are_counted_and_stop_reading() -> None:
    limits = StompLimits(unconfirmed_bytes_max=10_000, unfinished_free_bytes=0)
    peer = Peer(limits=limits)
    for number in range(100):
        if peer.session.paused_reading:
            break
        assert peer.say(send("x", f"{number}-" + "r" * 1000)) == b""
        assert limits.unfinished.held > 1000 * number
    assert 5 < number < 15
    peer.now += 3600
    assert peer.session.tick(peer.now) is not None, "silence that we caused"
    assert len(receipts(peer.sync())) == number
    assert not peer.session.paused_reading
    assert limits.unfinished.held == 0
    peer.session.tick(peer.now)
    assert not peer.session.closing


def test_acks_in_one_read_end_the_connection_once_when_there_is_no_room_for_them() -> None:
    limits = StompLimits(spool_bytes_max=4000, unfinished_free_bytes=0)
    peer = Peer("1.2", limits=limits)
    peer.say(b"SUBSCRIBE\nid:0\ndestination:d\nack:client-individual\n\n\0")
    peer.offer("d", *(message(b"x", n) for n in range(1, 30)))
    full(peer)
    peer.say(send("1"))
    # An ACK that waits for its transaction's COMMIT keeps all later ones waiting.
    name = "transaction:t\n"
    peer.say(f"BEGIN\n{name}\n\0COMMIT\n{name}\n\0ACK\n{name}id:c1-1-0001\n\n\0".encode())
    acks = b"".join(b"ACK\nid:c1-1-%04d\n\n\0" % number for number in range(2, 25))
    ((command, headers, _),) = frames(peer.say(acks))
    assert (command, headers["error-code"]) == ("ERROR", "address-full")
    assert peer.session.closing
    assert limits.unfinished.held == 0


def test_receipts_that_wait_behind_the_end_are_counted_until_the_peer_is_gone() -> None:
    limits = StompLimits(unfinished_free_bytes=10)
    peer = Peer("1.2", limits=limits)
    peer.say(send("1", "a") + b"DISCONNECT\nreceipt:b\n\n\0")
    assert not peer.session.closing
    assert limits.unfinished.held > 0
    peer.session.connection_lost(peer.now)
    assert limits.unfinished.held == 0
    assert peer.sync() == b""
    assert not peer.session.closing
