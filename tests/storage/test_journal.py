"""The journal's order of things: what waits for what, and which figures come out."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest

from storage import journal as journal_module
from storage.batch import Batch
from storage.batch_state import Kind
from storage.journal import BACKLOG_BYTES_MAX, BATCH_BYTES_MAX, Journal
from storage.record import SEGMENT_HEADER_BYTES, AddRun


class Paper:
    """A writer that only notes what it was asked for."""

    def __init__(self) -> None:
        self.written: list[Batch] = []
        self.deleted: list[list[int]] = []
        self.stopped: list[Callable[[], None]] = []

    def write(self, batch: Batch) -> None:
        self.written.append(batch)

    def delete(self, segments: Sequence[int]) -> None:
        self.deleted.append(list(segments))

    def stop(self, done: Callable[[], None]) -> None:
        self.stopped.append(done)


def journal_of(**options: object) -> tuple[Journal, Paper, list[int]]:
    journal = Journal(**{"next_ticket": 1, "next_segment": 1, "segment_bytes": 4096, **options})
    paper, durable = Paper(), []
    journal.on_durable = durable.append
    journal.start(paper)
    return journal, paper, durable


def add(journal: Journal, first: int, *bodies: bytes, queue: int = 7) -> int:
    run = AddRun([(queue, first)], bodies or (b"x",), 0x14, 0, 1)
    return journal.append(run, sum(map(len, run.bodies)))


def turn(journal: Journal, paper: Paper) -> None:
    """Flush and answer until nothing is under way."""
    journal.flush()
    done = 0
    journal.check_invariants()
    while journal._busy is not None and done < 100:
        journal.written(paper.written[-1], 100)
        journal.check_invariants()
        done += 1


def test_one_batch_is_under_way_and_the_next_one_fills() -> None:
    journal, paper, durable = journal_of()
    assert add(journal, 1) == 1
    assert add(journal, 2) == 1
    journal.flush()
    assert [add(journal, 3), add(journal, 4)] == [2, 2]
    journal.flush()
    journal.flush()
    assert [batch.number for batch in paper.written] == [1]
    journal.written(paper.written[0], 100)
    assert durable == [1]
    assert [(b.number, b.synced) for b in paper.written] == [(1, 0), (2, 1)]
    journal.written(paper.written[1], 50)
    assert durable == [1, 2]
    assert (journal.synced, journal.batches, journal.stored) == (2, 2, 4)
    assert journal.bytes_written == 150


def test_nothing_to_write_is_not_written() -> None:
    journal, paper, durable = journal_of()
    journal.flush()
    assert (paper.written, durable) == ([], [])


def test_nothing_is_written_before_the_start() -> None:
    journal = Journal(next_ticket=1, next_segment=1)
    add(journal, 1)
    journal.flush()
    paper = Paper()
    journal.start(paper)
    journal.flush()
    assert len(paper.written) == 1


def test_tickets_go_on_behind_what_was_recovered() -> None:
    journal, paper, _ = journal_of(next_ticket=41, next_segment=9)
    assert journal.synced == 40
    assert (journal.ticket, add(journal, 1)) == (41, 41)
    journal.flush()
    assert (paper.written[0].number, paper.written[0].synced, paper.written[0].segment) == (
        41,
        40,
        9,
    )


def test_a_removal_before_the_batch_closes_cancels_and_after_it_does_not() -> None:
    journal, paper, _ = journal_of()
    add(journal, 1, b"a", b"b")
    journal.remove(7, 1, 1, 1)
    journal.flush()
    assert [len(run.bodies) for run in paper.written[0].adds] == [1]
    assert journal.cancelled == 1
    journal.remove(7, 2, 2, 1)
    journal.written(paper.written[0], 1)
    journal.flush()
    assert paper.written[1].removes == {7: [2, 2]}
    assert journal.index.live == {1: 1}
    journal.written(paper.written[1], 1)
    assert journal.index.live == {1: 0}


def test_what_is_not_durable_is_in_no_figure() -> None:
    journal, paper, _ = journal_of()
    bodies: list[bytes | None] = [b"a", None, b"c", None]
    journal.append(AddRun([(7, 1)], bodies, [1] * 4, [0] * 4, 1), 2)
    journal.remove(7, 1, 1, 1)
    turn(journal, paper)
    assert (journal.stored, journal.cancelled, journal.index.live) == (1, 1, {1: 1})


@pytest.mark.parametrize("limit", ["bytes", "records"])
def test_a_full_batch_closes_by_itself(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "BATCH_RECORDS_MAX", 3)
    journal, paper, durable = journal_of()
    body = bytes(BATCH_BYTES_MAX) if limit == "bytes" else b"x"
    tickets = [add(journal, seq, body) for seq in range(1, 9)]
    assert tickets == (list(range(1, 9)) if limit == "bytes" else [1, 1, 1, 2, 2, 2, 3, 3])
    turn(journal, paper)
    assert [batch.number for batch in paper.written] == durable == sorted(set(tickets))


def test_a_transaction_stays_whole_however_large() -> None:
    journal, paper, _ = journal_of()
    journal.begin_atomic()
    tickets = {add(journal, seq, bytes(BATCH_BYTES_MAX)) for seq in range(1, 4)}
    journal.flush()
    assert paper.written == [], "a flush in its middle does not cut it"
    tickets.add(journal.remove(8, 1, 1, 1))
    journal.end_atomic()
    assert tickets == {1}
    journal.flush()
    assert len(paper.written[0].adds) == 3
    assert journal.rotation.segment_size(paper.written[0]) > 3 * BATCH_BYTES_MAX
    assert add(journal, 9) == 2


def test_congested_above_the_backlog() -> None:
    journal, paper, _ = journal_of()
    count = BACKLOG_BYTES_MAX // BATCH_BYTES_MAX
    for seq in range(count - 1):
        add(journal, seq, bytes(BATCH_BYTES_MAX))
    assert not journal.congested
    add(journal, count, bytes(BATCH_BYTES_MAX))
    assert journal.congested
    turn(journal, paper)
    assert not journal.congested
    assert journal._backlog.bytes == 0


def test_unsynced_is_the_last_batch_with_something_in_it() -> None:
    journal, paper, _ = journal_of()
    assert journal.unsynced == 0
    add(journal, 1)
    assert journal.unsynced == 1
    journal.flush()
    assert (journal.unsynced, journal.ticket) == (1, 2)
    add(journal, 2)
    assert journal.unsynced == 2
    journal.written(paper.written[-1], 100)
    assert journal.unsynced == 2
    journal.written(paper.written[-1], 100)
    assert journal.unsynced == 0


def test_segments_roll_by_room_and_begin_with_what_holds() -> None:
    journal, paper, _ = journal_of(segment_bytes=1024)
    journal.rotation.snapshot = lambda: [b"all that holds"]
    for seq in range(1, 20):
        add(journal, seq, bytes(300))
        turn(journal, paper)
    by_segment: dict[int, list[Batch]] = {}
    for batch in paper.written:
        by_segment.setdefault(batch.segment, []).append(batch)
    assert list(by_segment) == list(range(1, len(by_segment) + 1))
    assert len(by_segment) > 5
    for batches in by_segment.values():
        assert batches[0].notes == [b"all that holds"]
        assert all(batch.notes == [] for batch in batches[1:])
        room = journal.rotation.segment_size(batches[0]) - SEGMENT_HEADER_BYTES
        assert sum(batch.bytes_bound for batch in batches) <= room


def test_a_segment_begins_with_what_held_when_its_batch_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Definitions of later tickets must not come before them, nor may later ends take any away."""
    monkeypatch.setattr(journal_module, "BATCH_RECORDS_MAX", 1)
    journal, paper, _ = journal_of()
    held = [b"one"]
    journal.rotation.snapshot = lambda: list(held)
    add(journal, 1)
    assert add(journal, 2) == 2
    held[:] = [b"two"]
    journal.note(b"two")
    journal.flush()
    assert paper.written[0].notes == [b"one"]


