"""Frames: what a parsed head holds, and the bytes of the frames that we send.

Every frame but MESSAGE is written here; MESSAGE has its templates in `message_frames`. Names and
values pass the escape table of the version; a header that the version cannot write is left out, so
that no value can start a header line of its own [T11]. Knows no connection state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.model.errors import Refusal
from gateway.model.retry import retry_after
from protocols.stomp.versions import Version, escape_name, escape_value, plain

SEND: Final = "SEND"
CLIENT_COMMANDS: Final = frozenset(
    {
        "CONNECT",
        "STOMP",
        SEND,
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "ACK",
        "NACK",
        "BEGIN",
        "COMMIT",
        "ABORT",
        "DISCONNECT",
    }
)
#: Different body sizes of one head that a connection remembers; each costs one stored header block.
_SIZES_MAX: Final = 256
#: Of every frame that we send, in every version: the LF is one of the EOLs that may follow a frame
#: [STOMP 1.2 Augmented BNF]. PHP's client reads nothing, or garbled frames, behind a bare NUL.
END: Final = b"\0\n"
#: The end of a stored header block that tells no time.
UNDATED: Final = b"\n"
_NEXT_RECEIPT: Final = b"\n\n" + END + b"RECEIPT\nreceipt-id:"


class Head:
    """Command and headers of a frame; a SEND head that repeats also knows its route.

    Attributes:
        command: one of CLIENT_COMMANDS.
        headers: decoded, in sent order; of repeated ones the one that counts.
        length: content-length, -1 when absent.
        receipt: the receipt header as bytes ready to be written back, or None.
        route: who takes the bodies of frames with this head; None: each frame is looked at.
        stored: what goes before a body of `length` bytes in the stored form, with `stamp`.
        stamp: the end of the stored header block: the time that it was restamped with.
    """

    __slots__ = (
        "_before",
        "_behind",
        "_block",
        "_dated",
        "_end",
        "_sizes",
        "command",
        "headers",
        "length",
        "receipt",
        "route",
        "stamp",
        "stored",
    )

    def __init__(self, command: str, headers: dict[str, str], length: int) -> None:
        self.command = command
        self.headers = headers
        self.length = length
        self.receipt: bytes | None = None
        self.route: object | None = None
        self.stored = self.stamp = b""

    def lead_to(self, route: object, before: bytes, behind: bytes, *, dated: bool = False) -> None:
        """Let frames with this head go to `route`, their bodies behind this stored header block.

        Each is to be restamped first, which does nothing where the sender has said when (`dated`).
        """
        self._before = before
        self._behind = behind
        self._dated = dated
        self._sizes: dict[int, bytes] = {}
        self._block = b"%b%d%b" % (before, self.length, behind[:-1])
        self.route = route
        self.restamp(UNDATED)

    def restamp(self, stamp: bytes) -> None:
        """Have what is stored from now on end its header block with `stamp`."""
        self.stamp = stamp
        if self.route is None:
            return
        undated = self._dated or stamp is UNDATED
        if self.length >= 0:
            self.stored = self._block + (self._behind[-1:] if undated else stamp)
            return
        self._end = self._behind if undated else self._behind[:-1] + stamp
        self._sizes.clear()

    def sized(self, length: int) -> Head:
        """Return this head for another content-length."""
        head = Head(self.command, self.headers, length)
        head.lead_to(self.route, self._before, self._behind, dated=self._dated)
        return head

    def stored_for(self, length: int) -> bytes:
        """Return the stored header block for a body that has no content-length of its own."""
        stored = self._sizes.get(length)
        if stored is None:
            if len(self._sizes) >= _SIZES_MAX:
                self._sizes.clear()
            stored = self._sizes[length] = b"%b%d%b" % (self._before, length, self._end)
        return stored


def encode(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    *,
    version: Version = Version.V1_0,
) -> bytes:
    """Return the bytes of a frame. Headers that `version` cannot write are left out."""
    lines = [command]
    for name, value in headers:
        safe_name = escape_name(name, version)
        safe_value = escape_value(value, version)
        if safe_name is not None and safe_value is not None:
            lines.append(f"{safe_name}:{safe_value}")
    return "\n".join(lines).encode("utf-8", "replace") + b"\n\n" + body + END


def receipts(ids: Sequence[bytes]) -> bytes:
    """Return one RECEIPT frame for each id, as the peer wrote it [STOMP 1.2 RECEIPT]."""
    return b"RECEIPT\nreceipt-id:" + _NEXT_RECEIPT.join(ids) + b"\n\n" + END


def error(
    refusal: Refusal,
    receipt: bytes | None = None,
    *,
    version: Version = Version.V1_0,
    extra: Iterable[tuple[str, str]] = (),
) -> bytes:
    """Return an ERROR frame: code and text as headers, the text again as body [STOMP 1.2 ERROR].

    `retry-after` says for how many seconds to wait, where waiting helps [gateway.model.retry].
    """
    body = refusal.text.encode("utf-8", "replace") + b"\n"
    seconds = retry_after(refusal)
    empty = encode(
        "ERROR",
        [
            ("message", plain(refusal.text)),
            ("error-code", refusal.code.value),
            *([] if seconds is None else [("retry-after", str(seconds))]),
            ("content-type", "text/plain"),
            ("content-length", str(len(body))),
            *extra,
        ],
        version=version,
    )
    # The peer's own bytes go back as they came; they were checked when the frame was read.
    echo = b"" if receipt is None else b"receipt-id:" + receipt + b"\n"
    return empty[: -1 - len(END)] + echo + b"\n" + body + END
