"""The mask that a client puts on what it sends [RFC 6455 5.3]. Pure.

`unmask(payload, key)` takes it away. wsproto does so in Python, at 4 to 6 us for a message of 300
bytes; the package websockets does it in C, in a tenth of one, and in Python where it has no wheel.
"""

from __future__ import annotations

try:
    from websockets.speedups import apply_mask as unmask
except ImportError:  # a machine that websockets has no wheel for, and no compiler either
    from websockets.utils import apply_mask as unmask

__all__ = ["turned", "unmask"]


def turned(key: bytes, by: int) -> bytes:
    """Return the key for what follows `by` bytes of a payload."""
    rest = by % 4
    return key[rest:] + key[:rest]
