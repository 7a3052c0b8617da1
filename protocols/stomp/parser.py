r"""Bytes to frames, whole reads at a time; SENDs that repeat their header block come out as runs.

    frames   = *(EOL) head EOL EOL body NUL
    body     = content-length bytes, or all up to the NUL

    mode       input              next
    PARSING    halt               HALTED     what comes is kept
    HALTED     resume             PARSING    what was kept is parsed
    any        drop, no frame     DROPPED    nothing more is read

Producers repeat their header block, so that its raw bytes are looked up in a small cache
(`known_heads`) before anything is decoded; a `receipt:` line, which differs from frame to frame, is
cut out first, and on a second try `content-length:` as well. Any other head goes to `head_finder`.

A frame that is not complete waits (`unfinished`), and what comes is scanned only once: for a line
end while the head is open, for a NUL or a number of bytes while the body is. It knows no session:
frames go to a `Sink`, which may halt the parser to make it keep what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from protocols.stomp.frame import UNDATED, Head
from protocols.stomp.head_finder import HeadFinder
from protocols.stomp.heads import FrameError, checked_receipt, too_large
from protocols.stomp.known_heads import KnownHeads
from protocols.stomp.limits import StompLimits
from protocols.stomp.unfinished import Unfinished, Wanted
from protocols.stomp.versions import Version

#: The route of ACK frames that consist of an id only; their runs hold raw ids in place of bodies.
ACKS: Final = "acks"
_RECEIPT: Final = b"\nreceipt:"
_RECEIPT_BYTES: Final = len(_RECEIPT)
#: ACKs as most clients of 1.2 write them, with nothing but a plain id.
_ACK_RUN: Final = re.compile(rb"(?:(?:\r?\n)*+ACK\nid:[!-\[\]-~]{1,200}\n\n\0)+")
_ACK_ID: Final = re.compile(rb"id:([^\n]+)\n\n")
#: What a receipt id may hold without being looked at: printable ASCII without space and backslash.
_PLAIN: Final = bytes(c for c in range(0x21, 0x7F) if c != 0x5C)


class Mode(Enum):
    """What is done with what comes; see the module text."""

    PARSING = "parsing"
    HALTED = "halted"
    DROPPED = "dropped"


#: Compared with once a run: a name of the module costs less than one of the class.
_PARSING: Final = Mode.PARSING


class Sink(Protocol):
    """Who takes the frames."""

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Take frames with heads of one route, as stored messages.

        `receipts` is empty, or has one raw id for each body.
        """

    def amid(self) -> None:
        """Halt the parser where the others are to have a turn: more follows what was handed out."""

    def lead(self, head: Head) -> None:
        """Call `head.lead_to()` for a SEND whose body needs no more thought; refuse nothing yet."""

    def frame(self, head: Head, body: bytes) -> None:
        """Take one frame that was not led anywhere."""

    def broken(self, error: FrameError) -> None:
        """Nothing more can be read."""


