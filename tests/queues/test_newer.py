"""How many messages are newer than one: what a ring asks when messages come back, and its cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.message import SCHEDULED, Message
from gateway.model.run import Run
from gateway.queues.indexed import IndexedReady
from gateway.queues.queue import Queue
from gateway.queues.ready import Ready
from tests.queues.test_queue import Effects, Taker

LONG = 10_000


class Watched:
    """A message that counts how often somebody looks when it was sent."""

    looks = 0

    def __init__(self, seq: int) -> None:
        self._seq = seq
        self.flags = 4

    @property
    def seq(self) -> int:
        Watched.looks += 1
        return self._seq


@pytest.mark.parametrize("kind", [Ready, IndexedReady])
@given(
    shapes=st.lists(
        st.tuples(st.sampled_from([0, 4, 9]), st.sampled_from(["stays", "back", "gone", "due"])),
        max_size=30,
    ),
    chance=st.randoms(use_true_random=False),
)
def test_whether_so_many_are_newer_is_what_counting_says(kind, shapes, chance):
    ready, there, back = kind(), [], []
    for seq, (priority, fate) in enumerate(shapes, start=1):
        message = Message(b"", seq, priority)
        if fate == "due":
            message.flags |= SCHEDULED
            message.due = chance.randrange(50)
            back.append(message)
        else:
            ready.add(message)
            there.append(message)
            if fate == "gone":
                back.append(message)
    ready.remove_if({m.seq for m in back})
    there = [m for m in there if m not in back]
    chance.shuffle(back)
    for message in back[: len(back) // 2]:
        ready.put_back(message)
        there.append(message)
    for seq in range(len(shapes) + 2):
        newer = sum(m.seq > seq for m in there)
        for least in range(1, len(there) + 2):
            assert ready.has_newer(seq, least) == (newer >= least)


@pytest.mark.parametrize("kind", [Ready, IndexedReady])
def test_a_long_ring_is_not_walked_through_for_one_that_comes_back(kind):
    ready = kind()
    ready.add_run([Watched(seq) for seq in range(1, LONG + 1)], 4)
    Watched.looks = 0
    assert ready.has_newer(LONG // 2, LONG // 2)
    assert not ready.has_newer(LONG // 2, LONG // 2 + 1)
    assert Watched.looks < 100


def queue_of(*consumers: tuple[int, int]) -> tuple[Queue, list[Taker]]:
    """A queue without messages and its consumers, given as (room, priority)."""
    queue = Queue("q", "a", 1, Effects())
    return queue, [Taker(queue, room, priority) for room, priority in consumers]


@pytest.mark.parametrize("leaves", range(5))
@pytest.mark.parametrize("rounds", range(5))
@pytest.mark.parametrize("below", [0, 2])
def test_whose_turn_it_is_does_not_change_when_another_one_leaves(leaves, rounds, below):
    queue, takers = queue_of(*[(99, 5)] * 5, *[(99, 1)] * below)
    for _ in range(rounds):
        queue.add_run(Run([b"abc"], 4, 0))
        queue.dispatch(0, 1)
    turn = takers[rounds % 5] if rounds % 5 != leaves else takers[(leaves + 1) % 5]
    before = len(turn.got)
    if takers[leaves].got:
        queue.acknowledge(takers[leaves].held, takers[leaves].got)
    queue.detach(takers[leaves].held)
    queue.add_run(Run([b"abc"], 4, 0))
    queue.dispatch(0, 1)
    assert len(turn.got) == before + 1
