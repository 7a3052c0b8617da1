"""Conditions made at random, written as text, compiled: what they say is what a slow judge says."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.model.message import Message
from gateway.selectors import compile_selector
from gateway.selectors.parser import DEPTH_MAX, LENGTH_MAX, NODES_MAX
from tests.lanes import examples
from tests.selectors import reference
from tests.selectors.messages import amqp, stomp
from tests.selectors.reference import HALF, Condition, Writer, truth

#: A condition whose outcome is one of three says all when it is asked twice.
ASKED = {"is true": "{}", "is false": "NOT ({})"}


def size(condition: Condition) -> int:
    """At least as many nodes as the text has; texts of IN are none."""
    inner = [part for part in condition[1:] if isinstance(part, tuple)]
    joints = len(inner) - 1 if condition[0] in ("and", "or") else 1
    names = 1 if condition[0] in ("in", "like", "null") else 0
    return joints + names + sum(map(size, inner))


def said(text: str, message: Message) -> Any:
    is_true = compile_selector(text).matches(message)
    is_false = compile_selector(f"NOT ({text})").matches(message)
    return 1 if is_true and not is_false else 0 if is_false and not is_true else HALF


CHANCE = st.randoms(use_true_random=True)


def written(condition: Condition, chance: Random) -> str:
    text = Writer(chance).write(condition)
    assume(size(condition) < NODES_MAX and len(text) < LENGTH_MAX - 8)
    assume(text.count("(") < DEPTH_MAX - 1)
    return text


@settings(max_examples=examples(1000))
@given(condition=reference.leaves, fields=reference.fields, chance=CHANCE)
def test_single_conditions(condition: Condition, fields: dict[str, Any], chance: Random) -> None:
    text = written(condition, chance)
    message = amqp({name: value for name, (value, _) in fields.items()}, flags=3)
    seen: dict[str, Any] = {name: value for name, (_, value) in fields.items()}
    assert said(text, message) == truth(condition, {**seen, "JMSPriority": 3})


@settings(max_examples=examples(400))
@given(
    condition=reference.conditions,
    fields=reference.fields,
    note=reference.FIELD_VALUES,
    subject=st.sampled_from([None, *reference.TEXTS]),
    chance=CHANCE,
)
def test_over_amqp(
    condition: Condition,
    fields: dict[str, Any],
    note: tuple[Any, Any],
    subject: str | None,
    chance: Random,
) -> None:
    text = written(condition, chance)
    priority = chance.randrange(10)
    seen: dict[str, Any] = {name: value for name, (_, value) in fields.items()}
    seen |= {"JMSPriority": priority, "JMSType": subject, "m.note": note[1]}
    message = amqp(
        {name: value for name, (value, _) in fields.items()},
        annotations={"note": note[0]},
        flags=priority,
        subject=subject,
    )
    assert said(text, message) == truth(condition, seen)


HEADERS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "my-key", 'q"n', "null", "type"]),
    st.sampled_from(reference.TEXTS),
)


@settings(max_examples=examples(200))
@given(condition=reference.conditions, headers=HEADERS, chance=CHANCE)
def test_over_stomp(condition: Condition, headers: dict[str, str], chance: Random) -> None:
    text = written(condition, chance)
    seen: dict[str, Any] = {**headers, "JMSPriority": 3, "JMSType": headers.get("type")}
    assert said(text, stomp(headers, flags=3)) == truth(condition, seen)
