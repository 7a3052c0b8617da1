"""One message as one queue holds it: a body, a place and a word of flags.

A multicast message is one `Message` per queue; the copies share their `body` bytes.

`body` is the form that the sender's protocol gave it, untouched:

* AMQP: the encoded sections (header ... footer) as they came, without delivery-annotations;
* STOMP (flag `STOMP`): header lines in STOMP 1.2 escaping, each ended by LF, an empty line, the
body
  bytes. See `gateway.model.stomp_form`.

`flags` is one int, so that a run of messages can share it:

    bits 0-3   priority 0..9                      [AMQP 3.2.1, STOMP header `priority`]
    bit  4     DURABLE     stored in the journal
    bit  5     STOMP       form of `body`
    bit  6     TEXT        a STOMP SEND without content-length: a text, not bytes
    bit  7     MAYBE_SEEN  recovered after an unclean stop: a consumer may have seen it
    bit  8     EXPIRES     `expires` is set
    bit  9     SCHEDULED   `due` is set; it stays so when the message has come due
    bit 10     SHARED      `share` is set: other queues of the address hold copies; never stored
    bit  11    PAGED       read back from a page, which still has it; never stored
    bit  12    IDENTIFIED  a duplicate id comes with it; of a send on its way, never stored
    bit  13    GROUPED     it has a group-id: its group goes to one consumer
    bit  14    ACQUIRED    a consumer had it and gave it back, which was no failed delivery
    bit 15     REPLAYED    read from a stream: `seq` is its offset there; never stored
    bits 16+   delivery count: failed deliveries so far
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

PRIORITY_MASK: Final = 0x0F
DURABLE: Final = 0x10
STOMP: Final = 0x20
TEXT: Final = 0x40
MAYBE_SEEN: Final = 0x80
EXPIRES: Final = 0x100
SCHEDULED: Final = 0x200
SHARED: Final = 0x400
PAGED: Final = 0x800
IDENTIFIED: Final = 0x1000
GROUPED: Final = 0x2000
ACQUIRED: Final = 0x4000
REPLAYED: Final = 0x8000
COUNT_SHIFT: Final = 16
ONE_DELIVERY: Final = 1 << COUNT_SHIFT
#: Any of these makes an outgoing run take the careful path instead of the template.
SPECIAL: Final = MAYBE_SEEN | EXPIRES | ACQUIRED | REPLAYED | (0xFFFF << COUNT_SHIFT)
DEFAULT_PRIORITY: Final = 4


#: How many copies of one message the queues of its address still hold, as the only item. A list and
#: no class, since making one costs a fifth of that, for each message that is sent.
Share: TypeAlias = list[int]


class Message:
    """A message in a queue.

    Attributes:
        body: the bytes described above.
        seq: place in its queue; unique in the queue, ascending in arrival order.
        flags: see the module text.
        expires: broker time in ms at which it expires; only there with flag EXPIRES.
        due: broker time in ms before which it is not delivered; only there with flag SCHEDULED.
        share: the count that all copies have in common; only there with flag SHARED.
        origin: the connection that sent it; only there where a consumer wants to tell (no-local).
    """

    __slots__ = ("body", "due", "expires", "flags", "origin", "seq", "share")

    def __init__(self, body: bytes, seq: int, flags: int) -> None:
        self.body = body
        self.seq = seq
        self.flags = flags

    expires: int
    due: int
    share: Share
    origin: str

    @property
    def priority(self) -> int:
        return self.flags & PRIORITY_MASK

    @property
    def delivery_count(self) -> int:
        """Failed deliveries so far; 0 for a message never handed out, or handed back unharmed."""
        return self.flags >> COUNT_SHIFT

    def __repr__(self) -> str:
        return f"Message(seq={self.seq}, flags={self.flags:#x}, {len(self.body)} B)"


class SharedMessage(Message):
    """A message that other queues hold as well; made with its share, which is cheaper."""

    __slots__ = ()

    def __init__(self, body: bytes, seq: int, flags: int, share: Share) -> None:
        self.body = body
        self.seq = seq
        self.flags = flags
        self.share = share


class ReplayedMessage(Message):
    """A message as a replay of a stream shows it, with flag REPLAYED; `seq` is its offset.

    It belongs to its consumer alone, and is never shown again. So its body goes once it is written:
    what waits for its outcome needs no memory for bodies, and there may be a lot of it.

    Attributes:
        size: bytes of the body, also when that is gone.
    """

    __slots__ = ("size",)

    def __init__(self, body: bytes, seq: int, flags: int) -> None:
        self.body = body
        self.seq = seq
        self.flags = flags
        self.size = len(body)


def let_go(messages: Sequence[Message]) -> None:
    """Drop the bodies of replayed messages, which were written."""
    for message in messages:
        if message.flags & REPLAYED:
            message.body = b""


def bytes_of(messages: Sequence[Message]) -> int:
    """Return the bytes of messages of one consumer as they were shown to it."""
    if messages and isinstance(messages[0], ReplayedMessage):
        return sum([m.size for m in messages if isinstance(m, ReplayedMessage)])
    return sum([len(message.body) for message in messages])
