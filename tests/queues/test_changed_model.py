"""An index whose messages change while they are out, against lists.

Annotations of `modified` change what a message says before it comes back. What a search remembers
of it from before must neither hide it nor show it to somebody whom it is not for any more.
"""

from __future__ import annotations

from random import Random

import pytest

from gateway.model.message import SCHEDULED, Message
from gateway.queues.indexed import IndexedReady, Search, place_of

COLOURS = (b"red", b"blue", b"green")


class Wants:
    """A condition: the body is of one colour."""

    def __init__(self, colour: bytes) -> None:
        self.text = colour.decode()
        self.matches = lambda message: message.body == colour
        self.colour = colour


def order(message):
    return -message.priority, place_of(message)


class Walk:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.index = IndexedReady()
        self.takers = [Search(Wants(colour), takes=True) for colour in COLOURS[:2]]
        self.readers = [Search(Wants(colour), takes=False) for colour in COLOURS]
        self.index.searches += [*self.takers, *self.readers]
        self.waiting = []
        self.out = []
        self.next_seq = 1
        self.again = 0  # came back in another colour, of which somebody had judged it before

    def add(self) -> None:
        flags = self.random.choice([4, 4, 9])
        for _ in range(self.random.randint(1, 4)):
            message = Message(self.random.choice(COLOURS), self.next_seq, flags)
            self.next_seq += 1
            self.waiting.append(message)
            self.index.add(message)

    def take_any(self) -> None:
        taken = self.index.take(self.random.randint(1, 3))
        expected = sorted(self.waiting, key=order)[: len(taken)]
        assert taken == expected
        self.waiting = [m for m in self.waiting if m not in taken]
        self.out += taken

    def take_some(self) -> None:
        search = self.random.choice(self.takers)
        search.allowance = 1000
        count = self.random.randint(1, 3)
        fitting = sorted((m for m in self.waiting if search.condition.matches(m)), key=order)
        like = [m for m in fitting if m.priority == fitting[0].priority]
        found = self.index.find(search, count)
        assert found == like[:count]
        self.waiting = [m for m in self.waiting if m not in found]
        self.out += found

    def read(self) -> None:
        search = self.random.choice(self.readers)
        search.allowance = 1000
        fitting = {m.seq for m in self.waiting if search.condition.matches(m)}
        while found := self.index.find(search, 3):
            assert all(m.seq in fitting for m in found)
            for message in found:
                search.seen.add(message.seq)
        for message in self.waiting:
            if search.condition.matches(message):
                assert message.seq in search.seen, "hidden"

    def put_back(self) -> None:
        self.random.shuffle(self.out)
        back, self.out = self.out[:2], self.out[2:]
        for message in back:
            before = message.body
            message.body = self.random.choice(COLOURS)
            if self.random.random() < 0.2:
                message.flags |= SCHEDULED
                message.due = self.random.randint(1, 50)
            self.again += before != message.body
            self.waiting.append(message)
            self.index.put_back(message)

    def lose(self) -> None:
        lost = [m for m in self.waiting if self.random.random() < 0.1]
        self.index.remove(lost)
        self.waiting = [m for m in self.waiting if m not in lost]

    def step(self) -> None:
        does = [self.add, self.take_any, self.take_some, self.take_some, self.read]
        self.random.choice([*does, self.put_back, self.put_back, self.put_back, self.lose])()
        assert list(self.index) == sorted(self.waiting, key=order)
        for search in self.index.searches:
            kept = sum(len(heap) for heap in search.returned)
            assert kept < 20 * (len(self.waiting) + 40), "stale places pile up"


@pytest.mark.parametrize("seed", range(40))
def test_a_message_that_changes_while_it_is_out_is_judged_by_what_it_says_now(seed):
    walk = Walk(Random(seed))
    for _ in range(400):
        walk.step()
    assert walk.again > 20
