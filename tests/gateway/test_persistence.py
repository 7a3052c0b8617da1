"""Definitions and messages over a restart: the Store port on the journal, what a start finds."""

from __future__ import annotations

import errno
import json
import random
from functools import partial

import pytest

from gateway.model.address import RoutingType
from gateway.model.definitions import (
    AddressDefinition,
    Definition,
    DivertDefinition,
    DivertRouting,
    IdsDefinition,
    QueueDefinition,
    StreamDefinition,
)
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, ONE_DELIVERY
from gateway.model.run import GappedRun, Run
from gateway.store.notes import decode_definition, encode_definition
from gateway.store.persistence import (
    JournalStore,
    Restored,
    open_journal,
)
from storage.errors import DamageError, StorageError
from storage.record import AddRun
from storage.recovery import read_piece
from storage.segments import Segments, segment_name, segment_number
from tests.simulation.disk import SimDisk
from tests.simulation.writer import TurnWriter

DIRECTORY = "journal"
SIZE = 4096
QUEUE = QueueDefinition(queue_id=7, name="q", address="a", routing=RoutingType.ANYCAST)
STREAM = StreamDefinition(stream_id=3, name="s", address="a", epoch=2)
ADDRESS = AddressDefinition(name="a", routing_types=frozenset(RoutingType), auto_created=True)


class Life:
    """One process: a store on a disk; `found` is what it began with."""

    def __init__(self, disk: SimDisk, definitions: tuple[Definition, ...] = ()) -> None:
        self.disk = disk
        self.journal, self.found = open_journal(disk, DIRECTORY, SIZE)
        self.store = JournalStore(self.journal)
        self.store.snapshot = lambda: definitions
        segments = Segments(disk, DIRECTORY, lambda: disk.chance.randbytes(16))
        self.writer = TurnWriter(self.journal, segments, SIZE)
        self.journal.start(self.writer)

    def add(self, first: int, *bodies: bytes, flags: int = DURABLE, queue: int = 7) -> int:
        return self.store.append([(queue, first)], Run(bodies, flags, 5), sum(map(len, bodies)), 11)

    def run(self) -> None:
        self.store.flush()
        self.writer.run()

    def stop(self) -> None:
        done: list[bool] = []
        self.journal.close(lambda: done.append(True))
        self.writer.run()
        assert done


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def seqs(found: Restored, queue: int = 7) -> list[int]:
    return [m.seq for m in found.messages.get(queue, [])]


# ---- definitions


@pytest.mark.parametrize(
    "definition",
    [
        QUEUE,
        QueueDefinition(
            queue_id=2**40,
            name="q\u2603 /",
            address="",
            routing=RoutingType.MULTICAST,
            auto_created=True,
            ring_size=0,
            max_consumers=9,
            paused=True,
        ),
        ADDRESS,
        AddressDefinition(name="b", routing_types=frozenset()),
        STREAM,
        IdsDefinition(ids_id=2**33, address="a"),
        DivertDefinition(name="d", address="a.#", forwarding=("b",)),
        DivertDefinition(
            name="d",
            address="a",
            forwarding=("b", "c"),
            exclusive=True,
            filter="x = 1",
            routing=DivertRouting.PASS,
        ),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_definitions_come_back(definition: Definition, gone: bool) -> None:
    assert decode_definition(encode_definition(definition, gone=gone)) == (definition, gone)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\xff",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"kind":"queue"}',
        b'{"kind":"address","name":"a","types":["none"],"auto":false}',
        b'{"kind":"address","name":"a","types":3,"auto":false}',
    ],
)
def test_a_note_that_cannot_be_read_is_refused(note: bytes) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        decode_definition(note)


def test_a_definition_of_a_later_program_is_refused_by_name() -> None:
    with pytest.raises(StorageError, match="'tariff'"):
        decode_definition(json.dumps({"kind": "tariff"}).encode())


