"""The thread that writes the trail, behind a bounded queue: a slow disk never holds the reactor.

    posted ──> waiting (bounded) ──> appended in batches ──> synced each interval
                 └─full─> counted, and told by a line once there is room again

What the disk refuses is tried again each second; its lines wait meanwhile, in order. `tell` hears
from this thread when writing fails, and when it goes on.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.audit.events import LOST
from gateway.audit.trail import Trail, time_text

#: Lines that wait: some seconds of the busiest gateway, and 64 MiB at the very most.
WAITING_MAX: Final = 8192
BATCH_MAX: Final = 1024
RETRY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 5.0

#: Told `failed` with why, `went-on`, or `fault` with what the start found wrong with the trail.
Tell = Callable[[str, str], None]


class TrailThread:
    """See the module text.

    Attributes:
        lines: that were handed to the trail.
        lost: events that found no room.
        failing: why nothing is written now; empty: it is.
    """

    def __init__(
        self, trail: Trail, now_ms: Callable[[], int], tell: Tell, sync_seconds: float
    ) -> None:
        """`sync_seconds` is how long lines wait for a sync; 0: not at all, below 0: for ever."""
        self.lines = self.lost = 0
        self.failing = ""
        self._trail = trail
        self._now_ms = now_ms
        self._tell = tell
        self._sync_seconds = sync_seconds
        self._waiting: queue.Queue[bytes | None] = queue.Queue(WAITING_MAX)
        self._told_lost = 0
        self._open = False
        self._dirty, self._dirty_ms = False, 0  # since when there is something to sync
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Begin; the trail is opened on the thread."""
        self._thread.start()

    def post(self, body: bytes) -> None:
        """Have a line written; never waits."""
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Write what waits, for some seconds where the disk is slow, and end."""
        self._ending.set()
        try:
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        taken: list[bytes] = []
        going = True
        while going:
            try:
                if not self._open:
                    self._trail.open()
                    self._open = True
                    if self._trail.fault:
                        self._tell("fault", self._trail.fault)
                if not self.failing:
                    going = self._take(taken)
                batch, taken = taken, []
                self._write(batch, last=not going)
                self._went_on()
            except OSError as error:
                self._failed(error)
                if self._ending.wait(RETRY_SECONDS):
                    break
        with suppress(OSError):
            self._trail.close()

    def _take(self, taken: list[bytes]) -> bool:
        """Wait for lines, as long as nothing has to be synced; returns whether more may come."""
        timeout = None
        if self._dirty and self._sync_seconds > 0:
            # A clock that was set back makes one sync late, and no more.
            passed = abs(self._now_ms() - self._dirty_ms) / 1000
            timeout = max(0.0, self._sync_seconds - passed)
        try:
            one = self._waiting.get(timeout=timeout)
        except queue.Empty:
            return True
        while one is not None:
            taken.append(one)
            if len(taken) >= BATCH_MAX:
                return True
            try:
                one = self._waiting.get_nowait()
            except queue.Empty:
                return True
        return False

    def _write(self, batch: list[bytes], *, last: bool) -> None:
        lost = 0 if self.failing else self.lost - self._told_lost
        if lost:
            self._told_lost += lost
            facts = {"time": time_text(self._now_ms()), "event": LOST, "count": lost}
            batch = [*batch, json.dumps(facts).encode()]
        self.lines += len(batch)
        if batch and not self._dirty:
            self._dirty, self._dirty_ms = True, self._now_ms()
        self._trail.append(batch)
        due = abs(self._now_ms() - self._dirty_ms) >= self._sync_seconds * 1000
        if last:
            self._trail.close()
        elif self._dirty and (self.failing or due or not batch):
            self._trail.sync()
            self._dirty = False

    def _failed(self, error: OSError) -> None:
        why = f"{error.filename or 'the audit file'}: {error.strerror or error}"
        if not self.failing:
            self.failing = why
            self._tell("failed", why)

    def _went_on(self) -> None:
        if self.failing:
            self.failing = ""
            self._tell("went-on", "")
