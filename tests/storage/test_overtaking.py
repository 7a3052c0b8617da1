"""Turns that wait for the writer one by one: whose messages are consumed is told at once."""

from __future__ import annotations

import pytest

from storage.aside import RUNS_MAX, TURNS_MAX
from storage.batch_state import Kind
from storage.journal import Journal
from storage.overtaking import Overtaken
from storage.record import AddRun
from tests.storage.test_journal import Paper, add, journal_of


def held() -> tuple[Journal, Paper, list[int], list[int]]:
    """Return a journal whose writer has batch 1 and does not answer."""
    journal, paper, durable = journal_of()
    told: list[int] = []
    journal.on_consumed = told.extend
    add(journal, 1)
    journal.flush()
    return journal, paper, durable, told


def stored(paper: Paper, number: int) -> list[tuple[int, int]]:
    return [(run.targets[0][1], len(run.bodies)) for run in paper.written[number].adds]


def test_what_is_consumed_while_the_disk_stands_is_told_then() -> None:
    journal, paper, durable, told = held()
    ticket = add(journal, 2, b"a", b"b")
    journal.flush()
    journal.remove(7, 2, 2, 1)
    journal.flush()
    assert told == []
    journal.remove(7, 3, 3, 1)
    journal.flush()
    assert ticket in told
    assert (durable, len(paper.written)) == ([], 1)
    assert (journal.tasks, journal.cancelled) == (1, 2)
    journal.written(paper.written[0], 1)
    journal.flush()
    assert len(paper.written) == 1, "nothing is left to write"
    assert durable[-1] == journal.ticket - 1
    assert journal.unsynced == 0


def test_each_turn_is_told_by_itself_and_the_rest_is_one_batch() -> None:
    journal, paper, durable, told = held()
    add(journal, 2)
    journal.remove(7, 2, 2, 1)
    journal.flush()
    tickets = []
    for seq in (3, 4, 5, 6):
        tickets.append(add(journal, seq))
        journal.flush()
    assert len(set(tickets)) == 4
    journal.remove(7, 4, 5, 2)
    journal.flush()
    assert {tickets[1], tickets[2]} <= set(told)
    assert not {tickets[0], tickets[3]} & set(told)
    journal.written(paper.written[0], 1)
    assert stored(paper, 1) == [(3, 1), (6, 1)]
    journal.written(paper.written[1], 1)
    assert durable[-1] >= tickets[3]
    assert [(batch.written_as, batch.synced) for batch in paper.written] == [(1, 0), (2, 1)]


def test_a_range_over_stored_and_waiting_messages_is_removed_and_cancelled() -> None:
    journal, paper, _, told = held()
    journal._overtaking.overtaken = Overtaken.NOW
    first = add(journal, 2)
    journal.flush()
    second = add(journal, 3)
    third = journal.remove(7, 1, 3, 3)
    journal.flush()
    assert first in told
    assert second not in told, "its turn also has what is stored to forget"
    assert third == second
    journal.written(paper.written[0], 1)
    assert stored(paper, 1) == []
    assert paper.written[1].removes == {7: [1, 1]}


@pytest.mark.parametrize("what", ["replaced", "noted", "atomic"])
def test_what_is_not_a_consumer_s_doing_waits_for_the_disk(what: str) -> None:
    journal, paper, durable, told = held()
    journal._overtaking.overtaken = Overtaken.NOW
    ticket = add(journal, 2)
    if what == "noted":
        journal.note(b"n")
    journal.flush()
    if what == "atomic":
        journal.begin_atomic()
    later = journal.remove(7, 2, 2, 1, consumed=what != "replaced")
    if what == "replaced":
        add(journal, 3)
    if what == "atomic":
        journal.end_atomic()
    journal.flush()
    assert ticket not in told
    assert later not in told
    journal.written(paper.written[0], 1)
    journal.written(paper.written[1], 1)
    assert durable[-1] >= max(ticket, later)


def test_a_send_that_began_in_a_full_batch_waits_for_all_of_it() -> None:
    journal, paper, durable, told = held()
    add(journal, 2, bytes(9 << 20))
    ticket = add(journal, 3)
    journal.remove(7, 3, 3, 1)
    journal.flush()
    assert ticket not in told
    journal.written(paper.written[0], 1)
    journal.written(paper.written[1], 1)
    journal.flush()
    assert durable[-1] >= ticket


def test_two_queues_have_to_take_what_both_were_sent() -> None:
    journal, _, _, told = held()
    ticket = journal.append(AddRun([(7, 2), (8, 1)], [b"x"], 0x14, 0, 1), 1)
    journal.remove(7, 2, 2, 1)
    journal.flush()
    assert told == []
    journal.remove(8, 1, 1, 1)
    journal.flush()
    assert ticket in told