def test_the_last_word_about_each_definition_holds(disk: SimDisk) -> None:
    life = Life(disk)
    changed = QueueDefinition(
        queue_id=7, name="q", address="a", routing=RoutingType.ANYCAST, paused=True
    )
    for definition in (ADDRESS, QUEUE, STREAM, changed):
        life.store.define(definition)
    life.store.undefine(STREAM)
    life.run()
    found = Life(disk).found
    assert (found.addresses, found.queues, found.streams) == ([ADDRESS], [changed], [])
    assert found.next_id == 8


def test_each_segment_begins_with_all_that_holds(disk: SimDisk) -> None:
    life = Life(disk, (ADDRESS, QUEUE))
    for seq in range(1, 30):
        life.add(seq, bytes(900))
        life.run()
        life.store.remove(7, seq, seq, 1)
    life.run()
    assert segment_name(1) not in disk.listdir(DIRECTORY)
    found = Life(disk).found
    assert (found.addresses, found.queues) == ([ADDRESS], [QUEUE])


# ---- messages


def test_messages_come_back_as_they_were(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, b"a", b"b", b"c", flags=DURABLE | EXPIRES)
    life.store.append([(7, 4)], GappedRun([b"d", None], [DURABLE, 0], [0, 0]), 1, 12)
    life.store.remove(7, 2, 2, 1)
    life.store.count(7, [(3, DURABLE | EXPIRES | ONE_DELIVERY)])
    life.run()
    life.stop()
    found = Life(disk).found
    assert seqs(found) == [1, 3, 4]
    one, three, four = found.messages[7]
    assert (one.body, one.flags, one.expires) == (b"a", DURABLE | EXPIRES, 5)
    assert three.delivery_count == 1
    assert (four.body, four.flags) == (b"d", DURABLE)
    assert found.accepted[7] == [11, 11, 12]
    assert found.highest[7] == 5, "the number of what was not stored is used up too"
    assert found.clean


def test_messages_of_a_deleted_queue_pin_no_segment(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, bytes(3000))
    life.run()
    life.store.undefine(QUEUE)
    life.store.snapshot = tuple
    life.run()
    again = Life(disk)
    assert sum(again.journal.index.live.values()) == 0
    again.store.define(ADDRESS)
    again.run()
    again.store.define(ADDRESS)
    again.run()
    assert list(again.journal.index.live) == [again.journal.segment]


def test_a_stream_s_tail_goes_when_its_log_has_it(disk: SimDisk) -> None:
    life = Life(disk, (STREAM,))
    life.add(1, b"a", b"b", b"c", queue=3)
    life.run()
    life.store.release_stream(3, 1, 2)
    assert life.writer.jobs, "no turn of the gateway need follow"
    life.writer.run()
    assert seqs(Life(disk).found, 3) == [3]


def test_a_deleted_stream_is_released_from_the_beginning_of_time(disk: SimDisk) -> None:
    life = Life(disk, (STREAM,))
    life.add(10**12, b"a", queue=3)
    life.run()
    life.store.release_stream(3, 0, 10**12)
    life.run()
    assert seqs(Life(disk).found, 3) == []
    assert sum(life.journal.index.live.values()) == 0


def test_nested_transactions_end_with_the_outer_one(disk: SimDisk) -> None:
    life = Life(disk)
    life.store.begin_atomic()
    life.store.begin_atomic()
    life.add(1, b"a")
    life.store.end_atomic()
    life.run()
    assert life.journal.synced == 0, "the outer one is still open"
    life.store.end_atomic()
    life.run()
    assert life.journal.synced == 1


# ---- seen or not


def marks(found: Restored) -> list[bool]:
    return [bool(m.flags & MAYBE_SEEN) for m in found.messages[7]]


