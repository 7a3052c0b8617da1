"""Guessing is slowed down, and forgotten again."""

from __future__ import annotations

from gateway.security.throttle import PAIRS_MAX, FailureThrottle

PAIR = ("10.0.0.1", "ann")


def test_the_fifth_failure_closes_the_door_for_twelve_seconds() -> None:
    throttle = FailureThrottle()
    for _ in range(4):
        throttle.failed(PAIR, 0.0)
        assert throttle.allows(PAIR, 0.0)
    throttle.failed(PAIR, 0.0)
    assert not throttle.allows(PAIR, 11.9)
    assert throttle.allows(PAIR, 12.0)
    assert throttle.allows(("10.0.0.2", "ann"), 0.0)
    assert throttle.allows(("10.0.0.1", "bob"), 0.0)


def test_the_wait_doubles_up_to_five_minutes() -> None:
    throttle = FailureThrottle()
    now, waits = 0.0, []
    for _ in range(4):
        throttle.failed(PAIR, now)
    for _ in range(7):
        throttle.failed(PAIR, now)
        start = now
        while not throttle.allows(PAIR, now):
            now += 1.0
        waits.append(now - start)
    assert waits == [12.0, 24.0, 48.0, 96.0, 192.0, 300.0, 300.0]


def test_a_right_password_forgets() -> None:
    throttle = FailureThrottle()
    for _ in range(5):
        throttle.failed(PAIR, 0.0)
    throttle.succeeded(PAIR)
    assert throttle.allows(PAIR, 0.0)
    assert len(throttle) == 0


def test_a_quiet_minute_forgets() -> None:
    throttle = FailureThrottle()
    for _ in range(5):
        throttle.failed(PAIR, 0.0)
    throttle.failed(PAIR, 12.0 + 60.0)
    assert throttle.allows(PAIR, 72.0)


def test_slow_failures_never_close_the_door() -> None:
    throttle = FailureThrottle()
    for n in range(50):
        throttle.failed(PAIR, n * 15.0)
        assert throttle.allows(PAIR, n * 15.0)


def test_memory_is_bounded() -> None:
    throttle = FailureThrottle()
    for n in range(PAIRS_MAX + 50):
        throttle.failed((str(n), "ann"), 0.0)
    assert len(throttle) == PAIRS_MAX
