"""What each rule refuses, in which words, and what it lets pass at its edges."""

from __future__ import annotations

import pytest

from gateway.model import bounds

NO_ZERO = bounds.not_zero("nothing would be left")
AT_MOST = bounds.at_most(5, "so many would not fit")
MESSAGES = bounds.within(1, 5, "messages")


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [
        (bounds.unlimited, (-1, 0, 9), {-2: "-2 is below -1; -1 already means no limit"}),
        (NO_ZERO, (-1, 1), {0: "nothing would be left", -2: "-2 is below -1; -1 already"}),
        (bounds.not_negative, (0, 0.5), {-0.5: "-0.5 is below 0"}),
        (AT_MOST, (0, 5), {6: "6 is above 5; so many would not fit", -1: "-1 is below 0"}),
        (bounds.at_least(2), (2, 3), {1: "1 is too small; the least is 2"}),
        (bounds.within(1, 5), (1, 5), {0: "0 is out of range; it lies between 1 and 5", 6: "6 is"}),
        (MESSAGES, (1, 5), {6: "6 messages is out of range; it lies between 1 and 5"}),
        (bounds.limit(3), (-1, 3), {2: "2 is too small; the least is 3, and -1", -2: "-2 is too"}),
    ],
)
def test_a_rule_passes_its_edges_and_says_why_beyond(bound, good, bad):
    assert [bound(value) for value in good] == [None] * len(good)
    for value, text in bad.items():
        assert bound(value).startswith(text)
