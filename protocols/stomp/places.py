"""Where the destinations of one connection lead, and its temporary ones, which end with it.

A temporary address has a name that nobody else has, made by the broker. The connection names it by
the word that it chose (`/temp-queue/word`); others are told the real name in a reply-to. What it is
good for, and who reads it, is the broker's matter.
"""

from __future__ import annotations

from typing import assert_never

from gateway.model.address import Destination, RoutingType, check_name, parse_destination
from gateway.model.errors import Code, RefusedError
from gateway.model.ports import Broker
from gateway.model.principal import Principal
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits
from protocols.stomp.styles import ANSWER_QUEUE, ANSWER_TOPIC, Named, Place


class Places:
    """Those of one connection."""

    __slots__ = ("_broker", "_limits", "_owner", "_temporary")

    def __init__(self, broker: Broker, limits: StompLimits, owner: object) -> None:
        """`owner` is the one whose subscriptions read what is temporary."""
        self._broker = broker
        self._limits = limits
        self._owner = owner
        self._temporary: dict[str, str] = {}  # the word that was chosen -> address

    def find(self, named: Named, principal: Principal | None) -> Destination | None:
        """Return where a destination leads; None: to nobody, since who was to answer is gone.

        What is temporary is made for `principal`.

        Raises:
            RefusedError: not-found for a queue that must be there and is not; an impossible name;
                or no room for what is temporary.
        """
        match named.place:
            case Place.ADDRESS:
                return parse_destination(named.name)
            case Place.OWN:
                return Destination(self.own(named, principal))
            case Place.ANSWERS:
                check_name(named.name, "address")
                return self._broker.find(named.name)
            case Place.EXISTING:
                return self._existing(named)
            case _:
                assert_never(named.place)

    def _existing(self, named: Named) -> Destination:
        check_name(named.name, "queue")
        found = self._broker.find(named.name)
        if found is None or found.queue is None:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Queue '{shown(named.name)}' does not exist, and '{shown(named.text)}' makes "
                f"none. Write '/queue/{shown(named.name)}' to have one made.",
            )
        return found

    def own(self, named: Named, principal: Principal | None) -> str:
        """Return the temporary address of a word, made if it is not there. Raises RefusedError."""
        address = self._temporary.get(named.text)
        if address is not None and self._broker.find(address) is not None:
            return address
        limit = self._limits.subscriptions_max
        if len(self._temporary) >= limit:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"This connection has {limit} temporary destinations, which is the limit; use one "
                "for many questions, and tell the answers apart by correlation-id.",
            )
        assert named.routing is not None, "each style says what it makes"
        address = self._broker.create_temporary(named.routing, self._owner, principal)
        self._temporary[named.text] = address
        return address

    def leave(self) -> None:
        """The connection ends, and its subscriptions have: so does what is temporary."""
        temporary, self._temporary = self._temporary, {}
        for address in temporary.values():
            self._broker.delete_temporary(address)


def answer_to(named: Named, address: str) -> str:
    """Return what others write to answer at a temporary address."""
    begin = ANSWER_TOPIC if named.routing is RoutingType.MULTICAST else ANSWER_QUEUE
    return begin + address
