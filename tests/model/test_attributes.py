"""What a queue's attributes come to in the journal, and back."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.model.attributes import (
    LASTING,
    PLAIN,
    ROWS,
    QueueAttributes,
    attribute_problem,
    changed,
    from_note,
    to_note,
)


def test_what_was_not_said_is_not_noted():
    assert to_note(PLAIN) == {}
    said = changed(PLAIN, {"auto_delete": False, "auto_delete_delay": 0})
    assert to_note(said) == {"auto_delete": False, "auto_delete_delay": 0}
    assert from_note(to_note(said)) == said != PLAIN


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("auto_delete", True, True),
        ("auto_delete", 1, False),
        ("auto_delete", None, False),
        ("auto_delete_delay", 0, True),
        ("auto_delete_delay", -1, False),
        ("auto_delete_delay", True, False),
        ("auto_delete_message_count", -1, True),
        ("auto_delete_message_count", -2, False),
        ("auto_delete_message_count", 1 << 31, False),
    ],
)
def test_values_of_what_may_be_left_unsaid(name, value, fits):
    assert (attribute_problem(name, value) is None) == fits
    if not fits:
        with pytest.raises(ValueError, match=name):
            from_note({name: value})


def test_every_field_is_a_row_with_words_and_a_possible_default():
    assert list(ROWS) == [field.name for field in fields(QueueAttributes)]
    assert all(row.words for row in ROWS.values())
    assert [row.problem(row.default) for row in ROWS.values()] == [None] * len(ROWS)
    assert [getattr(PLAIN, name) for name in ROWS] == [row.default for row in ROWS.values()]


def test_what_a_queue_is_from_its_making_on():
    assert LASTING == ("last_value", "last_value_key", "non_destructive")
