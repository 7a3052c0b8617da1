"""The head of the next frame in a read: found, judged while it is open, decoded or known already.

    frames   = *(EOL) head EOL EOL body NUL
    head     = command *(EOL header)            EOL = LF | CR LF

A head that is not complete is judged by what is there: what cannot become a head, or is beyond a
limit already, is refused before more of it comes. It knows no body and no session; a SEND that is
there as a whole is handed to `lead`, which may give its head a route.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.model.errors import Code, Refusal
from protocols.stomp.frame import SEND, Head
from protocols.stomp.heads import (
    FrameError,
    bad_frame,
    check_command,
    decode_head,
    too_large,
    too_many_headers,
)
from protocols.stomp.known_heads import KnownHeads, key_of
from protocols.stomp.limits import StompLimits
from protocols.stomp.unfinished import Unfinished, Wanted
from protocols.stomp.versions import Version

#: Possessive: a million line ends, which are heart-beats, are to cost neither time nor a way back.
_EOLS: Final = re.compile(rb"(?:\n++|\r\n)*+")
_HTTP: Final = re.compile(
    rb"(?:GET|POST|HEAD|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) |Host:", re.IGNORECASE
)
_TLS: Final = b"\x16\x03"


class HeadFinder:
    """That of one connection.

    Attributes:
        crlf: the last head ended its lines with CR LF; so does the next one, most often.
        version: None until one is agreed.
    """

    __slots__ = ("_eols", "_known", "_lead", "_limits", "_unfinished", "crlf", "version")

    def __init__(
        self,
        limits: StompLimits,
        known: KnownHeads,
        unfinished: Unfinished,
        lead: Callable[[Head], None],
    ) -> None:
        """Start before the login; `unfinished` is told what a head that is not complete needs."""
        self._limits = limits
        self._known = known
        self._unfinished = unfinished
        self._lead = lead
        self._eols = 0  # bytes of line ends that came before CONNECT
        self.crlf = False
        self.version: Version | None = None

    def find(self, buf: bytes, pos: int) -> tuple[Head, bytes | None, int, int] | int:
        """Find and decode the head at `pos`.

        Returns (head, raw receipt id, start of the frame, start of the body), or only the start of
        the frame when its head is not complete. Raises FrameError.
        """
        eols = _EOLS.match(buf, pos)
        assert eols is not None, "no line end at all is a match, too"
        start = eols.end()
        if start == len(buf):
            self._count_eols(start - pos)
            return start
        self._check_first(buf, start, start - pos)
        end = buf.find(b"\n\n", start)
        # One byte more than up to `end`: the LF of a blank CR LF line may be the first of the two.
        crlf = buf.find(b"\n\r\n", start, end + 1 if end >= 0 else len(buf))
        if crlf < 0 and end < 0:
            self._unfinished.want(Wanted.LINE, self._check_open(buf[start:]))
            return start
        body = end + 2
        self.crlf = crlf >= 0
        if self.crlf:
            body = crlf + 3
            end = crlf - 1 if buf[crlf - 1] == 13 else crlf
        head, receipt = self._decoded(buf, start, end, body)
        return head, receipt, start, body

    def _decoded(self, buf: bytes, start: int, end: int, body: int) -> tuple[Head, bytes | None]:
        """Return the head of a frame, from the cache if it is there, and its raw receipt.

        A SEND is led to its route when its body is there: until then nothing is made for it.
        """
        raw = buf[start:end]
        key, receipt = key_of(raw)
        if key is not None:
            known = self._known.find(key)
            if known is not None:
                return known, receipt
        head = decode_head(raw, self.version, self._limits)
        if self.version is None and head.length > self._limits.login_frame_bytes_max:
            raise too_large("CONNECT", head.length, self._limits.login_frame_bytes_max, raw)
        if head.command == SEND and self.version is not None and self._complete(head, buf, body):
            self._lead(head)
            if key is not None and head.route is not None:
                self._known.remember(key, head)
        return head, head.receipt

    def _complete(self, head: Head, buf: bytes, body: int) -> bool:
        """Whether a frame that may be taken is there as a whole."""
        if head.length >= 0:
            return body + head.length < len(buf)
        return buf.find(b"\0", body, body + self._limits.body_bytes_max + 1) >= 0

    # ---- a head that is not complete

    def _count_eols(self, count: int) -> None:
        """Bound the line ends before CONNECT: what tricks a browser starts with noise [T14]."""
        if self.version is None:
            self._eols += count
            limit = self._limits.login_eols_max * 2
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

    def _check_open(self, part: bytes) -> int:
        """Refuse a head that is not complete but already beyond a limit or broken [T9].

        Returns the size at which it is worth a look even if no line end comes.
        """
        limits = self._limits
        login = self.version is None
        if not part[:1].isalpha():
            return 2
        check_command(part, limits)
        if b"\0" in part:
            raise bad_frame("A NUL came before the empty line that ends the headers.", part)
        limit = limits.login_frame_bytes_max if login else limits.header_bytes_max
        if len(part) > limit:
            raise too_large("The header block of this frame", len(part), limit, part)
        lines = part.count(b"\n")
        most = limits.login_headers_max if login else limits.headers_max
        if lines > most + 1:
            raise too_many_headers(most, part)
        return limit + 1 if lines else limits.command_bytes_max + 2
