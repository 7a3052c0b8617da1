"""An address: the queues bound to it, its limits and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.addresses.settings import AddressSettings, FullPolicy
from gateway.broker.directory.divert import Divert
from gateway.broker.ports.streams import Tap
from gateway.model.address import RoutingType
from gateway.model.bounds import NO_LIMIT
from gateway.model.errors import Code, Refusal
from gateway.paging.paging import Paging
from gateway.queues.queue import Queue


class Blockable(Protocol):
    """A producer as its address sees it; `promised`: bytes that it was told it may send.

    `is_leg`: of a sender to another address, whose messages come here as well.
    """

    promised: int
    is_leg: bool

    def block(self, refusal: Refusal) -> None: ...

    def unblock(self) -> None: ...


class Address:
    """Plain state; the broker's modules change it.

    `version` grows whenever bindings, taps or settings change, so that producers know when to look
    again. `gone`: it was deleted; who still sends to it finds, or makes, the next one of its name.
    """

    __slots__ = (
        "anycast",
        "auto_created",
        "blocked",
        "branched",
        "branched_at",
        "cursor",
        "diverts",
        "dropped",
        "duplicates",
        "fillings",
        "gone",
        "guarded",
        "made_by",
        "messages",
        "multicast",
        "name",
        "operator_block",
        "owner",
        "paging",
        "producers",
        "purging",
        "replacing",
        "retro",
        "routed",
        "routing_types",
        "settings",
        "size_bytes",
        "taps",
        "temporary",
        "unasked_bytes",
        "unrouted",
        "version",
        "wild",
    )

    def __init__(self, name: str, settings: AddressSettings) -> None:
        self.name = name
        self.settings = settings
        self.routing_types: frozenset[RoutingType] = frozenset()
        self.anycast: list[Queue] = []
        self.multicast: list[Queue] = []
        self.taps: Sequence[Tap] = ()
        self.producers: dict[int, Blockable] = {}
        self.auto_created = False
        self.temporary = False
        self.owner: object | None = None  # the connection that alone reads what is sent here
        self.made_by: str | None = None  # the user who had it made, while it counts for one
        self.gone = False
        self.version = 0
        self.cursor = 0
        self.size_bytes = 0
        self.messages = 0
        self.routed = self.unrouted = self.dropped = self.duplicates = 0
        self.blocked: Refusal | None = None
        self.operator_block = False
        self.fillings = (
            0  # times a limit of its own was reached, or it began to page: for who looks
        )
        self.guarded = False
        self.unasked_bytes = 0  # below this size no limit in bytes need be asked
        self.branched_at = -1  # the change of diverts and wildcards that it has heard of
        self.branched = False  # what is sent here goes elsewhere as well
        self.diverts: tuple[Divert, ...] = ()
        self.wild: tuple[Address, ...] = ()  # those with a pattern that fits this name
        self.retro: Address | None = None  # where the last messages are kept for new queues
        self.purging = False  # some queue is disabled, or takes nothing without consumers
        self.replacing = False  # in some queue later values replace earlier ones
        self.paging: Paging | None = None
        self.apply_settings(settings)

    @property
    def holds(self) -> bool:
        """Whether senders without credit keep what there is no room for, when there is none."""
        blocks = self.settings.address_full_policy is FullPolicy.BLOCK and self.paging is None
        return blocks or self.operator_block

    @property
    def uses_pages(self) -> bool:
        """Whether it sends on to pages when it is full; once it pages it does, whatever it says."""
        return self.settings.address_full_policy is FullPolicy.PAGE or self.paging is not None

    def hold(self, refusal: Refusal) -> None:
        """Begin to hold senders back."""
        self.blocked = refusal
        own = refusal.code is Code.ADDRESS_FULL and not self.operator_block
        self.fillings += own and self.paging is None

    def apply_settings(self, settings: AddressSettings) -> None:
        """Use other settings from the next message on."""
        self.settings = settings
        self._guard()
        self.version += 1

    def set_paging(self, paging: Paging | None) -> None:
        """Enter or leave page mode."""
        self.fillings += paging is not None
        self.paging = paging
        self._guard()

    def _guard(self) -> None:
        settings = self.settings
        limits = (settings.max_size_bytes, settings.max_size_messages, settings.rejects_above)
        limited = any(limit != NO_LIMIT for limit in limits) or self.paging is not None
        self.guarded = limited or self.branched
        sizes = (settings.max_size_bytes, settings.rejects_above)
        self.unasked_bytes = min([s for s in sizes if s != NO_LIMIT], default=1 << 62)

    def branch(self, diverts: tuple[Divert, ...], wild: tuple[Address, ...]) -> None:
        """Let messages go elsewhere as well from now on."""
        self.diverts = diverts
        self.wild = wild
        self._look_at_branches()

    def keep_last(self, retro: Address | None) -> None:
        """Keep the last messages for new queues from now on, or (None) no more."""
        self.retro = retro
        self._look_at_branches()

    def _look_at_branches(self) -> None:
        self.branched = bool(self.diverts or self.wild or self.retro is not None)
        self._guard()
        self.version += 1

    def bind(self, queue: Queue) -> None:
        (self.anycast if queue.routing is RoutingType.ANYCAST else self.multicast).append(queue)
        queue.account = self
        self.routing_types |= {queue.routing}
        self.purging |= _purges(queue)
        self.replacing |= queue.replaces
        self.version += 1

    def unbind(self, queue: Queue) -> None:
        (self.anycast if queue.routing is RoutingType.ANYCAST else self.multicast).remove(queue)
        if _purges(queue) or queue.replaces:
            self.look_at_queues()
        # One of ten thousand that leaves one after the other must not cost a look at all others.
        self.version += 1

    def look_at_queues(self) -> None:
        """Notice what queues do now that producers have to know."""
        self.purging = any(_purges(q) for q in self.queues)
        self.replacing = any(q.replaces for q in self.queues)
        self.version += 1

    def taking(self, queues: list[Queue]) -> list[Queue]:
        """Return those of these queues that messages are routed to now."""
        if not self.purging:
            return queues
        return [
            q
            for q in queues
            if q.attributes.enabled and (q.consumer_count or not q.attributes.purge_on_no_consumers)
        ]

    def in_turn(self, able: list[Queue]) -> list[Queue]:
        """Return these of its anycast queues, in the order in which they are chosen next."""
        cursor, queues = self.cursor, self.anycast
        if not 0 < cursor < len(queues):
            return able
        order = queues[cursor:] + queues[:cursor]
        return order if len(able) == len(order) else [q for q in order if q in able]

    def chose(self, queue: Queue) -> None:
        """One of its anycast queues was chosen, if only because no other could be."""
        self.cursor = self.anycast.index(queue) + 1

    @property
    def sender_count(self) -> int:
        """How many send to this address, and not only by way of another one."""
        return sum(not producer.is_leg for producer in self.producers.values())

    @property
    def queues(self) -> list[Queue]:
        return self.anycast + self.multicast


def _purges(queue: Queue) -> bool:
    """Whether messages may not be routed to it although it is there."""
    attributes = queue.attributes
    return attributes.purge_on_no_consumers or not attributes.enabled
