"""A batch that nobody waits for stays open a little, and never longer than that."""

from __future__ import annotations

from gateway.store.lingering import Linger
from storage.batch import Batch
from storage.record import AddRun


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.calls = []
        self.awaited = False
        self.delivered = 0
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1

    def linger(self) -> Linger:
        return Linger(
            0.005,
            awaited=lambda: self.awaited,
            delivered=lambda: self.delivered,
            now=lambda: self.now,
            later=lambda seconds, call: self.calls.append((seconds, call)),
            flush=self.flush,
        )


def batch(number: int = 1) -> Batch:
    one = Batch(number)
    one.add(AddRun([(7, 1)], [b"x"], 0x14, 0, 1), 1)
    return one


def test_what_was_just_handed_out_and_nobody_waits_for_stays_for_the_time():
    clock = Clock()
    linger = clock.linger()
    clock.delivered = 3
    one = batch()
    assert linger(one)
    assert [seconds for seconds, _ in clock.calls] == [0.005]
    clock.now = 0.004
    assert linger(one)
    clock.now = 0.005
    assert not linger(one)
    assert len(clock.calls) == 1
    assert linger.batches == 1


def test_a_sender_that_waits_is_never_put_off():
    clock = Clock()
    linger = clock.linger()
    clock.delivered = 3
    clock.awaited = True
    assert not linger(batch())
    clock.awaited = False
    clock.delivered = 4
    one = batch()
    assert linger(one)
    clock.awaited = True
    assert not linger(one), "whoever comes to wait ends it"


def test_what_nobody_takes_is_written_at_once():
    clock = Clock()
    linger = clock.linger()
    assert not linger(batch())


def test_settlements_and_definitions_do_not_linger():
    clock = Clock()
    linger = clock.linger()
    clock.delivered = 1
    removal = Batch(1)
    removal.remove(7, 1, 1, 1)
    assert not linger(removal)
    clock.delivered = 2
    noted = batch(2)
    noted.add_note(b"{}")
    assert not linger(noted)


def test_each_batch_has_its_own_time():
    clock = Clock()
    linger = clock.linger()
    for number in (1, 2):
        clock.delivered += 1
        assert linger(batch(number))
        clock.now += 0.005
        assert not linger(batch(number))
    assert linger.batches == 2
