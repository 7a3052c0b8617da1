"""Page files part by part: names, headers, blocks, writing, reading, scanning, damage."""

from __future__ import annotations

import itertools
import random

import pytest

from storage.errors import PageDamageError
from storage.page_scan import scan_page
from storage.pages import (
    BLOCK_BYTES_MAX,
    BLOCK_MESSAGES_MAX,
    OPEN_MAX,
    PAGE_HEADER_BYTES,
    PageBlock,
    PageReader,
    PageWriter,
    page_files,
    page_name,
    page_of_name,
)
from storage.record import BATCH_HEADER_BYTES, BadRecordError, peek_add
from tests.simulation.disk import SimDisk

DIRECTORY = "paging"


class Pages:
    """Writer and reader over a simulated disk."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random("pages"))
        self.disk.mkdir(DIRECTORY)
        uuids = itertools.count(1)
        self.writer = PageWriter(self.disk, DIRECTORY, lambda: next(uuids).to_bytes(16, "big"))
        self.reader = PageReader(self.disk, DIRECTORY)

    def block(self, page: int, number: int, *bodies: bytes, store: int = 1) -> PageBlock:
        block = PageBlock(store, page, number, [(7, 10 * number + 1)], 99)
        block.ticket = 5
        block.extend(bodies, 20, 0, sum(map(len, bodies)))
        return block

    def write(self, *blocks: PageBlock) -> tuple[PageBlock, ...]:
        self.writer.write(blocks)
        return blocks

    def read(self, block: PageBlock) -> list[bytes | None]:
        run = self.reader.read(block.store, block.page, block.offset, block.length)
        return list(run.bodies)

    def spoil(self, page: int, offset: int) -> None:
        fd = self.disk.open(f"{DIRECTORY}/{page_name(1, page)}")
        old = self.disk.pread(fd, 1, offset)
        self.disk.pwrite(fd, bytes([old[0] ^ 1]), offset)
        self.disk.close(fd)


@pytest.mark.parametrize(("store", "page"), [(0, 1), (12, 3), (2**63, 999_999_999)])
def test_names_tell_store_and_page(store, page):
    assert page_of_name(page_name(store, page)) == (store, page)


@pytest.mark.parametrize(
    "name", ["", "x.page", "1-1.page", page_name(1, 2)[:-1], page_name(1, 2).replace("-", "_")]
)
def test_other_files_are_no_pages(name):
    assert page_of_name(name) is None


def test_names_sort_as_pages_do():
    pages = [(1, 2), (1, 10), (2, 1), (10, 1)]
    assert sorted(page_name(*p) for p in pages) == [page_name(*p) for p in pages]


def test_what_is_written_is_read_back():
    pages = Pages()
    one, two = pages.write(pages.block(1, 0, b"a", b"bc"), pages.block(1, 1, b"", b"d" * 5000))
    (three,) = pages.write(pages.block(1, 2, b"later"))
    assert one.offset == PAGE_HEADER_BYTES
    assert (two.offset, three.offset) == (one.offset + one.length, two.offset + two.length)
    assert pages.read(three) == [b"later"]
    assert pages.read(one) == [b"a", b"bc"]
    assert pages.read(two) == [b"", b"d" * 5000]
    assert one.bodies == []


def test_flags_and_expiry_are_kept_for_each():
    pages = Pages()
    block = PageBlock(1, 1, 0, [(7, 1), (9, 4)], 99)
    block.extend([b"a"], 20, 0, 1)
    block.extend([b"b", b"c"], 276, 1234, 2)
    block.due = 77
    pages.write(block)
    run = pages.reader.read(1, 1, block.offset, block.length)
    assert (list(run.targets), list(run.flags), list(run.expires)) == (
        [(7, 1), (9, 4)],
        [20, 276, 276],
        [0, 1234, 1234],
    )
    assert (run.accepted_ms, run.due) == (99, 77)


def test_a_block_is_continued_by_what_follows_for_the_same_queues():
    block = PageBlock(1, 1, 0, [(7, 1), (9, 4)], 99)
    block.extend([b"a", b"b"], 20, 0, 2)
    assert block.continues([(7, 3), (9, 6)], 0)
    assert not block.continues([(7, 3), (9, 6)], 5)
    assert not block.continues([(7, 4), (9, 6)], 0)
    assert not block.continues([(7, 3)], 0)
    assert not block.continues([(7, 3), (8, 6)], 0)
    block.extend([b""] * BLOCK_MESSAGES_MAX, 20, 0, 0)
    assert not block.continues([(7, 3 + BLOCK_MESSAGES_MAX), (9, 6 + BLOCK_MESSAGES_MAX)], 0)
    large = PageBlock(1, 1, 0, [(7, 1)], 99)
    large.extend([b"x" * BLOCK_BYTES_MAX], 20, 0, BLOCK_BYTES_MAX)
    assert not large.continues([(7, 2)], 0)


def test_pages_are_written_side_by_side_and_few_files_stay_open():
    pages = Pages()
    blocks = [pages.block(1, 0, b"%d" % store, store=store) for store in range(1, 2 * OPEN_MAX + 1)]
    pages.write(*blocks)
    assert len(pages.disk.fds) <= OPEN_MAX
    more = [pages.block(1, 1, b"more", store=store) for store in range(1, 2 * OPEN_MAX + 1)]
    pages.write(*more)
    assert [pages.read(block) for block in blocks] == [[b"%d" % b.store] for b in blocks]
    assert [pages.read(block) for block in more] == [[b"more"]] * len(more)
    assert len(pages.disk.fds) <= 2 * OPEN_MAX
    pages.writer.close()
    pages.reader.close()
    assert not pages.disk.fds


def test_pages_are_deleted_also_those_that_never_were():
    pages = Pages()
    pages.write(pages.block(1, 0, b"a"), pages.block(2, 0, b"b"))
    assert page_files(pages.disk, DIRECTORY) == [(1, 1), (1, 2)]
    pages.writer.delete(1, [1, 2, 3])
    assert page_files(pages.disk, DIRECTORY) == []
    assert not pages.disk.fds


def test_a_reader_lets_go_of_what_is_about_to_go():
    pages = Pages()
    (block,) = pages.write(pages.block(1, 0, b"a"))
    pages.read(block)
    pages.reader.forget(1, [1, 2])
    pages.writer.delete(1, [1])
    assert not pages.disk.fds
    with pytest.raises(FileNotFoundError):
        pages.read(block)


def test_every_spoilt_byte_of_a_block_is_noticed():
    pages = Pages()
    (block,) = pages.write(pages.block(1, 0, b"hello", b"world"))
    for offset in range(block.offset, block.offset + block.length):
        pages.spoil(1, offset)
        with pytest.raises(PageDamageError, match="whole"):
            pages.read(block)
        found = scan_page(pages.disk, DIRECTORY, 1, 1, 1)
        assert found.damage
        assert all(b.lost for b in found.blocks)
        pages.spoil(1, offset)
    assert pages.read(block) == [b"hello", b"world"]


def test_every_spoilt_byte_of_the_header_is_noticed():
    for offset in range(PAGE_HEADER_BYTES):
        pages = Pages()
        (block,) = pages.write(pages.block(1, 0, b"hello"))
        pages.spoil(1, offset)
        assert "header" in scan_page(pages.disk, DIRECTORY, 1, 1, 1).damage
        if 20 <= offset < 36:  # the uuid, with which the sums of all blocks are salted
            with pytest.raises(PageDamageError, match="header"):
                pages.read(block)
        else:
            assert pages.read(block) == [b"hello"]
            assert not any(b.lost for b in scan_page(pages.disk, DIRECTORY, 1, 1, 1).blocks)


def test_a_scan_finds_what_exists_and_nothing_behind_it():
    pages = Pages()
    blocks = pages.write(*[pages.block(1, n, b"a" * n, b"b") for n in range(4)])
    found = scan_page(pages.disk, DIRECTORY, 1, 1, 3)
    assert found.damage == ""
    assert [(b.number, b.offset, b.length) for b in found.blocks] == [
        (b.number, b.offset, b.length) for b in blocks[:3]
    ]
    assert [(list(b.targets), list(b.sizes), b.ticket) for b in found.blocks] == [
        ([(7, 10 * n + 1)], [n, 1], 5) for n in range(3)
    ]


def test_a_scan_reports_blocks_and_pages_that_are_missing():
    pages = Pages()
    pages.write(pages.block(1, 0, b"a"))
    found = scan_page(pages.disk, DIRECTORY, 1, 1, 2)
    assert len(found.blocks) == 1
    assert "block 1" in found.damage
    assert "not there" in scan_page(pages.disk, DIRECTORY, 1, 2, 1).damage


def test_a_block_elsewhere_or_of_another_page_does_not_pass():
    pages = Pages()
    one, two = pages.write(pages.block(1, 0, b"same"), pages.block(2, 0, b"same"))
    fd = pages.disk.open(f"{DIRECTORY}/{page_name(1, 1)}")
    other = pages.disk.open(f"{DIRECTORY}/{page_name(1, 2)}")
    pages.disk.pwrite(other, pages.disk.pread(fd, one.length, one.offset), two.offset)
    with pytest.raises(PageDamageError, match="whole"):
        pages.read(two)


@pytest.mark.parametrize("payload", [b"", b"\x05", b"\x01\x00\x00"])
def test_what_is_no_add_record_has_no_head(payload):
    with pytest.raises(BadRecordError):
        peek_add(payload)


def lost_by_queue(found) -> dict[int, int]:
    """Return how many messages of each queue lost blocks held."""
    lost: dict[int, int] = {}
    for block in found.blocks:
        # One that nobody has is ignored by whoever restores.
        for queue in {q for q, _ in block.targets if q in (7, 8)} if block.lost else ():
            lost[queue] = lost.get(queue, 0) + len(block.sizes)
    return lost


def names_queues(block: PageBlock, offset: int) -> bool:
    """Whether the byte is of those that say which queues a block is for, and from which seq on.

    Without a neighbour on each side nothing else tells.
    """
    first = block.offset + BATCH_HEADER_BYTES + 18
    return first <= offset < first + 16 * len(block.targets)


def names_lengths(block: PageBlock, offset: int) -> bool:
    """Whether the byte is in a head, of the block or of its record."""
    return offset < block.offset + block.length - 9


def two_queues(pages: Pages) -> list[PageBlock]:
    """Write six blocks, of three messages each, for one queue, the other, and both."""
    seqs = {7: 1, 8: 1}
    blocks = []
    for number, queues in enumerate(((7,), (8,), (7, 8), (7,), (8,), (7, 8))):
        block = PageBlock(1, 1, number, [(q, seqs[q]) for q in queues], 99)
        block.ticket = 5
        block.extend([b"%d/%d" % (number, n) for n in range(3)], 20, 0, 9)
        for queue in queues:
            seqs[queue] += 3
        blocks.append(block)
    pages.writer.write(blocks)
    return blocks


@pytest.mark.parametrize("number", range(6))
def test_a_bad_block_costs_what_it_held_and_nothing_behind_it(number):
    """Wherever the bit is: in its header, in the head of its record, in a body."""
    pages = Pages()
    blocks = two_queues(pages)
    bad = blocks[number]
    for offset in range(bad.offset, bad.offset + bad.length):
        pages.spoil(1, offset)
        found = scan_page(pages.disk, DIRECTORY, 1, 1, 6)
        whole = [b.number for b in found.blocks if not b.lost]
        assert whole == [n for n in range(6) if n != number], offset
        lost = lost_by_queue(found)
        true = {queue: 3 for queue, _ in bad.targets}
        if number in (2, 3):  # something of each queue is on both sides of it
            assert lost == true, offset
        elif lost:
            assert lost == true or names_queues(bad, offset), offset
        assert found.unknown == 0 or number not in (2, 3) or names_lengths(bad, offset)
        pages.spoil(1, offset)


def test_the_exact_loss_is_known_for_a_spoilt_body_wherever_it_is():
    pages = Pages()
    for block in two_queues(pages):
        pages.spoil(1, block.offset + block.length - 1)
    found = scan_page(pages.disk, DIRECTORY, 1, 1, 6)
    assert lost_by_queue(found) == {7: 12, 8: 12}
    assert found.unknown == 6, "no whole block is left that would say so too"


def test_a_page_that_is_another_page_gives_nothing_away():
    pages = Pages()
    pages.write(pages.block(1, 0, b"one"), pages.block(2, 0, b"two"))
    pages.disk.rename(f"{DIRECTORY}/{page_name(1, 2)}", f"{DIRECTORY}/{page_name(1, 1)}")
    found = scan_page(pages.disk, DIRECTORY, 1, 1, 1)
    assert "not its own" in found.damage
    assert not found.blocks