def test_an_empty_segment_is_given_back_when_all_before_it_are() -> None:
    journal, paper, _ = journal_of(segment_bytes=512)
    for seq in range(1, 4):
        add(journal, seq, bytes(300))
        turn(journal, paper)
    assert list(journal.index.live) == [1, 2, 3]
    journal.remove(7, 2, 2, 1)
    turn(journal, paper)
    assert paper.deleted == []
    journal.remove(7, 1, 1, 1)
    journal.flush()
    assert paper.deleted == [], "not before the removal is durable"
    journal.written(paper.written[-1], 1)
    assert paper.deleted == [[1, 2]]
    assert journal.index.live == {3: 1, 4: 0}, "the removals lie in the fourth"


def test_a_failure_is_told_once_and_ends_all() -> None:
    journal, paper, durable = journal_of()
    failures: list[BaseException] = []
    journal.on_failed = failures.append
    add(journal, 1)
    journal.flush()
    error = OSError(errno.EIO, "no")
    journal.failed(error)
    journal.failed(OSError(errno.EIO, "again"))
    journal.written(paper.written[0], 1)
    add(journal, 2)
    journal.flush()
    assert failures == [error]
    assert journal.failure is error
    assert (durable, len(paper.written)) == ([], 1)


def test_a_stop_writes_what_is_open_then_its_mark_alone() -> None:
    journal, paper, durable = journal_of()
    done: list[bool] = []
    add(journal, 1)
    journal.flush()
    add(journal, 2)
    journal.close(lambda: done.append(True))
    assert paper.stopped == []
    for number in (1, 2, 3):
        assert paper.stopped == []
        journal.written(paper.written[number - 1], 1)
    assert [batch.kind is Kind.STOP for batch in paper.written] == [False, False, True]
    assert [bool(batch.adds) for batch in paper.written] == [True, True, False]
    assert durable == [1, 2, 3]
    paper.stopped[0]()
    assert done == [True]


