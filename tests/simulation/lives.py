"""What all simulated worlds are: a journal on a disk that fails, and lives that each end somehow.

    start ──> live ──> crash, kill, failure, or close in order ──> start ... ──> start ──> finish

Each world adds the events of a life, the parts that stand on the journal, and a ledger that judges
them. All else is here: the chance that a seed stands for, the disk and its log, the faults that
threaten a start or a life, the journal's answers and when they may come, and the rest of a stop.

A seed means the same run as long as worlds draw from `chance` in the same order: a new choice of a
plan draws from a stream of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any, TypeVar

from gateway.store.persistence import Restored
from storage.errors import StorageError
from storage.journal import Journal
from storage.segments import Segments
from tests.simulation.disk import Crash, SimDisk
from tests.simulation.model import Model, ViolationError
from tests.simulation.writer import TurnWriter


class Lives:
    """See the module text; `run()` raises ViolationError, or whatever the journal raised.

    Attributes:
        lives: how many there are before the last start.
        power: how often a crash takes the power with it.
        faults: the disk fails now and then.
        closes: how often a life without a fault ends in order.
        failed: the store has said that it failed; `closed`: that it has stopped.
        found_up_to: the ticket that the last start found all of.
    """

    journal: Journal
    writer: TurnWriter
    found_up_to: int
    lives: int
    power: float
    faults: bool
    segment_bytes: int
    closes = 0.4

    def __init__(self, seed: int | str, *, streams: tuple[str, str], model: Model) -> None:
        """`streams` name the chance of what happens and of the disk, apart from other worlds'."""
        life, disk = streams
        self.seed = seed
        self.chance = random.Random(f"{life}/{seed}")
        self.disk = SimDisk(random.Random(f"{disk}/{seed}"))
        self.model = model
        self.failed = self.closed = False

    def log(self, text: str) -> None:
        self.disk.log.append(text)

    # ---- what worlds say

    def tight(self) -> AbstractContextManager[None]:
        """Limits of the code under test that hold for this run."""
        return nullcontext()

    def threaten_start(self) -> None:
        """A start begins."""

    def open(self) -> tuple[Restored, Segments]:
        """Open the journal; returns what was found."""
        raise NotImplementedError

    def join(self, found: Restored, segments: Segments) -> None:
        """A start went well: build what stands on the journal, and judge what was found."""

    def begin_life(self) -> tuple[int, dict[str, float]]:
        """Draw how many things happen, what threatens them, and the weight of each kind."""
        raise NotImplementedError

    def act(self, name: str) -> None:
        """Have one thing happen."""
        raise NotImplementedError

    def between(self, number: int) -> None:
        """So many things have happened."""

    def close(self) -> None:
        """Stop in order, as far as the disk allows."""
        raise NotImplementedError

    def close_files(self) -> None:
        """The journal has stopped: close the other files."""

    def go_off(self) -> None:
        """The process ends in the middle of what it does."""
        self.lose()

    def durable_up_to(self, ticket: int) -> None:
        """All up to a ticket is on disk."""

    def finish(self) -> None:
        """Nothing fails any more: all goes, and nothing may stay."""

    # ---- a run

    def run(self) -> None:
        with self.tight():
            for life in range(self.lives):
                self.log(f"life {life}")
                self.start()
                self.live()
            self.log("last life")
            self.start()
            self.finish()

    def start(self) -> None:
        """Start until it goes well; crashes and faults may come in between."""
        attempts = 0
        while True:
            attempts += 1
            if attempts <= 2:
                self.threaten_start()
            try:
                found, segments = self.open()
            except Crash:
                self.lose()
                continue
            except (OSError, StorageError) as error:
                if "simulated" not in str(error):
                    raise
                self.log(f"start refused: {error}")
                self.disk.boot()
                continue
            break
        if self.disk.fds:
            raise ViolationError(f"a start leaves {len(self.disk.fds)} files open")
        self.disk.crash_at = -1
        self.disk.read_faults = self.disk.sync_faults = 0
        self.failed = self.closed = False
        self.found_up_to = self.model.recovered(found, self.journal.synced, attempts=attempts)
        self.join(found, segments)

    def live(self) -> None:
        """Work, until one of the ends comes."""
        steps, weights = self.begin_life()
        try:
            for number, name in enumerate(
                self.chance.choices(list(weights), list(weights.values()), k=steps)
            ):
                self.act(name)
                self.note_handed()
                if self.failed:
                    break
                self.between(number)
            self._end()
        except Crash:
            self.note_handed()
            self.go_off()
        self.disk.capacity = None

    def _end(self) -> None:
        if self.failed:
            self.model.stop = "unclean"
            self.go_off()
        elif self.chance.random() < self.closes:
            self.close()
        else:
            self.go_off()

    # ---- threats

    def may_fail_at_start(self, *, reads: float, faults: int, crash: float, calls: int) -> None:
        """Let the start fail: `reads` and `crash` say how often reading fails, or all ends.

        A read or a sync fails within so many `faults`, a crash comes within so many `calls`.
        """
        if self.faults and self.chance.random() < reads:
            self.disk.read_faults = self.chance.randint(1, faults)
        elif self.faults and self.chance.random() < 0.1:
            self.disk.sync_faults = self.chance.randint(1, faults)
        elif self.chance.random() < crash:
            self.disk.crash_at = self.disk.calls + self.chance.randint(1, calls)

    def may_fail(self, *, crash: float, calls: int, syncs: float, full: float) -> None:
        """Let the disk fail somewhere in this life: `crash` says how often, within so many `calls`.

        Of the faults a sync that fails has the part `syncs`, and a full disk the part up to `full`.
        """
        if self.chance.random() < crash:
            self.disk.crash_at = self.disk.calls + self.chance.randint(1, max(10, calls))
        if not self.faults:
            return
        kind = self.chance.random()
        if kind < syncs:
            self.disk.sync_faults = self.chance.randint(1, 25)
        elif kind < full:
            room = self.chance.randint(0, 4) * self.segment_bytes
            self.disk.capacity = self.disk._used() + room

    # ---- what the journal tells

    def listen(self) -> None:
        """Hear of what becomes of the journal's batches."""
        self.journal.on_durable = self._on_durable
        self.journal.on_failed = self._on_failed

    def _on_durable(self, ticket: int) -> None:
        self.log(f"      durable up to {ticket}")
        if self.failed:
            raise ViolationError(f"ticket {ticket} reported after the store had failed")
        self.model.report(ticket)
        self.durable_up_to(ticket)

    def _on_failed(self, error: BaseException) -> None:
        self.log(f"      failed: {error}")
        if self.failed:
            raise ViolationError("the failure was told twice")
        if not isinstance(error, OSError):
            raise error
        self.failed = True

    def _on_closed(self) -> None:
        self.closed = True

    def note_handed(self) -> None:
        """After each step: the journal is in order, and what the writer has may be on disk."""
        self.journal.check_invariants()
        busy = self.journal._busy
        if busy is not None and self.model.hand(busy) and busy.written_as - 1 != busy.synced:
            raise ViolationError("a batch was taken before the one before it was synced")

    # ---- the end of a life

    def lose(self) -> None:
        """The machine or the process goes off."""
        if self.chance.random() < self.power:
            self.log("power lost")
            self.disk.lose_power()
        else:
            self.log("killed")
            self.disk.boot()

    def stop_store(self) -> bool:
        """Close the journal in order; returns whether the disk allowed that."""
        self.model.stop = "maybe"
        self.journal.close(self._on_closed)
        while True:
            self.note_handed()
            if not (self.writer.step() or self.writer.answer()):
                break
        if not self.closed:
            raise ViolationError("the stop never came to its end")
        self.close_files()
        if self.failed:
            self.lose()
            return False
        if self.disk.fds:
            raise ViolationError(f"a stop leaves {len(self.disk.fds)} files open")
        self.model.stop = "clean"
        return True


@contextmanager
def replaced(wanted: Iterable[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    """Let names of modules be other values for a while."""
    with ExitStack() as stack:
        for module, name, value in wanted:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


W = TypeVar("W", bound=Lives)


def run_to_its_end(world: W) -> W:
    """Run a world; raises what it found, with the last events as a note."""
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {world.seed}; SEED={world.seed} replays it. The last events:")
        error.add_note("\n".join(world.disk.log))
        raise
    return world
