"""Page files that are damaged: what is lost is told, and nothing else is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.cli.data import lines_of, pages_of, report
from gateway.store.datadir import look, look_at_pages, places_below
from storage.page_scan import scan_page
from storage.pages import page_files
from tests.paging.node import Node, node

BODIES = [b"%03d" % number + b"." * 40 for number in range(60)]


@pytest.fixture
def life(tmp_path) -> Node:
    made = node(
        tmp_path, SettingsEntry(match="#", values={"max_size_messages": 2, "page_size_bytes": 4096})
    )
    for at in range(0, 60, 5):
        made.send("q", BODIES[at : at + 5])
        made.send("other", BODIES[at : at + 5])
        made.sync()
    return made


def spoil(life: Node, place: tuple[int, int], offset: int) -> None:
    store, page = place
    path = f"{life.directory}/paging/{store:020d}-{page:09d}.page"
    with Path(path).open("r+b") as file:
        file.seek(offset)
        old = file.read(1)
        file.seek(offset)
        file.write(bytes([old[0] ^ 4]))


def page_of(life: Node, name: str) -> tuple[int, int]:
    return life.gateway.addresses[name].paging.store_id, 1


def test_a_bad_block_costs_its_messages_and_is_told_once(life):
    place = page_of(life, "q")
    paging = f"{life.directory}/paging"
    blocks = scan_page(life.fs, paging, *place, 99).blocks
    bad = blocks[3]
    first = bad.targets[0][1] - 1
    spoil(life, place, bad.offset + bad.length - 1)
    life.kill()
    life._start()
    pager = life.gateway.operations.pager
    assert pager.lost == len(bad.sizes)
    assert life.gateway.queues["q"].message_count == 60 - len(bad.sizes)
    assert life.gateway.queues["other"].message_count == 60
    assert life.fs.listdir(f"{paging}/quarantine") == [f"{place[0]:020d}-000000001.page"]
    life.check()
    life.sync()
    life.restart(clean=True)
    assert life.gateway.operations.pager.lost == 0, "it was recorded"
    kept = BODIES[:first] + BODIES[first + len(bad.sizes) :]
    assert life.drain("q") == kept
    assert life.drain("other") == BODIES
    assert page_files(life.fs, paging) == []


def test_a_bad_header_of_a_page_costs_nothing(life):
    spoil(life, page_of(life, "q"), 9)
    life.restart()
    assert life.gateway.operations.pager.lost == 0
    assert life.drain("q") == BODIES


def test_a_page_that_is_not_there_leaves_the_others(life):
    store, page = page_of(life, "q")
    blocks = scan_page(life.fs, f"{life.directory}/paging", store, page, 99).blocks
    lost = sum(len(block.sizes) for block in blocks)
    life.kill()
    life.fs.unlink(f"{life.directory}/paging/{store:020d}-{page:09d}.page")
    life._start()
    assert life.gateway.queues["q"].message_count == 60 - lost
    assert life.drain("q") == BODIES[:2] + BODIES[2 + lost :]


def test_data_verify_reads_pages_and_names_what_is_damaged(life):
    life.kill()
    data = life.directory
    seen = look(f"{data}/journal")
    facts = report(seen) | {
        "inUseBy": None,
        "pages": pages_of(look_at_pages(places_below(data), seen)),
    }
    assert sum(page["messages"] for page in facts["pages"]) == 2 * 58
    assert lines_of(facts)[-1] == "whole"
    spoil(life, page_of(life, "q"), 200)
    facts["pages"] = pages_of(look_at_pages(places_below(data), seen))
    (bad,) = [page for page in facts["pages"] if page["damage"]]
    assert bad["address"] == "q"
    assert "1 of " in bad["damage"]
    assert lines_of(facts)[-1] == "damaged"
    assert json.dumps(facts)


def test_what_is_lost_when_it_is_read_is_no_more_to_be_read(life):
    store, _ = page_of(life, "q")
    paging = life.gateway.addresses["q"].paging
    page = max(paging.pages)
    known = paging.pages[page]
    spoil(life, (store, page), known.offsets[-1] + known.lengths[-1] - 1)
    taker = life.consume("q", 100)
    life.sync()
    queue = life.gateway.queues["q"]
    assert life.gateway.operations.pager.lost
    assert (queue.paged_count, queue.backlog.size) == (0, 0)
    life.check()
    taker.ack()
