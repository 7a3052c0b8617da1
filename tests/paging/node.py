"""A gateway over a real journal and real page files, without threads and sockets."""

from __future__ import annotations

import itertools

from gateway.addresses.match import SettingsEntry, SettingsTable
from gateway.broker import Gateway, Limits
from gateway.model.address import parse_destination
from gateway.model.run import Run
from gateway.model.turn import Turn
from gateway.store.persistence import JournalStore, open_journal
from storage.files import RealFiles
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from tests.broker.core import Owner, Taker, flags_of, stomp
from tests.simulation.writer import TurnWriter

SEGMENT_BYTES = 1 << 20


class Node:
    """One life of a gateway in a directory; `restart` is kill -9 unless told."""

    def __init__(self, fs, directory: str, *entries: SettingsEntry, **options) -> None:
        self.fs = fs
        self.directory = directory
        self.entries = entries
        self.segment_bytes = options.get("segment_bytes", SEGMENT_BYTES)
        self.make_uuid = options.get("make_uuid") or _uuids()
        self.limits = options.get("limits") or Limits()
        self.now = 1_000_000
        self.failed = None
        self._start()

    def _start(self) -> None:
        self.later = []
        journal_directory, paging = f"{self.directory}/journal", f"{self.directory}/paging"
        self.journal, self.restored = open_journal(
            self.fs, journal_directory, self.segment_bytes, paging=paging
        )
        self.reader = PageReader(self.fs, paging)
        self.store = JournalStore(self.journal, self.reader)
        self.gateway = Gateway(
            turn=Turn(self.later.append),
            settings=SettingsTable(self.entries),
            store=self.store,
            limits=self.limits,
            now_ms=lambda: self.now,
            make_name=map(str, itertools.count()).__next__,
        )
        self._restore()
        gateway = self.gateway
        self.store.snapshot = lambda: [
            *gateway.directory.snapshot(),
            *gateway.operations.pager.definitions(),
        ]
        self.journal.on_durable = gateway.durable_up_to
        self.journal.on_failed = self._on_failed
        segments = Segments(self.fs, journal_directory, self.make_uuid)
        pages = PageWriter(self.fs, paging, self.make_uuid)
        self.writer = TurnWriter(self.journal, segments, self.segment_bytes, pages=pages)
        self.journal.start(self.writer)

    def _restore(self) -> None:
        directory, restored = self.gateway.directory, self.restored
        for address in restored.addresses:
            directory.restore_address(address)
        for definition in restored.queues:
            queue = directory.restore_queue(definition)
            queue.restore(restored.messages.get(definition.queue_id, []))
            highest = restored.highest.get(definition.queue_id, 0)
            queue.counts.next_seq = max(queue.next_seq, highest + 1)
            self.gateway.restored(queue)
        self.gateway.recovered()
        directory.next_id = restored.next_id
        self.gateway.operations.pager.restore(restored.pages)

    def _on_failed(self, error: BaseException) -> None:
        self.failed = error

    # ---- time

    def turn(self) -> None:
        while self.later:
            waiting, self.later[:] = list(self.later), []
            for action in waiting:
                action()

    def sync(self) -> None:
        """Let everything go to the disk, and what follows from it happen."""
        while True:
            self.turn()
            self.store.flush()
            if not (self.writer.step() or self.writer.answer() or self.later):
                break

    def close(self) -> None:
        """Stop in order."""
        done = []
        self.sync()
        self.journal.close(lambda: done.append(True))
        while not done and (self.writer.step() or self.writer.answer()):
            pass
        self.store.close_pages()

    def kill(self) -> None:
        """Let go of what a process that is killed lets go of."""
        self.store.close_pages()
        work = self.writer.work
        work._pages.close()
        work._segments.close()

    def restart(self, *, clean: bool = False) -> None:
        if clean:
            self.close()
        else:
            self.kill()
        self._start()
        self.turn()

    # ---- clients

    def producer(self, name: str, routing=None):
        return self.gateway.open_producer(parse_destination(name), routing, Owner())

    def send(self, name: str, bodies, *, durable: bool = True, routing=None) -> int:
        """Send one run; returns how many were taken."""
        route = self.producer(name, routing)
        outcome = route.send(Run([stomp(body) for body in bodies], flags_of(durable=durable)))
        taken = len(bodies) if outcome.refusal is None else outcome.taken
        route.close()
        return taken

    def consume(self, name: str, room: int = 0, **how) -> Taker:
        taker = Taker(room)
        taker.hold = self.gateway.subscribe(parse_destination(name), None, taker, **how)
        self.turn()
        return taker

    def drain(self, name: str, step: int = 100, amount: int | None = None) -> list[bytes]:
        """Consume and acknowledge until nothing comes, or `amount` is reached."""
        taker = self.consume(name)
        taken: list[bytes] = []
        while amount is None or len(taken) < amount:
            taker.take(step if amount is None else min(step, amount - len(taken)))
            self.sync()
            if not taker.got:
                break
            taken += taker.bodies()
            taker.ack()
            taker.left = 0
            self.sync()
        taker.leave()
        self.sync()
        return taken

    def page_files(self) -> list[str]:
        return [name for name in self.fs.listdir(f"{self.directory}/paging") if "page" in name]

    def check(self) -> None:
        for queue in self.gateway.queues.values():
            queue.check_invariants()
        for address in self.gateway.addresses.values():
            if address.paging is not None:
                address.paging.check_invariants()
        assert self.gateway.load.memory == sum(
            a.size_bytes for a in self.gateway.addresses.values()
        )


def _uuids():
    numbers = itertools.count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def node(path, *entries: SettingsEntry, **options) -> Node:
    """Return a gateway on the real disk below `path`."""
    return Node(RealFiles(), str(path), *entries, **options)
