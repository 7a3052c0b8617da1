"""permessage-deflate [RFC 7692] within bounds: offers, messages in, messages out. Pure.

    an offer ──sound, and zlib can do it──> agreed, without context takeover both ways
        └──anything else──> declined: the next one, or no compression

A message has a window of its own, so that nothing of it is kept: no memory for a connection that
says nothing, up to `INFLATE_BYTES` while a compressed message comes in, and up to `DEFLATE_BYTES`
while one is made, which is one at a time for the whole gateway.

What comes is inflated to no more than a message may have, and one byte, however much it claims to
be; so a bomb ends at the same size as any large message, and costs the time of that one. Small
messages go out as they are, and large ones too: they would hold up everybody else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

from protocols.websocket.closing import Closing

NAME: Final = "permessage-deflate"
#: What zlib takes for a window of 32 KiB, and for making one [zlib: inflateInit2, deflateInit2].
INFLATE_BYTES: Final = 48 << 10
DEFLATE_BYTES: Final = 280 << 10
#: Smaller messages hardly shrink, and larger ones take long.
DEFLATED_MIN: Final = 512
DEFLATED_MAX: Final = 128 << 10
#: What is inflated before others have their turn.
AT_ONCE_BYTES: Final = 1 << 20
_LEVEL: Final = 1
#: zlib makes no window of 256 bytes.
_BITS_MIN: Final = 9
_BITS_MAX: Final = 15
#: Ends of a deflate stream in one message; behind each there is a new one [RFC 7692 7.2.3.4].
_STREAMS_MAX: Final = 16
#: What is cut off each message that goes out, and is put behind each that comes [RFC 7692 7.2].
_TAIL: Final = b"\x00\x00\xff\xff"
_NO_BITS: Final = RsvBits(rsv1=False, rsv2=False, rsv3=False)
_OUR_BIT: Final = RsvBits(rsv1=True, rsv2=False, rsv3=False)

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'\s*({_WORD})\s*(?:=\s*(?:({_WORD})|"({_WORD})")\s*)?')
#: Parameter -> whether it has to have a value; None: it may.
_PARAMETERS: Final = {
    "server_no_context_takeover": False,
    "client_no_context_takeover": False,
    "server_max_window_bits": True,
    "client_max_window_bits": None,
}


class Agreed(NamedTuple):
    """What both sides have agreed on: our window is of `bits`, which were asked for or not."""

    bits: int = _BITS_MAX
    asked: bool = False

    @property
    def answer(self) -> str:
        """The value of Sec-WebSocket-Extensions."""
        bits = f"; server_max_window_bits={self.bits}" if self.asked else ""
        return f"{NAME}; server_no_context_takeover; client_no_context_takeover{bits}"


def agree(offers: Iterable[str]) -> Agreed | None:
    """Return what the first sound offer comes to; None where there is none."""
    for offer in offers:
        agreed = _judge(offer)
        if agreed is not None:
            return agreed
    return None


def _judge(offer: str) -> Agreed | None:
    name, *parts = offer.split(";")
    if name.strip() != NAME:
        return None
    said: dict[str, str | None] = {}
    for part in parts:
        found = _PARAMETER.fullmatch(part)
        if found is None or found[1] in said or found[1] not in _PARAMETERS:
            return None
        said[found[1]] = value = found[2] or found[3]
        wanted = _PARAMETERS[found[1]]
        if wanted is not None and wanted is not (value is not None):
            return None
        if value is not None and not (value.isascii() and value.isdigit() and value[0] != "0"):
            return None
    hint = said.get("client_max_window_bits")
    if hint is not None and not 8 <= int(hint[:3]) <= _BITS_MAX:
        return None
    bits = said.get("server_max_window_bits")
    if bits is None:
        return Agreed()
    if not _BITS_MIN <= int(bits[:3]) <= _BITS_MAX:
        return None
    return Agreed(bits=int(bits), asked=True)


class Deflate(Extension):
    """That of one connection, as wsproto asks it.

    Attributes:
        idle: nothing is inflated any more: what comes counts for nothing.
        made: bytes that were inflated since whoever reads has set it to 0.
        failed: why nothing more is inflated.
    """

    name = NAME

    def __init__(self, agreed: Agreed, message_bytes_max: int) -> None:
        self.idle = False
        self.made = 0
        self.failed: Closing | None = None
        self._bits = agreed.bits
        self._bytes_max = message_bytes_max
        self._control = False  # the frame that comes is one
        self._compressed = False  # the message that comes is
        self._inflater: Any = None  # zlib's, which has no name for a type
        self._taken = self._given = self._streams = 0  # of this message

    def enabled(self) -> bool:
        """See wsproto."""
        return True

    def offer(self) -> bool | str:
        """See wsproto; a server offers nothing."""
        return False

    # ---- in

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,
        opcode: Opcode,
        rsv: RsvBits,
        payload_length: int,
    ) -> CloseReason | RsvBits:
        """See wsproto; it may ask twice for one frame."""
        self._control = opcode.iscontrol()
        if self._control:
            return _NO_BITS
        if opcode is Opcode.CONTINUATION:
            return _NO_BITS
        self._compressed = rsv.rsv1
        return _OUR_BIT

    def frame_inbound_payload_data(
        self, proto: FrameDecoder | FrameProtocol, data: bytes
    ) -> bytes | CloseReason:
        """See wsproto: inflate a part of a frame, within what is left of the message."""
        if self._control or not self._compressed or self.idle or not data:
            return data
        return self._inflate(data)

    def frame_inbound_complete(
        self,
        proto: FrameDecoder | FrameProtocol,
        fin: bool,  # noqa: FBT001 - wsproto's
    ) -> bytes | CloseReason | None:
        """See wsproto: a frame has ended; with `fin` its message has, too."""
        if self._control or not fin or self.idle:
            return None
        rest: bytes | CloseReason = self._inflate(_TAIL) if self._compressed else b""
        self._inflater = None
        self._taken = self._given = self._streams = 0
        self._compressed = False
        return rest

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        self._taken += len(data)
        parts: list[bytes] = []
        try:
            while data:
                if self._inflater is None:
                    self._inflater = zlib.decompressobj(-_BITS_MAX)
                    self._streams += 1
                # One byte more than there may be tells that there is more; the rest stays where
                # it is, and goes with the inflater.
                part = self._inflater.decompress(data, self._bytes_max - self._given + 1)
                self._given += len(part)
                if self._given > self._bytes_max or self._taken > self._bytes_max + len(_TAIL):
                    return self._fail(
                        CloseReason.MESSAGE_TOO_BIG,
                        f"A message is larger than {self._bytes_max} bytes.",
                    )
                parts.append(part)
                if not self._inflater.eof:
                    break
                data, self._inflater = self._inflater.unused_data, None
                if self._streams >= _STREAMS_MAX:
                    return self._fail(CloseReason.PROTOCOL_ERROR, _DAMAGED)
        except zlib.error:
            return self._fail(CloseReason.PROTOCOL_ERROR, _DAMAGED)
        inflated = b"".join(parts)
        self.made += len(inflated)
        return inflated

    def _fail(self, code: CloseReason, text: str) -> CloseReason:
        self.failed = Closing(code.value, text)
        self._inflater = None
        return code

    # ---- out

    def frame_outbound(
        self,
        proto: FrameDecoder | FrameProtocol,
        opcode: Opcode,
        rsv: RsvBits,
        data: bytes,
        fin: bool,  # noqa: FBT001 - wsproto's
    ) -> tuple[RsvBits, bytes]:
        """See wsproto; whole messages alone are sent."""
        if opcode.iscontrol() or not DEFLATED_MIN <= len(data) <= DEFLATED_MAX:
            return rsv, data
        assert fin, "messages go out whole"
        deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, -self._bits)
        less = deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH)
        if len(less) - len(_TAIL) >= len(data):
            return rsv, data
        return RsvBits(rsv1=True, rsv2=rsv.rsv2, rsv3=rsv.rsv3), less[: -len(_TAIL)]


_DAMAGED: Final = "Compressed data came that cannot be inflated."