def test_a_stop_after_a_failure_comes_to_its_end() -> None:
    journal, paper, _ = journal_of()
    add(journal, 1)
    journal.flush()
    journal.failed(OSError(errno.EIO, "no"))
    journal.close(lambda: None)
    assert len(paper.stopped) == 1


def test_a_failure_while_stopping_comes_to_its_end() -> None:
    journal, paper, _ = journal_of()
    journal.close(lambda: None)
    journal.failed(OSError(errno.EIO, "no"))
    assert len(paper.stopped) == 1


def test_a_journal_that_never_started_stops_at_once() -> None:
    done: list[bool] = []
    Journal(next_ticket=1, next_segment=1).close(lambda: done.append(True))
    assert done == [True]


def test_the_first_batch_after_a_bad_stop_says_so() -> None:
    journal, paper, _ = journal_of(suspect=True)
    add(journal, 1)
    turn(journal, paper)
    add(journal, 2)
    turn(journal, paper)
    assert [batch.suspect for batch in paper.written] == [True, False]


# ---- cover


def quiet(journal: Journal) -> None:
    """Two looks with nothing in between."""
    journal.cover()
    journal.cover()


def test_a_quiet_journal_is_covered_once() -> None:
    journal, paper, _ = journal_of()
    add(journal, 1)
    turn(journal, paper)
    quiet(journal)
    assert [batch.kind for batch in paper.written] == [Kind.RECORDS, Kind.COVER]
    turn(journal, paper)
    for _ in range(3):
        quiet(journal)
    assert len(paper.written) == 2


def test_a_busy_journal_covers_itself() -> None:
    journal, paper, _ = journal_of()
    for seq in range(1, 5):
        add(journal, seq)
        turn(journal, paper)
        journal.cover()
    assert all(batch.kind is Kind.RECORDS for batch in paper.written)


def test_what_is_under_way_is_not_covered_before_it_is_synced() -> None:
    journal, paper, _ = journal_of()
    add(journal, 1)
    journal.flush()
    quiet(journal)
    assert len(paper.written) == 1


def test_an_unclean_start_is_covered_a_clean_one_needs_none() -> None:
    for suspect, count in ((True, 1), (False, 0)):
        journal, paper, _ = journal_of(next_ticket=5, suspect=suspect)
        quiet(journal)
        assert len(paper.written) == count


def test_nothing_is_written_behind_a_clean_stop() -> None:
    journal, paper, _ = journal_of()
    journal.close(lambda: None)
    journal.written(paper.written[0], 1)
    quiet(journal)
    assert len(paper.written) == 1
