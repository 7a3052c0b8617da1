"""What a queue's attributes come to in the journal, and back."""

from __future__ import annotations

import pytest

from gateway.model.attributes import PLAIN, attribute_problem, changed, from_note, to_note


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
