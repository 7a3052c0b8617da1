"""How long a message waits that came back: the rule itself, whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses.settings import ROWS, AddressSettings
from gateway.broker.operations.redelivery import redelivery_delay


def waits(settings: AddressSettings, attempts: int, chance: float = 0.5) -> list[int]:
    return [redelivery_delay(settings, n, lambda: chance) for n in range(attempts)]


def test_it_grows_up_to_the_largest():
    settings = AddressSettings(
        redelivery_delay=5000, redelivery_delay_multiplier=2.0, max_redelivery_delay=15_000
    )
    assert waits(settings, 6) == [5000, 5000, 10_000, 15_000, 15_000, 15_000]


def test_the_largest_is_ten_delays_unless_written():
    settings = AddressSettings(redelivery_delay=100, redelivery_delay_multiplier=3.0)
    assert waits(settings, 6)[1:] == [100, 300, 900, 1000, 1000]


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 80), (0.25, 90), (0.5, 100), (0.75, 110)])
def test_chance_spreads_it(chance, wait):
    settings = AddressSettings(redelivery_delay=100, redelivery_collision_avoidance_factor=0.2)
    assert waits(settings, 2, chance)[1] == wait


def test_what_is_too_large_for_a_float_is_the_largest():
    settings = AddressSettings(
        redelivery_delay=2,
        redelivery_delay_multiplier=159.0,
        redelivery_collision_avoidance_factor=1.0,
        max_redelivery_delay=7,
    )
    assert redelivery_delay(settings, 141, lambda: 0.0) == 7


@given(
    st.integers(1, 10**9),
    st.floats(0, 1000),
    st.floats(0, 1),
    st.integers(-1, 10**12),
    st.integers(0, 0xFFFF),
    st.floats(0, 1, exclude_max=True),
)
def test_it_is_never_below_zero_nor_above_the_largest(delay, times, share, most, attempts, chance):
    settings = AddressSettings(
        redelivery_delay=delay,
        redelivery_delay_multiplier=times,
        redelivery_collision_avoidance_factor=share,
        max_redelivery_delay=most,
    )
    wait = redelivery_delay(settings, attempts, lambda: chance)
    assert 0 <= wait <= (most if most >= 0 else 10 * delay)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("redelivery_delay", -1, "below 0"),
        ("redelivery_delay_multiplier", -0.5, "between 0 and 1000"),
        ("redelivery_delay_multiplier", 1e6, "between 0 and 1000"),
        ("redelivery_collision_avoidance_factor", 1.5, "between 0 and 1"),
        ("redelivery_collision_avoidance_factor", -0.1, "between 0 and 1"),
        ("max_redelivery_delay", -2, "no limit"),
    ],
)
def test_impossible_values_are_named(field, value, why):
    problem = ROWS[field].problem(value)
    assert problem is not None
    assert why in problem