def test_after_a_kill_each_message_may_have_been_seen_after_a_stop_none(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    life = Life(disk, (QUEUE,))
    assert (marks(life.found), life.found.clean) == ([True], False)
    life.add(2, b"b")
    life.run()
    life.stop()
    life = Life(disk, (QUEUE,))
    assert (marks(life.found), life.found.clean) == ([True, False], True)


def test_a_clean_stop_counts_for_one_start(disk: SimDisk) -> None:
    """A process that only delivers writes nothing; it may be killed all the same."""
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    life.stop()
    assert Life(disk).found.clean
    assert not Life(disk).found.clean


@pytest.mark.parametrize("garbage", [b"", b"x", b"12x"])
def test_a_begun_mark_that_cannot_be_read_counts_as_begun(disk: SimDisk, garbage: bytes) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    life.stop()
    fd = disk.open(f"{DIRECTORY}/began", create=True)
    disk.pwrite(fd, garbage, 0)
    assert not Life(disk).found.clean


# ---- what stands in the way of a start


def test_a_read_error_refuses_the_start_and_changes_nothing(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    disk.read_faults = 1
    with pytest.raises(OSError, match="cannot read") as caught:
        open_journal(disk, DIRECTORY, SIZE)
    assert caught.value.errno == errno.EIO
    assert seqs(Life(disk).found) == [1]


def test_damage_names_the_file(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    for seq in (1, 2, 3):
        life.add(seq, b"a")
        life.run()
    path = f"{DIRECTORY}/{segment_name(1)}"
    disk.flip(path, 70, 3)
    with pytest.raises(DamageError) as caught:
        open_journal(disk, DIRECTORY, SIZE)
    assert (caught.value.path, caught.value.offset, caught.value.batches) == (path, 64, 1)


def test_what_a_failed_sync_left_in_memory_is_not_believed(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    life.add(2, b"b" * 600)
    disk.sync_faults = 1
    life.run()
    assert isinstance(life.journal.failure, OSError)
    again = Life(disk)
    assert seqs(again.found) == [1]
    disk.lose_power()
    assert seqs(Life(disk).found) == [1], "and the same when the power is lost as well"


def test_files_of_others_are_left_alone(disk: SimDisk) -> None:
    disk.open(f"{DIRECTORY}/notes.txt", create=True)
    life = Life(disk, (QUEUE,))
    life.add(1, b"a")
    life.run()
    assert "notes.txt" in disk.listdir(DIRECTORY)


# ---- one record for several addresses


def _read(disk: SimDisk, fd: int, first: int, second: int) -> bytes:
    return disk.pread(fd, second, first)


def adds(disk: SimDisk) -> list[AddRun]:
    """Return the ADD records that the journal has."""
    records: list[AddRun] = []
    for name in disk.listdir(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        number = segment_number(name)
        if number is not None:
            fd = disk.open(path)
            read = partial(_read, disk, fd)
            piece = read_piece(path, number, 0, read)
            records += [run for _, run in piece.runs]
            disk.close(fd)
    return records


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_the_same_bodies_in_one_step_are_one_record(
    disk: SimDisk, atomic: bool, same: bool
) -> None:
    other = QueueDefinition(queue_id=8, name="r", address="b", routing=RoutingType.ANYCAST)
    life = Life(disk, (QUEUE, other))
    bodies = [b"1", b"2"]
    if atomic:
        life.store.begin_atomic()
    for queue, these in ((7, bodies), (8, bodies if same else list(bodies))):
        life.store.append([(queue, 1)], Run(these, DURABLE, 0), 2, 1)
    if atomic:
        life.store.end_atomic()
    life.store.remove(8, 1, 1, 1)
    life.run()
    assert len(adds(disk)) == (1 if atomic and same else 2)
    life.stop()
    found = Life(disk).found
    assert (seqs(found), seqs(found, 8)) == ([1, 2], [2])


def test_a_run_with_other_facts_is_a_record_of_its_own(disk: SimDisk) -> None:
    life = Life(disk, (QUEUE,))
    bodies = [b"1"]
    life.store.begin_atomic()
    life.store.append([(7, 1)], Run(bodies, DURABLE, 0), 1, 1)
    life.store.append([(7, 2)], Run(bodies, DURABLE | 1, 0), 1, 1)
    life.store.append([(7, 3)], Run(bodies, DURABLE | 1, 5), 1, 1)
    life.store.append([(7, 4)], Run(bodies, DURABLE | 1, 5), 1, 2)
    life.store.end_atomic()
    life.store.append([(7, 5)], Run(bodies, DURABLE | 1, 5), 1, 2)
    life.run()
    assert len(adds(disk)) == 5
    assert seqs(Life(disk).found) == [1, 2, 3, 4, 5]
