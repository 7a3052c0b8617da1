"""What took the place of another message is told at its end only once that is on disk."""

from __future__ import annotations

import pytest

from storage.replacements import Replacements
from tests.storage.test_journal import add, journal_of


@pytest.mark.parametrize(("synced", "free"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_queue_is_bound_until_its_ticket_is_on_disk(synced: int, free: bool) -> None:
    replacements = Replacements()
    replacements.bind(7, 5)
    assert replacements.free(7, synced) is free
    assert replacements.free(8, synced), "nothing of this one is bound"


def test_the_end_of_a_dead_letter_waits_for_the_end_of_what_it_stands_for() -> None:
    journal, paper, durable = journal_of()
    journal.lingers = lambda _: True
    add(journal, 1)
    journal.lingers = lambda _: False
    journal.flush()
    journal.written(paper.written[0], 1)
    assert durable[-1] == 1
    journal.lingers = lambda _: True
    journal.begin_atomic()
    journal.remove(7, 1, 1, 1)
    ticket = add(journal, 1, queue=9)
    journal.end_atomic()
    journal.flush()
    assert journal.remove(9, 1, 1, 1) == ticket, "the message it stands for is still on disk"
