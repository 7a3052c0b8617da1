"""What waits for room: its order, what it costs, and what may pass it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.stomp.frame import Head
from protocols.stomp.sending import Route, Sender
from protocols.stomp.spool import Spool, WaitingFrame, WaitingSends


def frame(command: str, transaction: str | None = None, receipt: bytes | None = None) -> Head:
    head = Head(command, {} if transaction is None else {"transaction": transaction}, -1)
    head.receipt = receipt
    return head


def waiting(command: str, transaction: str | None = None) -> WaitingFrame:
    return WaitingFrame(frame(command, transaction), b"")


def sends(*bodies: bytes, receipts: tuple[bytes, ...] = ()) -> WaitingSends:
    route = Route(Sender(lambda _: None, lambda _: None), 0, 0)
    return WaitingSends(route, list(bodies), list(receipts))


def test_what_came_first_leaves_first_and_all_is_counted() -> None:
    spool = Spool(10_000)
    second, third, first = waiting("SUBSCRIBE"), sends(b"x"), sends(b"y")
    assert not spool
    assert spool.add(second)
    assert spool.add(third)
    spool.add_first(first)
    assert spool.size == first.cost() + second.cost() + third.cost()
    assert [spool.take() for _ in range(3)] == [first, second, third]
    assert (spool.size, bool(spool)) == (0, False)


def test_what_does_not_fit_is_not_kept() -> None:
    one = waiting("SUBSCRIBE")
    spool = Spool(2 * one.cost())
    assert spool.add(one)
    assert spool.add(waiting("ABORT"))
    assert not spool.add(waiting("ACK"))
    assert (spool.size, spool.keeps_acks) == (2 * one.cost(), False)
    spool.add_first(sends(b"x"))
    assert spool.size > 2 * one.cost(), "what was taken already always fits"


def test_headers_and_receipts_cost_something() -> None:
    assert waiting("ACK").cost() < waiting("ACK", "t").cost() < waiting("ACK", "t" * 99).cost()
    assert sends(b"x").cost() < sends(b"x", receipts=(b"7",)).cost()
    assert WaitingFrame(frame("ACK", receipt=b"7"), b"").cost() > waiting("ACK").cost()
    assert WaitingFrame(frame("SEND"), b"12345").cost() == waiting("SEND").cost() + 5


def test_the_receipt_that_a_refusal_answers() -> None:
    assert sends(b"x", b"y", receipts=(b"1", b"2")).receipt == b"2"
    assert sends(b"x").receipt is None
    assert WaitingFrame(frame("ACK", receipt=b"3"), b"").receipt == b"3"


def test_a_run_is_cut_in_two() -> None:
    run = sends(b"a", b"b", b"c", receipts=(b"1", b"2", b"3"))
    first = run.cut(1)
    assert (first.bodies, first.receipts) == ([b"a"], [b"1"])
    assert (run.bodies, run.receipts) == ([b"b", b"c"], [b"2", b"3"])


# ---- what may pass


@pytest.mark.parametrize(
    ("command", "passes"),
    [
        ("ACK", True),
        ("NACK", True),
        ("BEGIN", True),
        ("COMMIT", False),
        ("ABORT", False),
        ("SUBSCRIBE", False),
        ("UNSUBSCRIBE", False),
        ("SEND", False),
    ],
)
def test_settlements_and_what_they_need_pass(command: str, passes: bool) -> None:
    spool = Spool(10_000)
    spool.add(sends(b"x"))
    assert spool.lets_pass(frame(command)) is passes
    assert spool.lets_pass(frame(command, "t")) is passes


@pytest.mark.parametrize("waits", ["BEGIN", "COMMIT", "ABORT"])
def test_the_transaction_that_waits_lets_its_own_wait_too(waits: str) -> None:
    spool = Spool(10_000)
    spool.add(waiting(waits, "t"))
    assert not spool.lets_pass(frame("ACK", "t"))
    assert spool.lets_pass(frame("ACK", "u"))
    assert spool.lets_pass(frame("ACK"))
    spool.take()
    assert spool.lets_pass(frame("ACK", "t"))


@pytest.mark.parametrize("waits", ["ACK", "NACK"])
def test_settlements_do_not_pass_each_other(waits: str) -> None:
    spool = Spool(10_000)
    spool.add(waiting(waits, "t"))
    assert spool.keeps_acks
    for head in (frame("ACK"), frame("ACK", "u"), frame("NACK")):
        assert not spool.lets_pass(head)
    spool.take()
    assert not spool.keeps_acks
    assert spool.lets_pass(frame("ACK"))


def forget(spool: Spool) -> None:
    spool.clear()


def empty(spool: Spool) -> None:
    while spool:
        spool.take()


@pytest.mark.parametrize("way", [forget, empty])
def test_an_empty_spool_remembers_nothing(way: Callable[[Spool], None]) -> None:
    spool = Spool(10_000)
    for each in (waiting("ACK", "t"), waiting("COMMIT", "t"), sends(b"x")):
        spool.add(each)
    way(spool)
    assert (spool.size, spool.keeps_acks, bool(spool)) == (0, False, False)
    assert spool.lets_pass(frame("ACK", "t"))