class Parser:
    """The receiving half of a connection.

    Attributes:
        mode: see the module text.
        now_ms: broker time; 0: what is stored does not say when it was sent.
        stamp: how a stored header block ends now, with that time.
    """

    __slots__ = (
        "_confirmed",
        "_heads",
        "_known",
        "_short_acks",
        "_sink",
        "_stamped_ms",
        "_unfinished",
        "_version",
        "limits",
        "mode",
        "now_ms",
        "stamp",
    )

    def __init__(self, sink: Sink, limits: StompLimits) -> None:
        """Begin before the login: `sink` takes the frame that is to be the CONNECT."""
        self._sink = sink
        self.limits = limits
        self.mode = Mode.PARSING
        self.now_ms: Callable[[], int] = int
        self.stamp = UNDATED
        self._stamped_ms = 0
        self._unfinished = Unfinished()
        self._known = KnownHeads(limits.body_bytes_max)
        self._heads = HeadFinder(limits, self._known, self._unfinished, self._lead)
        self._confirmed = False  # the last frame had a receipt: the next one is looked at for one
        self._version: Version | None = None
        self._short_acks = False

    def opened(self, version: Version, sink: Sink) -> None:
        """A version is agreed on: frames have its form from here on, and go to `sink`."""
        assert self._version is None, "nothing is negotiated twice"
        self._sink = sink
        self._version = self._heads.version = version
        # Before 1.2 an ACK has more than one header.
        self._short_acks = version is Version.V1_2

    @property
    def partial(self) -> int:
        """How many bytes of an unfinished frame (or of halted input) are kept."""
        return len(self._unfinished.kept)

    def forget(self) -> None:
        """Look at every head anew: what routes stood for has changed."""
        self._known.forget()

    def receive(self, data: bytes) -> None:
        """Parse `data` behind what was left; whole frames go to the sink before this returns."""
        if self.mode is _PARSING:
            if self._unfinished.kept:
                whole = self._unfinished.join(data)
                if whole is None:
                    return
                data = whole
            self._parse(data)
        elif self.mode is Mode.HALTED:
            self._unfinished.kept += data

    def halt(self) -> None:
        """Keep bytes, parse nothing until `resume`."""
        assert self.mode is not Mode.DROPPED, "nothing is read any more"
        self.mode = Mode.HALTED

    def resume(self) -> None:
        """Parse what was kept while halted."""
        assert self.mode is not Mode.DROPPED, "nothing is read any more"
        self.mode = Mode.PARSING
        if self._unfinished.kept:
            self._parse(self._unfinished.take())

    def drop(self) -> None:
        """Forget all input and take no more."""
        self.mode = Mode.DROPPED
        self._unfinished.drop()

    def _lead(self, head: Head) -> None:
        self._sink.lead(head)

    def _parse(self, buf: bytes) -> None:
        """Hand out every whole frame of `buf`; keep the rest."""
        now_ms = self.now_ms()
        if now_ms != self._stamped_ms:
            self._stamped_ms = now_ms
            self.stamp = b"timestamp:%d\n\n" % now_ms
        try:
            pos = self._frames(buf)
        except FrameError as error:
            self.drop()
            self._sink.broken(error)
            return
        if pos < len(buf) and self.mode is not Mode.DROPPED:
            self._unfinished.kept += buf[pos:]

    def _frames(self, buf: bytes) -> int:
        """Parse from the start of `buf`; returns where the first incomplete frame begins.

        Hot: each step costs once per message. Local names, no calls but bytes.find and dict.get
        on the common way.
        """
        total = len(buf)
        pos = 0
        find = buf.find
        known = self._known.by_key.get
        heads = self._heads
        body_max = self.limits.body_bytes_max
        blank, gap = (b"\r\n\r\n", 4) if heads.crlf else (b"\n\n", 2)
        confirmed = self._confirmed
        stamp = self.stamp
        receipt: bytes | None = None
        last: Head | None = None
        route: object | None = None
        bodies: list[bytes] = []
        receipts: list[bytes] = []
        try:
            while pos < total:
                end = find(blank, pos)
                head: Head | None = None
                if confirmed:
                    at = find(_RECEIPT, pos, end)
                    if at >= 0 and end >= 0:
                        cut = find(b"\n", at + _RECEIPT_BYTES, end)
                        if cut < 0:
                            cut = end
                        receipt = buf[at + _RECEIPT_BYTES : cut]
                        head = known(buf[pos:at] + buf[cut:end])
                elif end >= 0:
                    head = known(buf[pos:end])
                if head is not None:
                    start = end + gap
                else:
                    acks = _ACK_RUN.match(buf, pos) if self._short_acks else None
                    if acks is not None:
                        if bodies:
                            self._flush_amid(route, bodies, receipts)
                            bodies, receipts = [], []
                            if self.mode is not _PARSING:
                                return pos
                        self._sink.run(ACKS, _ACK_ID.findall(acks[0]), [])
                        pos = acks.end()
                        if self.mode is not _PARSING:
                            return pos
                        continue
                    found = heads.find(buf, pos)
                    if isinstance(found, int):
                        pos = found
                        break
                    head, receipt, pos, start = found
                    blank, gap = (b"\r\n\r\n", 4) if heads.crlf else (b"\n\n", 2)
                    if confirmed is not (receipt is not None):
                        confirmed = self._confirmed = not confirmed
                        if bodies:
                            self._flush_amid(route, bodies, receipts)
                            bodies, receipts = [], []
                            if self.mode is not _PARSING:
                                return pos
                if head is not last:
                    if head.stamp is not stamp:
                        head.restamp(stamp)
                    if head.route is not route:
                        if bodies:
                            self._flush_amid(route, bodies, receipts)
                            bodies, receipts = [], []
                            if self.mode is not _PARSING:
                                return pos
                        route = head.route
                    last = head
                size = head.length
                if size >= 0:
                    stop = start + size
                    if stop >= total:
                        self._unfinished.want(Wanted.BYTES, stop + 1 - pos)
                        break
                    following = self._excess(buf, stop, pos) if buf[stop] else stop + 1
                    if following < 0:
                        break
                    stored = head.stored
                else:
                    stop = find(b"\0", start)
                    if stop < 0 or stop - start > body_max:
                        self._nul_wanted(total - start, total - pos)
                        break
                    following = stop + 1
                    stored = head.stored_for(stop - start) if head.route is not None else b""
                if route is None:
                    self._sink.frame(head, buf[start:stop])
                    last = None  # it may lead somewhere from now on
                    pos = following
                    if self.mode is not _PARSING:
                        return pos
                    continue
                bodies.append(stored + buf[start:stop])
                if receipt is not None:
                    receipts.append(receipt)
                pos = following
                if pos < total and buf[pos] == 10:
                    pos += 1
        except FrameError:
            if bodies:
                self._flush(route, bodies, receipts)
                if self.mode is not _PARSING:
                    # What is broken comes up again when the frames before it could be taken.
                    return pos
            raise
        if bodies:
            self._flush(route, bodies, receipts)
        return pos

    def _flush_amid(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Hand out a run behind which more has come."""
        self._flush(route, bodies, receipts)
        self._sink.amid()

    def _flush(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Hand out a run. Receipt ids were cut out unread: they are judged here, all at once."""
        if receipts:
            joined = b"".join(receipts)
            if b"\r" in joined:
                # Lines that end with CR LF.
                receipts = [r.removesuffix(b"\r") for r in receipts]
                joined = b"".join(receipts)
            if joined.translate(None, _PLAIN) or len(joined) > self.limits.header_line_bytes_max:
                self._flush_unusual(route, bodies, receipts)
                return
        self._sink.run(route, bodies, receipts)

    def _flush_unusual(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        assert self._version is not None
        good: list[bytes] = []
        limit = self.limits.header_line_bytes_max
        try:
            for receipt in receipts:
                if len(receipt) > limit:
                    raise too_large("The receipt header", len(receipt), limit)
                good.append(checked_receipt(receipt, self._version, b""))
        finally:
            fine = bodies[: len(good)]
            # The caller flushes what it still holds when this raises: leave it nothing.
            bodies.clear()
            if fine:
                self._sink.run(route, fine, good)

    def _excess(self, buf: bytes, stop: int, pos: int) -> int:
        """Return where the frame ends whose content-length stopped short of the NUL; -1 if unknown.

        What is too much is cut off. 1.0 has no such mercy: the rest is read as the next frame, and
        fails as one.
        """
        if self._version is Version.V1_0:
            return stop
        nul = buf.find(b"\0", stop)
        if nul < 0:
            self._nul_wanted(len(buf) - stop, len(buf) - pos)
            return -1
        return nul + 1

    def _nul_wanted(self, size: int, frame: int) -> None:
        """Wait for the NUL behind `size` bytes of body; `frame` bytes of the frame are here."""
        limits = self.limits
        limit = limits.login_frame_bytes_max if self._version is None else limits.body_bytes_max
        if size > limit:
            raise too_large("The body of this frame", size, limit)
        self._unfinished.want(Wanted.NUL, frame + limit - size + 1)
