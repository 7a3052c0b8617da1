"""One divert: what is sent to an address goes, copied and told where it comes from, to others."""

from __future__ import annotations

from typing import Final

from gateway.addresses.wildcards import fits, is_wildcard
from gateway.broker.directory.origin import origin_of
from gateway.model import stomp_form
from gateway.model.address import RoutingType
from gateway.model.amqp_types import DecodeError, UByte, Value
from gateway.model.definitions import DivertDefinition
from gateway.model.message import STOMP, Message
from gateway.model.sections import with_annotations
from gateway.selectors import compile_selector

#: In every name that tells of an origin, over both protocols.
_ORIGIN: Final = b"ORIG"
_KINDS: Final = {RoutingType.MULTICAST: 0, RoutingType.ANYCAST: 1}


class Divert:
    """One divert at work.

    Attributes:
        configured: it is from the configuration.
        diverted: messages that it took.
        lost: copies that had nowhere to go.
    """

    __slots__ = ("_condition", "configured", "definition", "diverted", "lost")

    def __init__(self, definition: DivertDefinition, *, configured: bool = False) -> None:
        """Raises RefusedError (bad-selector)."""
        self.definition = definition
        self.configured = configured
        self.diverted = self.lost = 0
        text = definition.filter
        self._condition = compile_selector(text, definition.address) if text else None

    @property
    def name(self) -> str:
        return self.definition.name

    def concerns(self, address: str) -> bool:
        """Whether it stands at this address."""
        where = self.definition.address
        return where == address or (is_wildcard(where) and fits(where, address))

    def takes(self, message: Message) -> bool:
        """Whether a message passes its filter."""
        return self._condition is None or self._condition.matches(message)

    def copy(self, message: Message, where: str, number: int, routing: RoutingType | None) -> bytes:
        """Return the copy of a message that was sent to `where`, telling where it comes from.

        What tells of an earlier origin keeps that.
        """
        body = message.body
        # Few messages have an origin, and looking for its name costs less than reading them.
        if _ORIGIN in body and origin_of(message) is not None:
            return body
        kind = None if routing is None else _KINDS[routing]
        if message.flags & STOMP:
            facts = [
                ("_AMQ_ORIG_ADDRESS", where),
                ("_AMQ_ORIG_QUEUE", self.name),
                ("_AMQ_ORIG_MESSAGE_ID", str(number)),
            ]
            if kind is not None:
                facts.append(("_AMQ_ORIG_ROUTING_TYPE", str(kind)))
            if _ORIGIN in body:
                return stomp_form.with_headers(body, facts)
            return stomp_form.with_new_headers(body, facts)
        origin: dict[str, Value] = {
            "x-opt-ORIG-ADDRESS": where,
            "x-opt-ORIG-QUEUE": self.name,
            "x-opt-ORIG-MESSAGE-ID": number,
        }
        if kind is not None:
            origin["x-opt-ORIG-ROUTING-TYPE"] = UByte(kind)
        try:
            return with_annotations(body, origin)
        except DecodeError:
            return body  # opaque bytes go on as they are
