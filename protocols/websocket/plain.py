"""Frames that can be read without a second thought, and where the others begin and end. Pure.

    plain      a whole message in one frame, text or binary, masked, no reserved bit, its length
               written as short as can be; all that clients send as long as nothing is the matter
    others     control frames, parts of messages, and whatever breaks a rule: wsproto's to judge

What is plain costs a tenth of what it costs through wsproto. Nothing is judged here: what is not
plain, for whatever reason, is left to wsproto, which is given whole frames and the parts of one.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from protocols.websocket.masking import unmask

TEXT: Final = 0x81
BINARY: Final = 0x82
_MASKED: Final = 0x80
#: What the length is where it is written in two bytes, or in eight, behind it.
_TWO, _EIGHT = 126, 127
_uint16 = Struct(">H").unpack_from
_uint64 = Struct(">Q").unpack_from
_SHORT: Final = Struct(">BBH")
_LONG: Final = Struct(">BBQ")
KEY_BYTES: Final = 4
#: Frames that are read before the time is looked at again.
AT_ONCE: Final = 256


class Extent(NamedTuple):
    """Where a frame lies: its head, of `head` bytes, and its payload, of `payload` bytes behind it.

    Attributes:
        is_sound: it is masked, and its length is written as short as can be.
    """

    head: int
    payload: int
    is_sound: bool


def extent(data: bytes, at: int) -> Extent | None:
    """Return the extent of the frame that begins at `at`; None where more of its head must come."""
    if len(data) - at < 2:
        return None
    second = data[at + 1]
    said = second & 0x7F
    head = 2 + (KEY_BYTES if second & _MASKED else 0) + (0, 2, 8)[max(said - 125, 0)]
    if len(data) - at < head:
        return None
    length = said
    if said >= _TWO:
        length = (_uint16 if said == _TWO else _uint64)(data, at + 2)[0]
    shortest = length < _TWO if said < _TWO else length >= (_TWO if said == _TWO else 1 << 16)
    return Extent(head, length, bool(second & _MASKED) and shortest)


def read_plain(
    data: bytes, at: int, most: int, found: list[bytes], *, text: bool
) -> tuple[int, bool]:
    """Put the payloads of the plain frames at `at` into `found`: whole ones of up to `most` bytes.

    `text` is whether text is plain. HOT. Returns where the first frame begins that is not plain, or
    not whole, or one too many for now, and whether text was among those before it. Raises
    UnicodeDecodeError: a text is not UTF-8; the payloads before it are in `found`.
    """
    end = len(data)
    any_text = False
    for _ in range(AT_ONCE):
        if end - at < 6:
            break
        first = data[at]
        length = data[at + 1] - _MASKED
        if first != BINARY and not (first == TEXT and text):
            break
        if 0 <= length < _TWO:
            start = at + 6
        elif length == _TWO and end - at >= 8:
            length = _uint16(data, at + 2)[0]
            start = at + 8
            if length < _TWO:
                break
        elif length == _EIGHT and end - at >= 14:
            length = _uint64(data, at + 2)[0]
            start = at + 14
            if length < 1 << 16:
                break
        else:
            break
        stop = start + length
        if stop > end or length > most:
            break
        payload = unmask(data[start:stop], data[start - KEY_BYTES : start])
        if first == TEXT:
            any_text = True
            if not payload.isascii():
                payload.decode()
        found.append(payload)
        at = stop
    return at, any_text


@lru_cache(maxsize=4096)
def head_of(size: int, text: bool) -> bytes:  # noqa: FBT001 - hot
    """Return what stands before `size` bytes of payload that go out as one message. HOT."""
    first = TEXT if text else BINARY
    if size < _TWO:
        return bytes((first, size))
    if size < 1 << 16:
        return _SHORT.pack(first, _TWO, size)
    return _LONG.pack(first, _EIGHT, size)


def is_utf8(data: bytes) -> bool:
    """Whether `data` may go out as text."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
