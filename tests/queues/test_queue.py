"""Corners of the queue that chance finds rarely, and the order of its ready messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.message import DURABLE, EXPIRES, Message
from gateway.model.run import Run
from gateway.queues.queue import Gone, Queue
from gateway.queues.ready import Ready


class Effects:
    def __init__(self) -> None:
        self.left = []
        self.counts = []

    def gone(self, queue, messages, why, size) -> int:
        self.left += [(why, m.seq, bool(queue.any_flags & m.flags & DURABLE)) for m in messages]
        return 0

    def synced_below(self, queue) -> int:
        return queue.next_seq

    def counted(self, queue, messages) -> int:
        self.counts += [(m.seq, m.delivery_count) for m in messages]
        return 0


class Taker:
    def __init__(self, queue: Queue, room: int, priority: int = 0) -> None:
        self.queue = queue
        self.left = room
        self.got = []
        self.flags = []
        self.on_deliver = None
        self.held = queue.attach(self, priority)

    def room(self) -> int:
        return self.left

    def deliver(self, messages, any_flags) -> None:
        self.left -= len(messages)
        self.got += messages
        self.flags.append(any_flags)
        if self.on_deliver is not None:
            self.on_deliver(messages)

    def seqs(self):
        return [m.seq for m in self.got]


def queue_with(*shapes, ring: int = -1) -> Queue:
    """A queue with messages given as (flags, expires)."""
    queue = Queue("q", "a", 1, Effects())
    queue.ring_size = ring
    for flags, expires in shapes:
        queue.add_run(Run([b"abc"], flags | (EXPIRES if expires else 0), expires))
        queue.trim_ring(1)
    return queue


def test_what_expires_beside_the_last_messages_leaves_their_flags():
    queue = queue_with((DURABLE | 4, 10), (DURABLE | 4, 1000))
    taker = Taker(queue, 5)
    assert queue.dispatch(20, 100) == 1
    assert taker.seqs() == [2]
    assert taker.flags[0] & (DURABLE | EXPIRES) == DURABLE | EXPIRES
    queue.acknowledge(taker.held, taker.got)
    # The record of the second is found as well: both were durable when they left.
    assert queue._effects.left == [(Gone.EXPIRED, 1, True), (Gone.ACKNOWLEDGED, 2, True)]


def test_what_is_barred_from_the_first_goes_to_a_consumer_of_lower_priority():
    queue = queue_with((4, 0), (4, 0))
    high = Taker(queue, 1, priority=5)
    queue.dispatch(0, 100)
    high.held.bar(high.got)
    queue.release(high.held, high.got)
    high.left = 5
    low = Taker(queue, 5)
    queue.dispatch(0, 100)
    assert (high.seqs(), low.seqs()) == ([1, 2], [1])
    queue.check_invariants()


def test_a_barred_message_keeps_its_place_for_others():
    queue = queue_with((4, 0), (4, 0), (4, 0))
    first = Taker(queue, 2)
    queue.dispatch(0, 100)
    first.held.bar(first.got)
    queue.release(first.held, first.got)
    first.left = 9
    queue.dispatch(0, 100)
    assert first.seqs() == [1, 2, 3]
    second = Taker(queue, 9)
    queue.dispatch(0, 100)
    assert second.seqs() == [1, 2]


def test_a_consumer_that_left_while_another_was_served_gets_nothing():
    queue = queue_with((4, 0), (4, 0))
    one, other = Taker(queue, 1), Taker(queue, 1)
    one.on_deliver = lambda messages: queue.detach(other.held)
    queue.dispatch(0, 100)
    assert (one.seqs(), other.seqs()) == ([1], [])
    assert queue.ready_count == 1
    queue.check_invariants()


def test_what_a_deleted_queue_gets_back_is_gone_and_counted_once():
    queue = queue_with((DURABLE | 4, 0), (DURABLE | 4, 0), (DURABLE | 4, 0), (4, 0))
    taker = Taker(queue, 3)
    queue.dispatch(0, 100)
    queue.delete()
    assert (queue.ready_count, queue.delivering, queue.killed) == (0, 3, 1)
    one, two, three = taker.got
    queue.acknowledge(taker.held, [one])
    queue.release(taker.held, [two, three])
    assert (queue.delivering, queue.acknowledged, queue.killed) == (0, 1, 3)
    assert queue.size_bytes == 0
    queue.detach(taker.held)
    queue.check_invariants()


def test_a_purge_counts_as_killed_and_sends_no_dead_letters():
    queue = queue_with((4, 0), (9, 0), (0, 0))
    assert queue.purge() == 3
    assert (queue.killed, queue.acknowledged, queue.message_count) == (3, 0, 0)
    assert {why for why, _, _ in queue._effects.left} == {Gone.REMOVED}


def test_only_what_stays_has_its_count_recorded():
    queue = queue_with(*[(DURABLE | 4, 0)] * 4)
    queue.returns.max_attempts = 2
    taker = Taker(queue, 4)
    queue.dispatch(0, 100)
    taker.got[0].flags += 1 << 16
    queue.ring_size = 1
    queue.release(taker.held, taker.got, failed=True)
    assert queue._effects.counts == [(4, 1)]
    assert (queue.killed, queue.replaced, queue.ready_count) == (1, 2, 1)


def test_shares_of_a_run_are_dealt_evenly_and_one_at_a_time_goes_round():
    queue = queue_with(*[(4, 0)] * 9)
    takers = [Taker(queue, 9) for _ in range(3)]
    queue.dispatch(0, 100)
    assert [len(t.got) for t in takers] == [3, 3, 3]
    for _ in range(3):
        queue.add_run(Run([b"x"], 4, 0))
        queue.dispatch(0, 100)
    assert [len(t.got) for t in takers] == [4, 4, 4]


@pytest.mark.parametrize("evicts_next", [False, True])
def test_ring_victims_are_foreseen_in_order(evicts_next):
    queue = queue_with((4, 0), (9, 0), (4, 0), (0, 0))
    queue.ring.evicts_next = evicts_next
    foreseen = [m.seq for m in queue.victims()]
    assert foreseen == ([2, 1, 3, 4] if evicts_next else [1, 2, 3, 4])
    queue.ring_size = 1
    assert queue.trim() == 3
    assert [seq for _, seq, _ in queue._effects.left] == foreseen[:3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "take", "back", "back", "oldest", "next", "remove"]),
            st.integers(0, 9),
            st.randoms(use_true_random=False),
        ),
        max_size=60,
    )
)
def test_ready_is_a_sorted_list(steps):
    ready, naive, out, seq = Ready(), [], [], 0

    def key(m):
        return (-(m.flags & 0xF), m.seq)

    for what, number, chance in steps:
        if what == "add":
            for _ in range(number):
                seq += 1
                message = Message(b"", seq, chance.choice([0, 4, 9]))
                ready.add(message)
                naive.append(message)
        elif what == "take":
            taken = ready.take(number)
            naive.sort(key=key)
            assert taken == naive[: len(taken)]
            assert len({m.priority for m in taken}) <= 1
            assert bool(taken) == bool(naive and number)
            naive = naive[len(taken) :]
            out += taken
        elif what == "back" and out:
            message = out.pop(chance.randrange(len(out)))
            ready.put_back(message)
            naive.append(message)
        elif what in ("oldest", "next"):
            count = min(number, len(naive))
            naive.sort(key=(lambda m: m.seq) if what == "oldest" else key)
            taken = ready.take_oldest(count) if what == "oldest" else ready.take_next(count)
            assert taken == naive[:count]
            naive = naive[count:]
        elif what == "remove":
            doomed = {m.seq for m in naive if m.seq % 3 == number % 3}
            assert {m.seq for m in ready.remove_if(doomed)} == doomed
            naive = [m for m in naive if m.seq not in doomed]
        naive.sort(key=key)
        assert list(ready) == naive
        assert len(ready) == len(naive)
    assert ready.clear() == naive
    assert not ready.take(5)


class Guesser(Taker):
    """Has little room until it has seen how large messages are, as a link of AMQP."""

    def room(self) -> int:
        return self.left if self.got else min(17, self.left)


class Even:
    """A selector that all messages meet."""

    text = "TRUE"

    @staticmethod
    def matches(message) -> bool:
        return True


@pytest.mark.parametrize("condition", [None, Even()])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_one_that_guessed_its_room_has_its_share_all_the_same(condition, first) -> None:
    queue = Queue("q", "a", 1, Effects())
    takers = [Guesser(queue, 1001), Guesser(queue, 3003)]
    if condition is not None:
        for taker in takers:
            queue.detach(taker.held)
            taker.held = queue.attach(taker, 0, condition)
    for count in (first, 1000 - first):
        for at in range(count):
            queue.add_run(Run([b"abc"], (4, 4, 9)[at % 3]))
        while queue.dispatch(0, 2048):
            pass
    one, other = (len(taker.got) for taker in takers)
    assert one + other == 1000
    assert abs(one - other) <= 1
