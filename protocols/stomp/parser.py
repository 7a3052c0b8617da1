r"""Bytes to frames, whole reads at a time; SENDs that repeat their header block come out as runs.

    frames   = *(EOL) head EOL EOL body NUL
    head     = command *(EOL header)            EOL = LF | CR LF
    body     = content-length bytes, or all up to the NUL

Producers repeat their header block, so that its raw bytes are looked up in a small cache before
anything is decoded; a `receipt:` line, which differs from frame to frame, is cut out first, and on
a second try `content-length:` as well. Whatever hits the cache is equal to a head that was decoded
in full, byte for byte; a head with a blank line inside is never in it, so that a hit also proves
where the head ends.

A frame that is not complete waits in a bytearray, and what comes is scanned only once: for a line
end while the head is open, for a NUL or a number of bytes while the body is. It knows no session:
frames go to a `Sink`, which may set `halted` to make the parser keep what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from protocols.stomp.frame import SEND, UNDATED, Head
from protocols.stomp.heads import (
    FrameError,
    bad_frame,
    check_command,
    checked_receipt,
    decode_head,
    too_large,
    too_many_headers,
)
from protocols.stomp.limits import StompLimits
from protocols.stomp.versions import Version

#: The route of ACK frames that consist of an id only; their runs hold raw ids in place of bodies.
ACKS: Final = "acks"
_EOLS: Final = re.compile(rb"(?:\r?\n)*")
_RECEIPT: Final = b"\nreceipt:"
_RECEIPT_BYTES: Final = len(_RECEIPT)
_LENGTH: Final = b"\ncontent-length:"
#: ACKs as most clients of 1.2 write them, with nothing but a plain id.
_ACK_RUN: Final = re.compile(rb"(?:(?:\r?\n)*+ACK\nid:[!-\[\]-~]{1,200}\n\n\0)+")
_ACK_ID: Final = re.compile(rb"id:([^\n]+)\n\n")
#: What a receipt id may hold without being looked at: printable ASCII without space and backslash.
_PLAIN: Final = bytes(c for c in range(0x21, 0x7F) if c != 0x5C)
#: Heads remembered for one connection; with the size below at most 512 KiB of keys.
_KNOWN_MAX: Final = 512
_KNOWN_BYTES_MAX: Final = 1024
_HTTP: Final = re.compile(
    rb"(?:GET|POST|HEAD|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) |Host:", re.IGNORECASE
)
_TLS: Final = b"\x16\x03"
# What a partial frame waits for.
_NOTHING, _LINE, _NUL, _BYTES = range(4)


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
        halted: set by the sink (or by `broken`): keep bytes, parse nothing until `resume`.
        version: None until the sink has agreed on one.
        received_total: bytes that came before the version was agreed.
        now_ms: broker time; 0: what is stored does not say when it was sent.
        stamp: how a stored header block ends now, with that time.
    """

    __slots__ = (
        "_bases",
        "_begin",
        "_confirmed",
        "_crlf",
        "_dropped",
        "_eols",
        "_known",
        "_need",
        "_short_acks",
        "_sink",
        "_stamped_ms",
        "_tail",
        "_version",
        "_wait",
        "halted",
        "limits",
        "now_ms",
        "received_total",
        "stamp",
    )

    def __init__(self, sink: Sink, limits: StompLimits) -> None:
        self._sink = sink
        self.limits = limits
        self.now_ms: Callable[[], int] = int
        self.stamp = UNDATED
        self._stamped_ms = 0
        self._tail = bytearray()
        self._wait = _NOTHING
        self._need = 0
        self._begin = 0
        self._eols = 0
        self._dropped = False
        self._known: dict[bytes, Head] = {}
        self._bases: dict[bytes, Head] = {}
        self._crlf = False
        self._confirmed = False  # the last frame had a receipt: the next one is looked at for one
        self.halted = False
        self._version: Version | None = None
        self._short_acks = False
        self.received_total = 0

    @property
    def version(self) -> Version | None:
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        self._version = version
        # Before 1.2 an ACK has more than one header.
        self._short_acks = version is Version.V1_2

    @property
    def partial(self) -> int:
        """How many bytes of an unfinished frame (or of halted input) are kept."""
        return len(self._tail)

    def forget(self) -> None:
        """Look at every head anew: what routes stood for has changed."""
        self._known.clear()
        self._bases.clear()

    def receive(self, data: bytes) -> None:
        """Parse `data` behind what was left; whole frames go to the sink before this returns."""
        if self.version is None:
            self.received_total += len(data)
        tail = self._tail
        if self.halted:
            if not self._dropped:
                tail += data
            return
        if tail:
            tail += data
            if not self._worth_a_look(data):
                return
            data = bytes(tail)
            tail.clear()
        self._parse(data)

    def resume(self) -> None:
        """Parse what was kept while halted."""
        self.halted = False
        if self._tail:
            data = bytes(self._tail)
            self._tail.clear()
            self._parse(data)

    def drop(self) -> None:
        """Forget all input and take no more."""
        self._dropped = self.halted = True
        self._tail = bytearray()

    def _worth_a_look(self, data: bytes) -> bool:
        enough = len(self._tail) >= self._need
        if enough or self._wait == _BYTES:
            return enough
        return b"\0" in data or (self._wait != _NUL and b"\n" in data)

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
        if pos < len(buf) and not self._dropped:
            self._tail += buf[pos:]

    def _frames(self, buf: bytes) -> int:
        """Parse from the start of `buf`; returns where the first incomplete frame begins.

        Hot: each step costs once per message. Local names, no calls but bytes.find and dict.get
        on the common way.
        """
        total = len(buf)
        pos = 0
        find = buf.find
        known = self._known.get
        body_max = self.limits.body_bytes_max
        blank, gap = (b"\r\n\r\n", 4) if self._crlf else (b"\n\n", 2)
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
                            if self.halted:
                                return pos
                        self._sink.run(ACKS, _ACK_ID.findall(acks[0]), [])
                        pos = acks.end()
                        if self.halted:
                            return pos
                        continue
                    found = self._unknown(buf, pos)
                    if found is None:
                        pos = self._begin
                        break
                    head, receipt, pos, start = found
                    blank, gap = (b"\r\n\r\n", 4) if self._crlf else (b"\n\n", 2)
                    if confirmed is not (receipt is not None):
                        confirmed = self._confirmed = not confirmed
                        if bodies:
                            self._flush_amid(route, bodies, receipts)
                            bodies, receipts = [], []
                            if self.halted:
                                return pos
                if head is not last:
                    if head.stamp is not stamp:
                        head.restamp(stamp)
                    if head.route is not route:
                        if bodies:
                            self._flush_amid(route, bodies, receipts)
                            bodies, receipts = [], []
                            if self.halted:
                                return pos
                        route = head.route
                    last = head
                size = head.length
                if size >= 0:
                    stop = start + size
                    if stop >= total:
                        self._wait = _BYTES
                        self._need = stop + 1 - pos
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
                    if self.halted:
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
                if self.halted:
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
        assert self.version is not None
        good: list[bytes] = []
        limit = self.limits.header_line_bytes_max
        try:
            for receipt in receipts:
                if len(receipt) > limit:
                    raise too_large("The receipt header", len(receipt), limit)
                good.append(checked_receipt(receipt, self.version, b""))
        finally:
            fine = bodies[: len(good)]
            # The caller flushes what it still holds when this raises: leave it nothing.
            bodies.clear()
            if fine:
                self._sink.run(route, fine, good)

    def _remember(self, key: bytes, head: Head) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self.forget()
        self._known[key] = head
        if head.length >= 0:
            base = _without(key, _LENGTH)
            if base is not None:
                self._bases[base[0]] = head

    def _unknown(self, buf: bytes, pos: int) -> tuple[Head, bytes | None, int, int] | None:
        """Find and decode the head at `pos`.

        Returns (head, raw receipt id, start of the frame, start of the body), or None when the head
        is not complete; then `_begin` is where the frame starts.
        """
        eols = _EOLS.match(buf, pos)
        assert eols is not None
        start = self._begin = eols.end()
        self._wait = _LINE
        if start == len(buf):
            self._count_eols(start - pos)
            return None
        self._check_first(buf, start, start - pos)
        end = buf.find(b"\n\n", start)
        # One byte more than up to `end`: the LF of a blank CR LF line may be the first of the two.
        crlf = buf.find(b"\n\r\n", start, end + 1 if end >= 0 else len(buf))
        if crlf < 0 and end < 0:
            self._check_open_head(buf, start)
            return None
        body = end + 2
        self._crlf = crlf >= 0
        if self._crlf:
            body = crlf + 3
            end = crlf - 1 if buf[crlf - 1] == 13 else crlf
        head, receipt = self._decoded(buf, start, end, body)
        return head, receipt, start, body

    def _decoded(self, buf: bytes, start: int, end: int, body: int) -> tuple[Head, bytes | None]:
        """Return the head of a frame, from the cache if it is there, and its raw receipt.

        A SEND is led to its route when its body is there: until then nothing is made for it.
        """
        raw = buf[start:end]
        key, receipt = _without(raw, _RECEIPT) or (raw, None)
        cacheable = len(key) <= _KNOWN_BYTES_MAX and _RECEIPT not in key
        if cacheable:
            known = self._known.get(key) or self._resized(key)
            if known is not None:
                return known, receipt
        head = decode_head(raw, self.version, self.limits)
        if self.version is None and head.length > self.limits.login_frame_bytes_max:
            raise too_large("CONNECT", head.length, self.limits.login_frame_bytes_max, raw)
        if head.command == SEND and self.version is not None and self._complete(head, buf, body):
            self._sink.lead(head)
            if cacheable and head.route is not None:
                self._remember(key, head)
        return head, head.receipt

    def _complete(self, head: Head, buf: bytes, body: int) -> bool:
        """Whether a frame that may be taken is there as a whole."""
        if head.length >= 0:
            return body + head.length < len(buf)
        return buf.find(b"\0", body, body + self.limits.body_bytes_max + 1) >= 0

    def _resized(self, key: bytes) -> Head | None:
        """Return a known head with the content-length of `key`, when that is all that differs."""
        parts = _without(key, _LENGTH)
        if parts is None:
            return None
        base, digits = parts
        head = self._bases.get(base)
        digits = digits.removesuffix(b"\r")
        if head is None or _LENGTH in base or not digits.isdigit() or len(digits) > 10:
            return None
        length = int(digits)
        if length > self.limits.body_bytes_max:
            return None
        head = head.sized(length)
        if len(self._known) < _KNOWN_MAX:
            self._known[key] = head
        return head

    def _excess(self, buf: bytes, stop: int, pos: int) -> int:
        """Return where the frame ends whose content-length stopped short of the NUL; -1 if unknown.

        What is too much is cut off. 1.0 has no such mercy: the rest is read as the next frame, and
        fails as one.
        """
        if self.version is Version.V1_0:
            return stop
        nul = buf.find(b"\0", stop)
        if nul < 0:
            self._nul_wanted(len(buf) - stop, len(buf) - pos)
            return -1
        return nul + 1

    def _nul_wanted(self, size: int, frame: int) -> None:
        """Wait for the NUL behind `size` bytes of body; `frame` bytes of the frame are here."""
        self._wait = _NUL
        limits = self.limits
        limit = limits.login_frame_bytes_max if self.version is None else limits.body_bytes_max
        if size > limit:
            raise too_large("The body of this frame", size, limit)
        self._need = frame + limit - size + 1

    def _count_eols(self, count: int) -> None:
        """Bound the line ends before CONNECT: what tricks a browser starts with noise [T14]."""
        if self.version is None:
            self._eols += count
            limit = self.limits.login_eols_max * 2
            if self._eols > limit:
                raise bad_frame(f"More than {limit} bytes of line ends came before CONNECT.")

    def _check_first(self, buf: bytes, start: int, eols: int) -> None:
        """Refuse what cannot be the start of a frame, on its first bytes."""
        first = buf[start]
        if self.version is None:
            self._count_eols(eols)
            if _HTTP.match(buf, start) or buf.startswith(_TLS, start):
                text = "HTTP and TLS are not spoken on this listener."
                raise FrameError(Refusal(code=Code.BAD_FRAME, text=text), silent=True)
        if 65 <= first <= 90 or 97 <= first <= 122:
            return
        if first == 13 and start + 1 == len(buf):
            return
        if first == 22 and start + 1 == len(buf) and self.version is None:
            return
        raise bad_frame(f"A frame starts with a command in capitals, not with byte 0x{first:02x}.")

    def _check_open_head(self, buf: bytes, start: int) -> None:
        """Refuse a head that is not complete but already beyond a limit or broken [T9].

        Sets the size at which it is worth a look even if no line end comes.
        """
        limits = self.limits
        login = self.version is None
        part = buf[start:]
        self._need = 2
        if not part[:1].isalpha():
            return
        check_command(part, limits)
        if b"\0" in part:
            raise bad_frame("A NUL came before the empty line that ends the headers.", part)
        limit = limits.login_frame_bytes_max if login else limits.header_bytes_max
        if len(part) > limit:
            raise too_large("The header block of this frame", len(part), limit, part)
        lines = part.count(b"\n")
        self._need = limit + 1 if lines else limits.command_bytes_max + 2
        most = limits.login_headers_max if login else limits.headers_max
        if lines > most + 1:
            raise too_many_headers(most, part)


def _without(head: bytes, name: bytes) -> tuple[bytes, bytes] | None:
    """Return the head without its first line of that name, and its raw value; None: no such."""
    at = head.find(name)
    if at < 0:
        return None
    begin = at + len(name)
    cut = head.find(b"\n", begin)
    if cut < 0:
        cut = len(head)
    return head[:at] + head[cut:], head[begin:cut]
