"""How many messages a subscription takes that acknowledges them: by its window and its prefetch.

The window counts bytes: messages go out while the unacknowledged ones are below it, so that a
single frame above the window still goes, alone. `prefetch-count` counts messages. A queue is told a
number of messages in any case, guessed from the sizes of the last frames. Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.model.message import REPLAYED, Message, bytes_of

#: Messages asked for at once: enough to hide the cost of a call, few enough to share a turn.
ROOM_MAX: Final = 1000
#: Size of a frame that is assumed before any was seen.
_FIRST_GUESS: Final = 1024
NO_WINDOW: Final = -1


class Window:
    """That of one subscription.

    Attributes:
        counts_bytes: there is a window; `fitting` and `settled` are not called else.
        size: of a frame, as the last ones were.
    """

    __slots__ = ("_bytes_max", "_prefetch", "_unacked_bytes", "counts_bytes", "size")

    def __init__(self, bytes_max: int = NO_WINDOW, prefetch: int = 0) -> None:
        """Start with nothing unacknowledged; `prefetch` is in messages (0 no limit)."""
        self._bytes_max = bytes_max
        self._prefetch = prefetch
        self._unacked_bytes = 0
        self.counts_bytes = bytes_max >= 0
        self.size = _FIRST_GUESS

    def credit(self, held: int) -> int | None:
        """Return how many messages it takes beyond the `held` ones; None: as many as come."""
        if self._bytes_max < 0 and not self._prefetch:
            return None
        most = self._prefetch - held if self._prefetch else ROOM_MAX
        if self._bytes_max >= 0:
            left = -((self._unacked_bytes - self._bytes_max) // self.size)
            most = min(most, left if held else max(1, left))
        return max(0, most)

    def room(self, most: int, held: int) -> int:
        """Return how many of `most` messages may be asked for beside the `held` ones. Hot."""
        if self._bytes_max >= 0 and held:
            most = min(most, -((self._unacked_bytes - self._bytes_max) // self.size))
        elif self._bytes_max >= 0:
            most = min(most, max(1, -(-self._bytes_max // self.size)))
        if self._prefetch:
            most = min(most, self._prefetch - held)
        return most

    def fitting(self, messages: list[Message], held: int, overhead: int) -> int:
        """Return how many may go; they are counted as unacknowledged from here on.

        `overhead`: bytes of a frame beside the message.
        """
        assert self.counts_bytes
        taken = self._unacked_bytes
        for index, message in enumerate(messages):
            if taken >= self._bytes_max and (held or index):
                self._unacked_bytes = taken
                return index
            taken += overhead + len(message.body)
        self._unacked_bytes = taken
        return len(messages)

    def settled(self, messages: list[Message], overhead: int) -> None:
        """These are acknowledged, or given back by the peer; most often it is one. Hot."""
        assert self.counts_bytes
        size = overhead * len(messages)
        if messages and messages[0].flags & REPLAYED:
            size += bytes_of(messages)  # their bodies are gone
        else:
            for message in messages:
                size += len(message.body)
        self._unacked_bytes -= size
