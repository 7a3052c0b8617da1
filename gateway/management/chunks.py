"""An answer that is made while it is sent.

The iterator is asked for the next piece only when the transport has room, so that a slow reader
costs one piece of memory. Senders take turns: many that read fast hold others up no longer than
one. However the exchange ends (all sent, client gone, fault), the iterator is
closed once, so that a generator can give back what it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.web.http import Request
from zope.interface import implementer

#: What is written in one turn of the reactor before others get theirs.
TURN_BYTES: Final = 1 << 20
TURN_PIECES: Final = 64
#: And how long pieces are made in one; the first is made in any case.
TURN_SECONDS: Final = 0.005


class Rounds:
    """The senders that have something to write, one after the other.

    All together have as long in one turn of the reactor as one has.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self._waiting: deque[ChunkSender] = deque()
        self._call: IDelayedCall | None = None

    def ask(self, sender: ChunkSender) -> None:
        """Have a sender write in one of the next turns."""
        self._waiting.append(sender)
        if self._call is None:
            self._call = self.clock.callLater(0, self._turn)

    def _turn(self) -> None:
        ends = float(self.clock.seconds()) + TURN_SECONDS
        for _ in range(len(self._waiting)):
            self._waiting.popleft().write_some()
            if self.clock.seconds() >= ends:
                break
        self._call = self.clock.callLater(0, self._turn) if self._waiting else None


@implementer(IPushProducer)
class ChunkSender:
    """Sends the pieces of `chunks` through `request`, then calls `ended` with None or the fault."""

    def __init__(
        self,
        rounds: Rounds,
        request: Request,
        chunks: Iterator[bytes],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self._rounds = rounds
        self._request = request
        self._chunks = chunks
        self._ended = ended
        self._paused = False
        self._over = False
        self._asked = False

    def start(self, first: bytes) -> None:
        """Send the piece that was pulled already, then the others."""
        self._request.registerProducer(self, streaming=True)
        self._request.write(first)
        self._later()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._later()

    def stopProducing(self) -> None:
        """The client is gone: ask for nothing more."""
        self._finish()

    def _later(self) -> None:
        if not (self._asked or self._over or self._paused):
            self._asked = True
            self._rounds.ask(self)

    def write_some(self) -> None:
        """Write what one turn allows."""
        self._asked = False
        room = TURN_BYTES
        clock = self._rounds.clock
        ends = float(clock.seconds()) + TURN_SECONDS
        for _ in range(TURN_PIECES):
            if self._paused or self._over or room <= 0:
                break
            try:
                piece = next(self._chunks)
            except StopIteration:
                self._complete()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer is cut short
                self._request.unregisterProducer()
                self._finish()
                self._ended(error)
                return
            room -= len(piece)
            self._request.write(piece)
            if clock.seconds() >= ends:
                break
        self._later()

    def _complete(self) -> None:
        self._finish()
        self._request.unregisterProducer()
        self._ended(None)

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        close_chunks(self._chunks)


def close_chunks(chunks: object) -> None:
    """Close a generator; other iterators have nothing to close."""
    close = getattr(chunks, "close", None)
    if close is not None:
        close()
