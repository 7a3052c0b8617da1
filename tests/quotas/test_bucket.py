"""The arithmetic of token buckets: never more than the burst and the rate, and never starving."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.model.quota import Limit, Scope
from gateway.quotas.bucket import Bucket
from gateway.quotas.meter import Meter

rates = st.integers(1, 1_000_000)
bursts = st.floats(0.01, 60.0)
steps = st.lists(
    st.tuples(st.floats(0, 3.0), st.integers(1, 500), st.integers(0, 5000)), max_size=60
)


def meter(now: float = 0.0, **limits: int) -> Meter:
    one = Meter(Scope.USER, "ann")
    there = {row: Limit(value=value, key=row, origin="x") for row, value in limits.items()}
    one.use(there, now)
    return one


@given(rate=rates, burst=bursts, moves=steps)
def test_what_is_allowed_is_never_more_than_the_burst_and_the_rate(rate, burst, moves):
    bucket = Bucket(rate, rate * burst, 0.0)
    now = passed = 0.0
    for pause, wanted, _ in moves:
        now += pause
        taken = min(wanted, max(0, int(bucket.level(now))))
        bucket.take(taken, now)
        passed += taken
        assert passed <= bucket.capacity + rate * now + 1e-6 * (1 + passed)


@given(rate=rates, burst=bursts, moves=steps)
def test_in_any_stretch_of_time_as_well(rate, burst, moves):
    bucket = Bucket(rate, rate * burst, 0.0)
    now, total = 0.0, 0
    marks = [(0.0, 0)]
    for pause, wanted, _ in moves:
        now += pause
        taken = min(wanted, max(0, int(bucket.level(now))))
        bucket.take(taken, now)
        total += taken
        for since, before in marks:
            assert total - before <= bucket.capacity + rate * (now - since) + 1e-3
        marks.append((now, total))


@given(rate=rates, burst=bursts, debt=st.integers(0, 100_000))
def test_a_debt_is_paid_in_the_time_that_it_says_and_nobody_starves(rate, burst, debt):
    bucket = Bucket(rate, rate * burst, 0.0)
    bucket.take(bucket.capacity + debt, 0.0)
    seconds = bucket.wait(1, 0.0)
    assert math.isclose(seconds, (debt + 1) / rate)
    assert bucket.level(seconds + 1e-6 + seconds * 1e-9) >= 1 - 1e-3
    assert bucket.wait(1e18, 1e9) == 0  # what it cannot hold it does not wait for


@given(rate=rates, back=st.floats(0, 1e6))
def test_a_clock_that_goes_back_adds_nothing_and_is_not_waited_for(rate, back):
    bucket = Bucket(rate, rate, 1e6)
    bucket.take(rate, 1e6)
    assert bucket.level(1e6 - back) <= 1e-6 * rate
    assert bucket.level(1e6 - back + 1) >= min(rate, bucket.capacity) * 0.999


@given(rate=rates, other=rates, debt=st.integers(0, 10_000_000))
def test_with_another_rate_nobody_waits_longer_than_that_has_it(rate, other, debt):
    bucket = Bucket(rate, rate, 0.0)
    bucket.take(debt, 0.0)
    bucket.change(other, other, 0.0)
    assert bucket.level(0.0) <= bucket.capacity
    assert bucket.wait(1, 0.0) <= (bucket.capacity + 1) / other + 1e-9


@given(messages=rates, size=st.integers(1024, 1 << 30), moves=steps)
def test_a_flow_lets_pass_what_both_of_its_buckets_do(messages, size, moves):
    flow = meter(messages_in=messages, bytes_in=size).inward
    now, count, total = 0.0, 0, 0
    for pause, wanted, each in moves:
        now += pause
        taken = min(wanted, flow.allowed(each, now))
        flow.take(taken, taken * each, now)
        count += taken
        total += taken * each
        assert count <= messages + messages * now + 1e-3
        # The last one is taken as long as something is left, whatever it has.
        assert total <= size + size * now + max(step[2] for step in moves) + 1


@given(messages=rates, size=st.integers(1024, 1 << 24), each=st.integers(0, 1 << 24))
def test_something_always_passes_after_the_wait(messages, size, each):
    flow = meter(messages_out=messages, bytes_out=size).outward
    now = 0.0
    for _ in range(5):
        most = flow.allowed(each, now)
        if not most:
            now += flow.wait(now) + 1e-3
            most = flow.allowed(each, now)
        assert most >= 1
        flow.take(1, each, now)


def test_the_limit_that_holds_for_longest_is_the_one_that_is_named():
    flow = meter(messages_in=1000, bytes_in=1024).inward
    flow.take(1001, 100_000, 0.0)
    assert flow.row_in_force(0.0) == "bytes_in"
    told = flow.refusal(0.0)
    assert told.transient
    assert "bytes_in is 1024 a second (x)" in told.text
    assert told.wait == flow.wait(0.0) > 90
