"""All ways back at once, against lists: released, failed, annotated, not here, delayed, and left.

One address with three queues that share what it takes: a plain one and two rings. Consumers come
with selectors, of annotations too, and priorities; browsers look on. The model knows of each
message what it says and to whom it must not go; what a queue pays for is counted anew from what is
there. What the walks reach is asserted too.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gateway.addresses.settings import RingVictim
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.model.message import DURABLE, SCHEDULED, SHARED
from gateway.model.run import Run
from gateway.model.sections import with_annotations
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import plain, read

QUEUES = {"q.plain": -1, "q.ring": 3, "q.small": 1}
COLOURS = ("red", "blue")
SELECTORS = ("", "", "JMS_AMQP_MA_colour = 'red'", "JMS_AMQP_MA_colour <> 'red'")
REACHED: Counter[str] = Counter()
REACHES = {
    "back",
    "failed",
    "later",
    "undeliverable here",
    "into a ring",
    "a full ring",
    "several priorities",
    "another colour",
    "a copy",
    "left with some",
    "annotated at a commit",
    "not annotated at a rollback",
}


def facts(message) -> tuple[str, str]:
    found = read(message.body)
    return found.data().decode(), found.message_annotations["colour"]


class Held:
    """A consumer, what it asked for, and the numbers that must not come to it again."""

    def __init__(self, name, taker, selector) -> None:
        self.name, self.taker, self.selector = name, taker, selector
        self.barred = set()

    def wants(self, number, colour) -> bool:
        if number in self.barred:
            return False
        return not self.selector or (colour == "red") == ("= 'red'" in self.selector)


class Returns:
    """One walk: `step` does something, `check` asserts what always holds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.core = Core(
            entry(
                "#",
                ring_victim=random.choice(list(RingVictim)),
                redelivery_delay=random.choice([0, 0, 10]),
                max_delivery_attempts=random.choice([-1, 2]),
                dead_letter_address="dead",
            )
        )
        core = self.core
        for name, size in QUEUES.items():
            core.administration.create_queue(name, "t", MULTICAST, ring_size=size)
        core.administration.create_queue("dead", "dead", ANYCAST)
        self.number = 0
        self.said = {name: {} for name in QUEUES}  # number -> colour, as the queue has it
        self.holders = []
        self.looking = []
        self.work = None
        self.retired = []  # (holder, message) of the open transaction
        self.promised = []  # (holder, number, whether it may come again) at its commit

    def step(self) -> None:
        does = [self.send] * 2 + [self.give_credit] * 3 + [self.attach] * 3
        does += [self.leave, self.look, self.look_away, self.time_passes, self.operate]
        does += [self.take_out, self.core.sync, self.end_work]
        if any(h.taker.got for h in self.holders):
            does += [self.give_back] * 8 + [self.acknowledge, self.reject]
            does += [self.settle_in_work] * 3
        self.random.choice(does)()
        self.core.turn()

    def some_queue(self) -> str:
        return self.random.choice(list(QUEUES))

    def out(self, name):
        held = [m for h in self.holders if h.name == name for m in h.taker.got]
        return held + [m for h, m in self.retired if h.name == name]

    def there(self, name):
        queue = self.core.queue(name)
        return [*queue.holdings(), *queue.storing(), *self.out(name)]

    # ---- in

    def send(self) -> None:
        random = self.random
        durable = random.random() < 0.5
        flags = random.choice([4, 4, 9, 0]) | (DURABLE if durable else 0)
        bodies = []
        for _ in range(random.randint(1, 4)):
            self.number += 1
            colour = random.choice(COLOURS)
            sent = plain(str(self.number), durable=durable)
            bodies.append(with_annotations(sent, {"colour": colour}))
            for said in self.said.values():
                said[str(self.number)] = colour
        route, _ = self.core.producer("t", MULTICAST)
        route.send(Run(bodies, flags, 0))
        route.close()

    # ---- who takes

    def attach(self) -> None:
        if len(self.holders) > 5:
            return
        name, selector = self.some_queue(), self.random.choice(SELECTORS)
        taker = self.core.consume(
            f"t::{name}",
            room=self.random.randint(0, 5),
            selector=selector,
            priority=self.random.choice([0, 0, 1]),
            routing=MULTICAST,
        )
        self.holders.append(Held(name, taker, selector))

    def look(self) -> None:
        name, selector = self.some_queue(), self.random.choice(SELECTORS)
        if len(self.looking) < 2:
            taker = self.core.consume(
                f"t::{name}", room=1000, selector=selector, browse=True, routing=MULTICAST
            )
            self.looking.append(taker)

    def look_away(self) -> None:
        if self.looking:
            self.looking.pop().hold.close()

    def give_credit(self) -> None:
        if self.holders:
            self.random.choice(self.holders).taker.take(self.random.randint(1, 4))

    def picked(self):
        """Return somebody who holds something, and some of it, which he has no more."""
        holder = self.random.choice([h for h in self.holders if h.taker.got])
        got = holder.taker.got
        back = [m for m in got if self.random.random() < 0.5] or got[:1]
        self.random.shuffle(back)
        holder.taker.got = [m for m in got if m not in back]
        return holder, back

    def acknowledge(self) -> None:
        holder, messages = self.picked()
        holder.taker.hold.acknowledge(messages)

    def give_back(self) -> None:
        holder, messages = self.picked()
        failed, away = self.random.random() < 0.5, self.random.random() < 0.3
        hold = holder.taker.hold
        REACHED["back"] += 1
        REACHED["failed"] += failed
        REACHED["into a ring"] += QUEUES[holder.name] >= 0
        REACHED["several priorities"] += len({m.priority for m in messages}) > 1
        if away:
            REACHED["undeliverable here"] += 1
            holder.barred |= {facts(m)[0] for m in messages}
        colour = self.random.choice([None, *COLOURS])
        if colour is not None:
            self.paint(holder, messages, colour)
            more = "x" * self.random.randint(0, 40)
            hold.annotate(messages, {"colour": colour, "more": more}, 100_000)
        hold.release(
            messages,
            failed=failed,
            undeliverable_here=away,
            delayed=self.random.random() < 0.5,
        )
        REACHED["later"] += self.core.queue(holder.name).scheduled_count > 0

    def paint(self, holder, messages, colour) -> None:
        for message in messages:
            number, before = facts(message)
            REACHED["another colour"] += colour != before
            REACHED["a copy"] += bool(message.flags & SHARED and message.share[0] > 1)
            self.said[holder.name][number] = colour

    def reject(self) -> None:
        holder, messages = self.picked()
        before = self.core.queue("dead").added
        holder.taker.hold.reject(messages)
        assert self.core.queue("dead").added == before + len(messages)

    def leave(self) -> None:
        if not self.holders:
            return
        holder = self.random.choice(self.holders)
        if any(h is holder for h, _ in self.retired):
            return
        self.holders.remove(holder)
        REACHED["left with some"] += bool(holder.taker.got)
        holder.taker.leave(failed=self.random.random() < 0.5)

    # ---- transactions

    def settle_in_work(self) -> None:
        self.work = self.work or self.core.gateway.begin()
        holder, messages = self.picked()
        hold = holder.taker.hold
        self.retired += [(holder, m) for m in messages]
        how = self.random.choice(["accepted", "released", "modified", "rejected"])
        if how == "accepted":
            self.work.acknowledge(hold, messages)
        elif how == "rejected":
            self.work.reject(hold, messages, dead_letter=True)
        elif how == "released":
            self.work.release(hold, messages)
        else:
            away = self.random.random() < 0.3
            self.work.annotate(hold, messages, {"colour": "blue"}, 100_000)
            self.work.release(hold, messages, failed=True, undeliverable_here=away)
            self.promised += [(holder, facts(m)[0], away) for m in messages]

    def end_work(self) -> None:
        work, self.work = self.work, None
        if work is None:
            return
        promised, self.promised, self.retired = self.promised, [], []
        if self.random.random() < 0.5:
            REACHED["annotated at a commit"] += bool(promised)
            for holder, number, away in promised:
                self.said[holder.name][number] = "blue"
                holder.barred |= {number} if away else set()
            work.commit()
        else:
            REACHED["not annotated at a rollback"] += bool(promised)
            work.rollback()

    # ---- the operator, time

    def time_passes(self) -> None:
        self.core.pass_time(self.random.choice([1, 5, 20]))

    def operate(self) -> None:
        name, how = self.some_queue(), self.random.choice(["pause", "go", "go", "go", "purge"])
        if how == "purge":
            self.core.queue(name).purge()
        else:
            self.core.administration.update_queue(name, paused=how == "pause")

    def take_out(self) -> None:
        queue = self.core.queue(self.some_queue())
        seqs = [m.seq for m in queue.holdings()]
        queue.take_out({seq for seq in seqs if self.random.random() < 0.2}, Gone.REMOVED)

    # ---- what always holds

    def check(self) -> None:
        self.core.check()
        for name, size in QUEUES.items():
            self.check_queue(name, size)
        self.check_consumers()
        self.check_account()

    def check_queue(self, name, size) -> None:
        """Each message says what it should and is there once, in order, and within the ring."""
        queue = self.core.queue(name)
        found = [facts(m) for m in self.there(name)]
        assert len({number for number, _ in found}) == len(found) == queue.message_count
        assert queue.delivering == len(self.out(name))
        for number, colour in found:
            assert self.said[name][number] == colour, (name, number)
        waiting = queue.browse(0, 1000)
        at_once = [m for m in waiting if not m.flags & SCHEDULED]
        assert at_once == sorted(at_once, key=lambda m: (-m.priority, m.seq))
        assert size < 0 or len(waiting) <= size
        REACHED["a full ring"] += len(waiting) == size

    def check_consumers(self) -> None:
        """Nobody got what is not for him, and nobody with room waits for what is there."""
        for holder in self.holders:
            queue = self.core.queue(holder.name)
            for message in holder.taker.got:
                assert holder.wants(*facts(message)), facts(message)
            if holder.taker.room() > 0 and not queue.paused:
                for message in queue.browse(0, 1000):
                    assert not holder.wants(*facts(message)), "forgotten"

    def check_account(self) -> None:
        """What is paid for is what is there: a body that several queues hold once."""
        copies, distinct = 0, {}
        for name in QUEUES:
            there = self.there(name)
            copies += len(there)
            assert self.core.queue(name).size_bytes == sum(len(m.body) for m in there)
            for message in there:
                key = id(message.share) if message.flags & SHARED else (name, message.seq)
                distinct[key] = len(message.body)
        account = self.core.gateway.addresses["t"]
        assert account.messages == len(distinct)
        assert account.size_bytes == sum(distinct.values()) + OVERHEAD_BYTES * copies


