"""What the whole gateway holds and has taken in, and what it may hold. Hot: plain figures.

Routes add to it as they send, and what leaves a queue takes from it; nobody else changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.broker.directory.address import Address
from gateway.broker.pressure.admission import Usage, full_because
from gateway.broker.pressure.figures import Figures
from gateway.model.errors import Code, Refusal

#: What a message costs beside its body: the object, its place in a deque, the bytes object's own
#: head.
OVERHEAD_BYTES: Final = 160
#: More bytes than any machine has.
_ALL: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the whole gateway may hold. -1: no limit."""

    global_max_size: int = 512 << 20
    global_max_messages: int = -1


class Load:
    """See the module text.

    Attributes:
        memory: bytes that messages take, each with `OVERHEAD_BYTES` for each queue.
        messages: each once, however many queues hold it.
        memory_max, messages_max: what senders are held back at; -1 messages: no limit.
        received: messages that came in since the start.
    """

    __slots__ = ("_figures", "memory", "memory_max", "messages", "messages_max", "received")

    def __init__(self, limits: Limits, figures: Figures) -> None:
        self.memory = self.messages = self.received = 0
        self._figures = figures
        self.memory_max, self.messages_max = _most(limits)

    def limit(self, limits: Limits) -> bool:
        """Have other limits from now on; returns whether they are others than before."""
        before = self.memory_max, self.messages_max
        self.memory_max, self.messages_max = wanted = _most(limits)
        return before != wanted

    def charge(self, address: Address, count: int, charge: int) -> None:
        """Count messages that an address takes, or (below 0) lets go; `charge` is in bytes."""
        self.memory += charge
        self.messages += count
        address.size_bytes += charge
        address.messages += count

    def refuse(self, refusal: Refusal, count: int) -> None:
        """Count refused messages by reason."""
        self._figures.refused[refusal.code] += count

    def usage(self, address: Address) -> Usage:
        """Return what the address and the gateway hold now, and the gateway's limits."""
        return Usage(
            size_bytes=address.size_bytes,
            messages=address.messages,
            global_bytes=self.memory,
            global_bytes_max=self.memory_max,
            global_messages=self.messages,
            global_messages_max=self.messages_max,
        )

    def full_because(self, address: Address) -> Refusal | None:
        """Return which limit holds the address' senders back, or None."""
        if address.operator_block:
            return Refusal(
                code=Code.ADDRESS_FULL,
                transient=True,
                text=f"Address {address.name!r} was blocked by an operator; unblock it "
                "through the API.",
            )
        return full_because(address.name, self.usage(address), address.settings)


def _most(limits: Limits) -> tuple[int, int]:
    most = limits.global_max_size if limits.global_max_size >= 0 else _ALL
    return most, limits.global_max_messages
