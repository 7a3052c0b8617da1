"""What the journal asserts of itself: each breach is found, and by the part that it is in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.batch_state import State
from storage.journal import BATCH_BYTES_MAX, Journal
from storage.overtaking import Overtaken
from tests.storage.test_journal import Paper, add, journal_of

LAX = 7


def at_work() -> tuple[Journal, Paper]:
    """Return a journal with a batch told, one being written, one pending, one set aside."""
    journal, paper, _ = journal_of(segment_bytes=1 << 20)
    journal.lax.add(LAX)
    add(journal, 1)
    journal.flush()
    journal.written(paper.written[0], 100)
    add(journal, 1, b"b", queue=8)
    journal.flush()
    journal._overtaking.overtaken = Overtaken.NOW
    add(journal, 2, bytes(BATCH_BYTES_MAX))
    add(journal, 3)
    journal._open.whole = True  # as behind the end of a turn
    journal.flush()
    add(journal, 4)
    return journal, paper


def test_a_journal_at_work_is_in_order() -> None:
    journal, _ = at_work()
    journal.check_invariants()
    states = [batch.state for batch in (*journal.rotation.told, *journal.waiting())]
    assert states == [State.TOLD, State.WRITING, State.FIXED, State.ASIDE, State.OPEN]


def _aside(journal: Journal) -> None:
    journal._overtaking.turns[0].state = State.FIXED


def _bound(journal: Journal) -> None:
    journal._overtaking._replacements.bind(LAX, journal.ticket + 1)


def _pending(journal: Journal) -> None:
    journal._backlog.pending[0].bytes_bound += 1


def _busy(journal: Journal) -> None:
    next(journal.waiting()).state = State.SYNCED


def _told(journal: Journal) -> None:
    journal._told = next(journal.waiting()).number


def _tasks(journal: Journal) -> None:
    journal.tasks += 1


def _gap(journal: Journal) -> None:
    journal.rotation._next += 1


def _segment(journal: Journal) -> None:
    journal._backlog.pending[0].segment = 0


def _live(journal: Journal) -> None:
    journal.index.live[1] += 1


def _size(journal: Journal) -> None:
    journal.index.live_bytes -= 1


def _used(journal: Journal) -> None:
    journal.index.used_bytes += 1


def _reading(journal: Journal) -> None:
    journal.compaction.reading = True


@pytest.mark.parametrize(
    ("breach", "words"),
    [
        (_aside, "FIXED and set aside"),
        (_bound, "is not begun"),
        (_pending, "bytes counted"),
        (_busy, "not being written"),
        (_told, "told, and it waits"),
        (_tasks, "messages counted"),
        (_gap, "comes after"),
        (_segment, "older segment"),
        (_live, "are counted"),
        (_size, "bytes live"),
        (_used, "miscounted"),
        (_reading, "no segment is being read"),
    ],
)
def test_a_breach_is_found(breach: Callable[[Journal], None], words: str) -> None:
    journal, _ = at_work()
    breach(journal)
    with pytest.raises(AssertionError, match=words):
        journal.check_invariants()


def test_nothing_is_told_before_the_writer_has_answered() -> None:
    journal, _ = at_work()
    with pytest.raises(AssertionError, match="told and not stored"):
        journal._tell(next(journal.waiting()).number)


def test_an_atomic_part_ends_once_and_is_not_cut() -> None:
    journal, _, _ = journal_of()
    with pytest.raises(AssertionError, match="no atomic part"):
        journal.end_atomic()
    journal.begin_atomic()
    with pytest.raises(AssertionError, match="ATOMIC to FIXED"):
        journal._fix_open(whole=True)