def test_however_long_the_disk_stands_what_is_set_aside_has_an_end() -> None:
    journal, paper, durable, _ = held()
    journal._overtaking.overtaken = Overtaken.NOW
    tickets = []
    for seq in range(2, 3 * TURNS_MAX):
        tickets.append(add(journal, seq))
        journal.flush()
    assert len(set(tickets)) == TURNS_MAX + 1
    journal.written(paper.written[0], 1)
    assert stored(paper, 1) == [(seq, 1) for seq in range(2, 3 * TURNS_MAX)]
    assert journal.tasks == len(tickets)
    journal.written(paper.written[1], 1)
    assert durable[-1] >= tickets[-1]
    assert journal.tasks == 0


def test_however_many_runs_a_turn_brings_what_is_set_aside_has_an_end() -> None:
    journal, paper, durable, _ = held()
    journal._overtaking.overtaken = Overtaken.NOW
    each, turns = RUNS_MAX // 10, 20
    tickets = []
    for number in range(turns):
        tickets += [add(journal, 2 + number, queue=8 + at) for at in range(each)]
        journal.flush()
    assert len(set(tickets)) == RUNS_MAX // each + 1 < TURNS_MAX
    journal.written(paper.written[0], 1)
    assert len(paper.written[1].adds) == each * turns
    journal.written(paper.written[1], 1)
    assert durable[-1] >= tickets[-1]


def test_a_suspect_start_is_marked_by_the_first_batch_that_is_written() -> None:
    journal, paper, _ = journal_of(suspect=True)
    add(journal, 1)
    journal.remove(7, 1, 1, 1)
    journal.flush()
    assert paper.written == []
    add(journal, 2)
    journal.flush()
    assert paper.written[0].suspect
    assert (paper.written[0].written_as, paper.written[0].synced) == (1, 0)


def test_a_stop_writes_what_was_set_aside_before_its_mark() -> None:
    journal, paper, _, _ = held()
    journal._overtaking.overtaken = Overtaken.NOW
    add(journal, 2)
    journal.flush()
    add(journal, 3)
    done: list[bool] = []
    journal.close(lambda: done.append(True))
    for number in range(3):
        journal.written(paper.written[number], 1)
    assert stored(paper, 1) == [(2, 1), (3, 1)]
    assert paper.written[2].kind is Kind.STOP
    assert paper.stopped


def test_what_was_not_written_is_gone_without_a_ticket() -> None:
    journal, paper, _, _ = held()
    add(journal, 2, b"a", b"b")
    assert journal.remove(7, 2, 2, 1) == 0
    journal.flush()
    add(journal, 4)
    journal.flush()
    add(journal, 5)
    assert journal.remove(7, 3, 5, 3) == 0
    assert journal.remove(7, 1, 1, 1) == journal.ticket, "the disk has it"
    assert [batch.number for batch in paper.written] == [1]


@pytest.mark.parametrize("aside", [False, True])
def test_a_range_of_which_the_disk_has_a_part_has_a_ticket(aside: bool) -> None:
    journal, _, _, _ = held()
    add(journal, 2)
    journal._overtaking.overtaken = Overtaken.NOW if aside else Overtaken.NOT
    journal.flush()
    add(journal, 3)
    assert bool(journal._overtaking.turns) == aside
    assert journal.remove(7, 1, 3, 3) == journal.ticket


def test_without_cancelling_every_end_has_a_ticket() -> None:
    journal, _, _, _ = held()
    journal.cancels = False
    add(journal, 2)
    assert journal.remove(7, 2, 2, 1) == journal.ticket


@pytest.mark.parametrize("how", ["replaced", "moved", "moved over two parts", "paged"])
def test_what_stands_for_something_that_goes_is_bound_to_its_end(how: str) -> None:
    journal, paper, durable, _ = held()
    journal._overtaking.overtaken = Overtaken.NOW
    if how == "replaced":
        add(journal, 2)
        journal.remove(7, 1, 1, 1, consumed=False)
    else:
        journal.begin_atomic()
        journal.begin_atomic()
        if how == "paged":
            journal.remove_paged(9, 1, 1)
        else:
            journal.remove(9, 1, 1, 1)
        add(journal, 2)
        journal.end_atomic()
    journal.flush()
    add(journal, 3)
    journal.flush()
    waits = journal.remove(7, 3, 3, 1)
    assert waits, "what came later is no better while the older one may come back"
    bound = journal.remove(7, 2, 2, 1)
    assert bound
    add(journal, 1, queue=8)
    assert journal.remove(8, 1, 1, 1) == 0, "another queue has nothing to do with it"
    while journal.writing:
        journal.written(paper.written[-1], 1)
    assert durable[-1] >= max(bound, waits)
    add(journal, 4)
    assert journal.remove(7, 4, 4, 1) == 0


def test_what_comes_together_and_takes_nothing_away_is_free() -> None:
    journal, _, _, _ = held()
    journal.begin_atomic()
    add(journal, 2)
    add(journal, 1, queue=8)
    journal.end_atomic()
    assert journal.remove(7, 2, 2, 1) == 0
    assert journal.remove(8, 1, 1, 1) == 0
