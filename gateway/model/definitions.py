"""What exists besides messages and outlives a restart: addresses, queues and streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from gateway.model.address import RoutingType
from gateway.model.attributes import PLAIN, QueueAttributes

#: Queues are numbered from here on, streams below: the journal knows both by number alone.
FIRST_QUEUE_ID: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """A queue. `ring_size` and `max_consumers`: -1 is no limit. `queue_id` is never used twice.

    `filter` is a selector, `no_local` the origin whose messages it does not take; "" is none.
    `made_by`: the user who had it made on demand, "" who proved no login; None nobody.
    """

    queue_id: int
    name: str
    address: str
    routing: RoutingType
    durable: bool = True
    auto_created: bool = False
    ring_size: int = -1
    max_consumers: int = -1
    paused: bool = False
    attributes: QueueAttributes = PLAIN
    filter: str = ""
    no_local: str = ""
    made_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressDefinition:
    """An address and the ways it routes; `made_by` as of a queue."""

    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool = False
    made_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    """A tap on an address. `stream_id` shares the numbers of queue ids; `epoch` counts lives."""

    stream_id: int
    name: str
    address: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMark:
    """How far one queue is done with one page.

    `first` is the seq of its first message there, `floor` the lowest that is not done; `marks` has
    one byte per place from `first` on where something was done out of order.
    """

    queue_id: int
    page: int
    first: int
    floor: int
    marks: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesDefinition:
    """A stay of an address in page mode. `store_id` is of the queue ids' numbers.

    Attributes:
        pages: page -> how many blocks of it exist.
        marks: what its queues are done with.
        counts: (queue id, seq, flags) of messages on pages that were delivered in vain.
        dues: (queue id, seq, due in ms) of those that wait for another time.
        suspect: blocks with an older ticket may have been seen by a consumer.
        next_page: no page of this number, or a higher one, was ever there.
    """

    store_id: int
    address: str
    pages: Mapping[int, int] = field(default_factory=dict)
    marks: tuple[PageMark, ...] = ()
    counts: tuple[tuple[int, int, int], ...] = ()
    suspect: int = 0
    next_page: int = 1
    dues: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageGone:
    """A page that all queues are done with."""

    store_id: int
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsDefinition:
    """The duplicate ids that an address remembers: the store keeps them as a queue's messages.

    `ids_id` is of the queue ids' numbers.
    """

    ids_id: int
    address: str


class DivertRouting(Enum):
    """How the copies of a divert are routed."""

    STRIP = "STRIP"  # as if the sender had named no type
    PASS = "PASS"  # noqa: S105 - as the sender named it
    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class DivertDefinition:
    """Copies of what is sent to an address, or a match of addresses, go to others as well.

    Attributes:
        name: no other divert's; copies carry it as the queue that they come from.
        address: the address, or a match of addresses.
        forwarding: the addresses that they go to.
        exclusive: what it takes goes nowhere else.
        filter: a selector; "" takes everything.
        routing: of the copies: as the sender named it (PASS), as if the sender had named none
            (STRIP), or this one.
    """

    name: str
    address: str
    forwarding: tuple[str, ...]
    exclusive: bool = False
    filter: str = ""
    routing: DivertRouting = DivertRouting.STRIP


#: (partition, attempt, rows) of a stage that a batch is published from.
StageRow: TypeAlias = tuple[int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDefinition:
    """What a producer of the sink has committed, and what it is committing.

    Attributes:
        producer: its name.
        committed: its highest committed batch; -1: none.
        seen_ms: broker time at which it was heard of last.
        passing: it comes once.
        batch: the one that is being published; -1: none.
        stages: what that is published from, in this order.
    """

    producer: str
    committed: int
    seen_ms: int
    passing: bool = False
    batch: int = -1
    stages: tuple[StageRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressDefinition:
    """How far a batch is published: all stages before `stage`, and so many rows of that one."""

    producer: str
    batch: int
    stage: int
    row: int


Definition = (
    QueueDefinition
    | AddressDefinition
    | StreamDefinition
    | PagesDefinition
    | PageGone
    | IdsDefinition
    | DivertDefinition
    | CommitDefinition
    | ProgressDefinition
)