def walk(seed: int) -> None:
    returns = Returns(Random(seed))
    for _ in range(150):
        returns.step()
        returns.check()


@pytest.mark.parametrize("seed", range(30))
def test_all_ways_back_against_lists(seed):
    walk(seed)


def test_the_walks_reach_every_way_back():
    REACHED.clear()
    for seed in range(10):
        walk(seed)
    assert REACHED["back"] > 150
    rare = {what: count for what, count in REACHED.items() if count < 5}
    assert not rare
    assert set(REACHED) == REACHES


def test_a_queue_that_is_exclusive_no_more_serves_all_by_their_priority():
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST, attributes={"exclusive": True})
    low = core.consume("q", room=1, priority=0)
    high = core.consume("q", room=2, priority=1)
    core.send("q", b"a", b"b", b"c", b"d")
    assert (low.bodies(), high.bodies()) == ([b"a"], [])
    core.administration.update_queue("q", attributes={"exclusive": False})
    core.turn()
    assert high.bodies() == [b"b", b"c"]
    low.release(undeliverable_here=True)
    low.take(5)
    core.turn()
    assert low.bodies() == [b"d"]
    high.take(1)
    core.turn()
    assert high.bodies() == [b"b", b"c", b"a"], "what one is barred from goes to the other"
    core.check()
