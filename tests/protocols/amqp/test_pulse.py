"""Silence both ways: the edges of when a peer is dead, and when it is to hear something."""

from __future__ import annotations

import pytest

from protocols.amqp.pulse import Pulse


def pulse(*, idle_ms=0, remote_idle=0.0) -> Pulse:
    made = Pulse(idle_ms)
    made.remote_idle = remote_idle
    made.last_in = made.last_out = 100.0
    return made


@pytest.mark.parametrize(
    ("idle_ms", "now", "dead", "looks"),
    [
        (0, 10_000.0, False, []),
        (4000, 100.0, False, [104.0]),
        (4000, 103.75, False, [104.0]),
        (4000, 103.99, False, [104.04]),
        (4000, 104.0, True, [104.05]),
    ],
)
def test_a_silent_peer_is_dead_in_time(idle_ms, now, dead, looks):
    one = pulse(idle_ms=idle_ms)
    assert one.is_dead(now) is dead
    assert one.deadlines(now) == pytest.approx(looks)


@pytest.mark.parametrize(
    ("remote_idle", "now", "due", "looks"),
    [
        (0.0, 10_000.0, False, []),
        (8.0, 103.5, False, [104.0]),
        (8.0, 104.0, True, [108.0]),
        (8.0, 106.0, True, [110.0]),
    ],
)
def test_a_peer_hears_something_after_half_of_its_time(remote_idle, now, due, looks):
    one = pulse(remote_idle=remote_idle)
    assert one.is_due(now) is due
    assert one.deadlines(now) == looks
