"""A journal that rotted where it names pages: a salvage finds them again by what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.cli.data import lines_of, pages_of, report
from gateway.model.message import MAYBE_SEEN
from gateway.store.datadir import Salvaged, look, look_at_pages, lost_by_name, places_below, repair
from gateway.store.page_rescue import rescued_by_address
from storage.errors import DamageError
from storage.pages import page_files
from storage.record import BATCH_HEADER_BYTES, Note, Paged, decode_records
from tests.paging.node import Node, node
from tests.paging.test_damage import BODIES

SMALL = {"max_size_messages": 2, "page_size_bytes": 4096}


@pytest.fixture
def life(tmp_path) -> Node:
    """Two addresses in page mode, whose queues were there before; each send has its batch."""
    made = node(tmp_path, SettingsEntry(match="#", values=SMALL))
    for name in ("q", "other"):
        made.send(name, BODIES[:1])
        made.sync()
    for at in range(1, 60, 5):
        for name in ("q", "other"):
            made.send(name, BODIES[at : at + 5])
            made.sync()
    return made


def spoil(life: Node, wanted, at: Callable[[bytes], int] | None = None) -> int:
    """Turn a bit in the first batch that has such a record; returns the batch's number.

    `at` tells which byte of the payload; without it, one in the middle.
    """
    for facts in look(f"{life.directory}/journal").segments:
        for number, offset, payload in facts.batches:
            if any(wanted(record) for record in decode_records(payload)):
                path = Path(facts.path)
                data = bytearray(path.read_bytes())
                place = len(payload) // 2 if at is None else at(payload)
                data[offset + BATCH_HEADER_BYTES + place] ^= 8
                path.write_bytes(data)
                return number
    raise AssertionError("there is no such record")


def is_definition_of(address: str):
    def wanted(record) -> bool:
        fields = json.loads(record.data) if isinstance(record, Note) else {}
        return fields.get("kind") == "pages" and fields["address"] == address

    return wanted


def salvaged(life: Node) -> Salvaged:
    """Refuse to start, then salvage and start."""
    places = places_below(life.directory)
    pages = page_files(life.fs, places.paging)
    with pytest.raises(DamageError, match=r"\.journal is damaged at offset \d+: batch \d+ "):
        life._start()
    assert page_files(life.fs, places.paging) == pages, "a refusal takes nothing away"
    done = repair(places, lambda: b"uuid" * 4)
    life._start()
    life.turn()
    return done


def in_the_body(payload: bytes) -> int:
    return payload.index(b"....")


def in_the_definition(payload: bytes) -> int:
    return payload.index(b"address")


def in_the_seq(payload: bytes) -> int:
    """Return the highest byte of the seq that the first message was given."""
    number = (1).to_bytes(8, "little")
    return payload.index(number + (2).to_bytes(8, "little")) + 15


def in_the_length(payload: bytes) -> int:
    """Return the highest byte of the length of the definition."""
    return payload.index(b"{") - 1


@pytest.mark.parametrize("at", [in_the_body, in_the_definition, in_the_seq, in_the_length])
def test_pages_whose_definition_rotted_are_found_again(life, at):
    life.kill()
    batch = spoil(life, is_definition_of("q"), at)
    done = salvaged(life)
    assert [one.batches for one in done.seen.damage] == [(batch, batch)]
    # All came in the batches of their blocks, but what memory still took in the one that rotted.
    assert done.seen.lost() == {life.gateway.queues["q"].queue_id: 1}, "whatever can be read of it"
    assert lost_by_name(done.seen) == {"q": 1}
    ((address, count),) = rescued_by_address(done.rescue)
    assert address == "q"
    assert count == life.gateway.queues["q"].backlog.live == 58
    assert life.gateway.queues["other"].message_count == 60
    life.check()
    first = life.gateway.queues["q"].browse(0, 60)[-1]
    assert first.flags & MAYBE_SEEN
    assert life.drain("other") == BODIES
    assert life.drain("q") == [body for body in BODIES if body != BODIES[1]]
    assert page_files(life.fs, f"{life.directory}/paging") == []
    life.restart(clean=True)
    assert {queue.message_count for queue in life.gateway.queues.values()} == {0}


def test_the_rescue_outlives_the_segment_it_was_written_to(life):
    life.kill()
    spoil(life, is_definition_of("q"))
    salvaged(life)
    life.sync()
    for _ in range(3):
        life.restart()
        life.send("other", [bytes(700_000)] * 3)
        life.sync()
    assert life.gateway.queues["q"].message_count == 59
    assert life.drain("q") == [body for body in BODIES if body != BODIES[1]]


def test_blocks_that_only_a_rotten_batch_committed_are_found_again(life):
    store = life.gateway.addresses["q"].paging.store_id
    blocks = life.gateway.addresses["q"].paging.pages[1].blocks
    life.kill()
    spoil(
        life, lambda r: isinstance(r, Paged) and (r.store, r.page, r.blocks) == (store, 1, blocks)
    )
    done = salvaged(life)
    ((address, count),) = rescued_by_address(done.rescue)
    assert address == "q"
    assert 0 < count < 58
    assert life.drain("q") == BODIES
    assert life.drain("other") == BODIES


@pytest.mark.parametrize("at", [in_the_body, in_the_length])
def test_a_queue_that_only_pages_tell_of_is_found_again(tmp_path, at):
    life = node(tmp_path, SettingsEntry(match="#", values=SMALL))
    life.send("q", BODIES[:20])  # queue, stay and messages in one batch
    life.sync()
    life.send("q", BODIES[20:40])
    life.sync()
    life.send("other", BODIES[:5])
    life.sync()
    life.kill()
    spoil(life, is_definition_of("q"), at)
    done = salvaged(life)
    ((name, count),) = rescued_by_address(done.rescue)
    assert name.startswith("salvaged.")
    assert count == 38
    assert life.drain(name) == BODIES[2:40]
    (lost,) = done.seen.lost().values()
    assert lost == 2, "what was in the journal"
    assert life.drain("other") == BODIES[:5]


def test_what_was_done_with_stays_so_where_the_journal_still_says_it(life):
    taker = life.consume("q")
    taker.left = 30
    life.gateway.touch(life.gateway.queues["q"])
    life.turn()
    life.sync()
    taken = taker.bodies()
    taker.ack()
    life.sync()
    assert len(taken) == 30
    life.kill()
    spoil(life, is_definition_of("q"))
    salvaged(life)
    assert life.drain("q") == BODIES[30:]


def test_pages_that_were_done_with_do_not_come_back(life):
    assert life.drain("q") == BODIES
    for name in ("again", "once more"):
        life.send(name, BODIES[:10])
        life.sync()
    life.kill()
    directory = f"{life.directory}/paging"
    gone = f"{directory}/{2:020d}-{1:09d}.page"
    kept = f"{directory}/{4:020d}-{1:09d}.page"
    Path(gone).write_bytes(Path(kept).read_bytes())  # as a name that came back with a crash
    spoil(life, is_definition_of("again"))
    done = salvaged(life)
    ((name, count),) = rescued_by_address(done.rescue)
    assert name.startswith("salvaged."), "its queue was defined in the same batch"
    assert count == life.gateway.queues[name].message_count == 8
    assert life.gateway.queues["q"].message_count == 0
    assert not Path(gone).exists()


def test_what_was_never_committed_is_not_taken_back(life):
    life.send("q", [b"never confirmed"] * 5)
    life.turn()
    life.store.flush()
    batch = life.writer
    pages = batch.work._pages
    (busy,) = [life.journal._busy]
    assert busy.pages
    pages.write(busy.pages)  # and the process ends before the batch is written
    life.kill()
    spoil(life, is_definition_of("q"))
    salvaged(life)
    assert b"never confirmed" not in life.drain("q")


def test_a_whole_journal_needs_no_rescue(life):
    life.kill()
    places = places_below(life.directory)
    done = repair(places, lambda: b"uuid" * 4)
    assert done.rescue.pages == []
    assert done.copies == []


def test_verify_names_the_pages_and_what_brings_them_back(life):
    life.kill()
    spoil(life, is_definition_of("q"))
    places = places_below(life.directory)
    seen = look(places.journal)
    facts = report(seen) | {"inUseBy": None, "pages": pages_of(look_at_pages(places, seen))}
    lines = [line for line in lines_of(facts) if "run --salvage takes it back" in line]
    assert len(lines) == len([p for p in page_files(life.fs, places.paging) if p[0] == 3])
    assert all(" of q: " in line for line in lines)
