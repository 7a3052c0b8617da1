"""Whatever the text is: a selector or a SelectorError, and in both cases soon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.model.message import STOMP, Message
from gateway.selectors import SelectorError
from gateway.selectors.lexer import KEYWORDS
from gateway.selectors.like import STEPS_MAX
from gateway.selectors.parser import LENGTH_MAX, NODES_MAX
from gateway.selectors.selector import Selector
from tests.lanes import examples
from tests.selectors.messages import amqp, stomp

MESSAGES = (
    amqp({"a": 5, "b": "x", "c": 2.5, "d": True, "e": b""}, subject="s", annotations={"n": 1}),
    stomp({"a": "5", "b": "x", "c": "2.5", "d": "true"}),
    Message(b"\x00\x53\x74\xc1\xff", 1, 4),
    Message(b"", 1, 4),
    Message(b"", 1, 4 | STOMP),
)


def run(text: str) -> bool:
    """Compile, and if that works ask about every message; returns whether it worked."""
    selector = compiled(text)
    if isinstance(selector, SelectorError):
        assert 1 <= selector.column <= len(text) + 1
        assert selector.expected
        assert selector.refusal.text.isprintable()
        return False
    for message in MESSAGES:
        assert type(selector.matches(message)) is bool
    return True


def compiled(text: str) -> Selector | SelectorError:
    try:
        return Selector(text, "q")
    except SelectorError as error:
        return error


WORDS = st.sampled_from(
    [
        *sorted(KEYWORDS),
        *["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", ")", ","],
        *["a", "b", "c", "d", "e", "JMSType", "JMSPriority", "AMQSize"],
        *("'x'", "'a%_'", "''", "'it''s'", '"m.n"', '"a"', "5", "0", "2.5", "1e9", "0x1F", "017"),
        *("'", '"', "0x", "1e", "%", ".", "\\", "\x00", "é", "convert_string_expressions:"),
    ]
)


@settings(max_examples=examples(400))
@given(words=st.lists(WORDS, max_size=24), joint=st.sampled_from([" ", "", "\n"]))
def test_words_in_any_order(words: list[str], joint: str) -> None:
    run(joint.join(words))


@settings(max_examples=examples(300))
@given(text=st.text(max_size=60))
@example(text="\ud800")
@example(text="'\ud800' = a")
@example(text='"\ud800" = 1')
def test_any_text(text: str) -> None:
    run(text)


GOOD = (
    "a = 5 AND NOT (b LIKE 'x!%_%' ESCAPE '!' OR c NOT BETWEEN -1.5e3 AND 0x1F * (2 + a))"
    " OR \"m.n\" IS NOT NULL AND b NOT IN ('x', 'it''s') AND (d = TRUE) <> (a >= 017L)"
)


@settings(max_examples=examples(300))
@given(at=st.integers(0, len(GOOD)), cut=st.integers(0, 6), put=st.text(max_size=3) | WORDS)
def test_a_good_selector_with_a_change(at: int, cut: int, put: str) -> None:
    run(GOOD[:at] + put + GOOD[at + cut :])


def test_the_good_selector_is_one() -> None:
    assert run(GOOD)


def calls(action: Callable[[], Any]) -> int:
    """How many calls of Python functions and of built-in ones an action makes."""
    count = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


HEAVY = {
    "or": " OR ".join(["a=1"] * 16),
    "and not": " AND ".join(["NOT d"] * 20),
    "sum": "+".join(["a"] * 31) + "=1",
    "minus": "-" * 30 + "a=1",
    "parentheses": "(" * 30 + "a=1" + ")" * 30,
    "compared conditions": "(" * 14 + "d" + "=d)" * 14,
    "compared logic": "(" * 9 + "d" + " AND d)=(d)" * 9,
    "like": "b LIKE '" + "%a_" * 330 + "'",
    "likes": " OR ".join(["b LIKE '%a_b%'"] * 21),
    "in": "b IN (" + ",".join(["'y'"] * 250) + ")",
    "quoted": "'" + "''" * 500 + "' = b",
    "quotes": '"' + '""' * 500 + '" = b',
    "digits": "a=" + "9" * 19,
    "blanks": " " * 1000 + "a=1",
    "names": " OR ".join(f"n{i}=1" for i in range(16)),
    "between": " OR ".join(["a BETWEEN a AND a"] * 11),
}


@pytest.mark.parametrize("name", sorted(HEAVY))
def test_work_is_bounded(name: str) -> None:
    text = HEAVY[name]
    assert len(text) <= LENGTH_MAX
    assert calls(lambda: Selector(text, "q")) < 60 * LENGTH_MAX
    matches = Selector(text, "q").matches
    for message in MESSAGES[:2]:
        assert calls(partial(matches, message)) < 40 * NODES_MAX


@pytest.mark.parametrize("name", sorted(HEAVY))
def test_refusing_is_bounded_too(name: str) -> None:
    text = (HEAVY[name] * 40)[:LENGTH_MAX]
    assert calls(lambda: run(text)) < 100 * LENGTH_MAX
    million = "(" * 1_000_000
    assert calls(lambda: run(million)) < 1000


def test_a_long_text_in_many_likes_is_bounded() -> None:
    matches = Selector(HEAVY["likes"], "q").matches
    message = amqp({"b": "a" * 65_000})
    # At each place that a LIKE may check: one find, two startswith, and the function around them.
    assert calls(lambda: matches(message)) < 21 * (STEPS_MAX + 2) * 4
    assert matches(message) is False
