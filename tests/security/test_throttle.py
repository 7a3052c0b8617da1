"""Guessing is slowed down, and forgotten again."""

from __future__ import annotations

import pytest

from gateway.security.throttle import (
    PAIRS_MAX,
    PLACE_FAILURES,
    PLACE_SECONDS,
    USER_FAILURES,
    USER_SECONDS,
    FailureThrottle,
    place_of,
)

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
    for _ in range(4):
        throttle.failed(PAIR, 0.0)
    assert throttle.allows(PAIR, 0.0)


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


def test_one_address_that_tries_many_users_is_slowed_and_others_there_are_not() -> None:
    throttle = FailureThrottle()
    throttle.succeeded(("10.0.0.9", "carl"))
    tried = 0
    for second in range(3600):
        user = f"user-{second}"
        if throttle.allows(("10.0.0.9", user), float(second)):
            throttle.failed(("10.0.0.9", user), float(second))
            tried += 1
    assert (
        PLACE_FAILURES + 3600 / PLACE_SECONDS - 10 < tried < PLACE_FAILURES + 3610 / PLACE_SECONDS
    )
    assert throttle.closed_for(("10.0.0.9", "new"), 3599.0) <= PLACE_SECONDS
    # Who came in from there before goes on to; whoever comes from elsewhere as well.
    assert throttle.allows(("10.0.0.9", "carl"), 3599.0)
    assert throttle.allows(("10.0.0.8", "new"), 3599.0)


def test_many_addresses_that_try_one_user_are_slowed_and_the_user_is_not() -> None:
    throttle = FailureThrottle()
    throttle.succeeded(("192.0.2.1", "ann"))
    tried = 0
    for second in range(3600):
        address = f"10.{second // 250}.{second % 250}.1"
        if throttle.allows((address, "ann"), float(second)):
            throttle.failed((address, "ann"), float(second))
            tried += 1
    assert USER_FAILURES + 3600 / USER_SECONDS - 10 < tried < USER_FAILURES + 3610 / USER_SECONDS
    assert not throttle.allows(("203.0.113.5", "ann"), 3599.0)
    assert throttle.closed_for(("203.0.113.5", "ann"), 3599.0) <= USER_SECONDS
    assert throttle.allows(("192.0.2.1", "ann"), 3599.0)
    assert throttle.allows(("203.0.113.5", "bob"), 3599.0)


def test_many_tries_at_once_hold_nobody_back_for_long() -> None:
    throttle = FailureThrottle()
    for n in range(5000):
        throttle.failed((f"10.0.{n // 250}.{n % 250}", "ann"), 0.0)
    assert throttle.closed_for(("203.0.113.5", "ann"), 0.0) <= USER_SECONDS


def test_an_ipv6_network_is_one_address() -> None:
    throttle = FailureThrottle()
    for n in range(5):
        throttle.failed((f"2001:db8::{n + 1:x}", "ann"), 0.0)
    assert not throttle.allows(("2001:db8::ffff", "ann"), 0.0)
    assert throttle.allows(("2001:db8:0:1::1", "ann"), 0.0)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_what_counts_as_one_address(address: str, place: str) -> None:
    assert place_of(address) == place


@pytest.mark.parametrize("here", ["127.0.0.1", "::1", "::ffff:127.0.0.1", ""])
def test_this_machine_is_many_clients(here: str) -> None:
    throttle = FailureThrottle()
    for n in range(200):
        throttle.failed((here, f"user-{n}"), 0.0)
    assert throttle.allows((here, "other"), 0.0)


def test_a_name_is_the_same_user_however_it_is_written() -> None:
    throttle = FailureThrottle()
    for name in ("ann", "ANN", " Ann", "aNN ", "ann"):
        throttle.failed(("10.0.0.1", name), 0.0)
    assert not throttle.allows(("10.0.0.1", "anN"), 0.0)


def test_every_table_is_bounded() -> None:
    throttle = FailureThrottle()
    for n in range(PAIRS_MAX + 50):
        throttle.failed((f"10.{n // 65536}.{n // 256 % 256}.{n % 256}", f"user-{n}"), 0.0)
        throttle.succeeded((f"10.{n // 65536}.{n // 256 % 256}.{n % 256}", f"user-{n}"))
    assert len(throttle) == PAIRS_MAX
