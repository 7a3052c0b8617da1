"""Which refusals pass with time: a table over all codes, and the seconds that are told."""

from __future__ import annotations

import pytest

from gateway.model.errors import STOPPING, Code, Refusal
from gateway.model.retry import HELPS, NEVER, WAIT_MAX, retry_after


def test_each_code_is_judged_once() -> None:
    assert set(HELPS) | NEVER == set(Code)
    assert not set(HELPS) & NEVER


@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        (Code.DISK_FULL, 5),
        (Code.ADDRESS_FULL, 5),
        (Code.PAGE_FULL, 5),
        (Code.MEMORY_FULL, 5),
        (Code.STORE_BUSY, 1),
        (Code.TOO_MANY, 10),
        (Code.MAX_CONSUMERS, 10),
        (Code.SHUTTING_DOWN, 5),
        (Code.NOT_FOUND, None),
        (Code.NOT_AUTHORIZED, None),
        (Code.ALREADY_EXISTS, None),
        (Code.DUPLICATE_ID, None),
        (Code.BAD_NAME, None),
        (Code.BAD_VALUE, None),
        (Code.BAD_SELECTOR, None),
        (Code.BAD_HEADER, None),
        (Code.BAD_FRAME, None),
        (Code.BAD_MESSAGE, None),
        (Code.TOO_LARGE, None),
        (Code.ROUTING_MISMATCH, None),
        (Code.IN_USE, None),
        (Code.NOT_IMPLEMENTED, None),
        (Code.QUEUE_DELETED, None),
        (Code.SLOW_CONSUMER, None),
        (Code.CONVERSION, None),
        (Code.OPERATOR, None),
        (Code.STORE_FAILED, None),
    ],
)
def test_what_is_told_of_a_refusal_that_may_pass(code: Code, seconds: int | None) -> None:
    assert retry_after(Refusal(code=code, text="No.", transient=True)) == seconds


@pytest.mark.parametrize("code", Code)
def test_what_does_not_pass_is_not_waited_for(code: Code) -> None:
    """Too many headers in a frame are too many tomorrow; too many subscriptions are not."""
    assert retry_after(Refusal(code=code, text="No.")) is None


@pytest.mark.parametrize(
    ("wait", "seconds"), [(0.0, 1), (0.1, 1), (1.0, 1), (11.2, 12), (299.5, 300), (1e9, WAIT_MAX)]
)
def test_what_is_known_better_wins_in_whole_seconds(wait: float, seconds: int) -> None:
    for transient in (True, False):
        # `disk-full-policy` FAIL has senders told at once, of what passes all the same.
        refusal = Refusal(code=Code.DISK_FULL, text="No.", transient=transient, wait=wait)
        assert retry_after(refusal) == seconds


def test_a_wait_makes_nothing_pass() -> None:
    assert retry_after(Refusal(code=Code.BAD_FRAME, text="No.", transient=True, wait=3.0)) is None


def test_a_stop_is_worth_coming_back_for() -> None:
    assert retry_after(STOPPING) == 5
