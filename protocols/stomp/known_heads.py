r"""The heads that one connection repeats, by their raw bytes.

A key is a header block as it came, up to its empty line, without its first `receipt:` line, which
differs from frame to frame. What is found by its key is equal to a head that was decoded in full,
byte for byte. A block with a blank line inside is never a key, so that a hit also proves where the
head ends. Of a key that differs from a known one in its `content-length:` alone, the head is made
from the known one. Pure.
"""

from __future__ import annotations

from typing import Final

from protocols.stomp.frame import Head

#: Heads remembered for one connection; with the size below at most 512 KiB of keys.
_HEADS_MAX: Final = 512
_KEY_BYTES_MAX: Final = 1024
_RECEIPT: Final = b"\nreceipt:"
_LENGTH: Final = b"\ncontent-length:"
_LENGTH_DIGITS_MAX: Final = 10


class KnownHeads:
    """See the module text.

    Attributes:
        by_key: looked up for every frame; the dict stays the same object.
    """

    __slots__ = ("_bases", "_body_max", "by_key")

    def __init__(self, body_bytes_max: int) -> None:
        """Start without any; a head whose body would be larger than the limit is not made."""
        self._body_max = body_bytes_max
        self.by_key: dict[bytes, Head] = {}
        self._bases: dict[bytes, Head] = {}  # by key without content-length

    def find(self, key: bytes) -> Head | None:
        """Return the head of `key`, if it or one that differs in its length alone is known."""
        return self.by_key.get(key) or self._resized(key)

    def remember(self, key: bytes, head: Head) -> None:
        """Keep a SEND's head, which has its route."""
        assert head.route is not None, "a head without a route would be looked at again each time"
        assert len(key) <= _KEY_BYTES_MAX
        if len(self.by_key) >= _HEADS_MAX:
            self.forget()
        self.by_key[key] = head
        if head.length >= 0:
            base = without_line(key, _LENGTH)
            if base is not None:
                self._bases[base[0]] = head

    def forget(self) -> None:
        """Look at every head anew: what routes stood for has changed."""
        self.by_key.clear()
        self._bases.clear()

    def _resized(self, key: bytes) -> Head | None:
        """Return a known head with the content-length of `key`, when that is all that differs."""
        parts = without_line(key, _LENGTH)
        if parts is None:
            return None
        base, digits = parts
        head = self._bases.get(base)
        digits = digits.removesuffix(b"\r")
        if head is None or _LENGTH in base:
            return None
        if not digits.isdigit() or len(digits) > _LENGTH_DIGITS_MAX:
            return None
        length = int(digits)
        if length > self._body_max:
            return None
        head = head.sized(length)
        if len(self.by_key) < _HEADS_MAX:
            self.by_key[key] = head
        return head


def key_of(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the key of a head, None for one that is not to be kept, and its raw receipt."""
    key, receipt = without_line(raw, _RECEIPT) or (raw, None)
    keeps = len(key) <= _KEY_BYTES_MAX and _RECEIPT not in key
    return (key if keeps else None), receipt


def without_line(head: bytes, name: bytes) -> tuple[bytes, bytes] | None:
    """Return the head without its first line of that name, and its raw value; None: no such."""
    at = head.find(name)
    if at < 0:
        return None
    begin = at + len(name)
    cut = head.find(b"\n", begin)
    if cut < 0:
        cut = len(head)
    return head[:at] + head[cut:], head[begin:cut]
