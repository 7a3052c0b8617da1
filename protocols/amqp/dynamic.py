"""Nodes that are made for links: what an attach may say of one, and how long it is there. Cold.

One goes with its link, or where its terminus expires no earlier than the connection, with that
[AMQP 3.5.3, 3.5.6, 3.5.9].
"""

from __future__ import annotations

from gateway.model.amqp_types import AmqpArray, Described, Symbol, Value
from gateway.model.errors import Code, RefusedError
from gateway.model.ports import Broker
from protocols.amqp.fields import composite_class
from protocols.amqp.performatives import CONNECTION_CLOSE, NEVER, Fields, Source, Target

_LIFETIME: str = "lifetime-policy"
_MODES: str = "supported-dist-modes"


class DynamicNodes:
    """Those of one connection."""

    __slots__ = ("_broker", "_kept", "_max")

    def __init__(self, broker: Broker, kept_max: int) -> None:
        """`kept_max`: how many may outlive their links."""
        self._broker = broker
        self._kept: dict[str, None] = {}
        self._max = kept_max

    def check(self, terminus: Source | Target) -> None:
        """Raise RefusedError when no node can be made as a terminus says."""
        check_node_properties(terminus.dynamic_node_properties)
        if _outlives(terminus) and len(self._kept) >= self._max:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"This connection has {len(self._kept)} dynamic nodes that stay until it is "
                f"closed; the limit is {self._max}.",
            )

    def attached(self, name: str | None, terminus: Source | Target) -> None:
        """The link of a node is there; None: it has none."""
        if name is not None and _outlives(terminus):
            self._kept[name] = None

    def detached(self, name: str | None) -> None:
        """The link of a node is gone; None: it had none."""
        if name is not None and name not in self._kept:
            self._broker.delete_temporary(name)

    def end(self) -> None:
        """The connection is over."""
        kept, self._kept = self._kept, {}
        for name in kept:
            self._broker.delete_temporary(name)


def _outlives(terminus: Source | Target) -> bool:
    return terminus.expiry_policy in (CONNECTION_CLOSE, NEVER)


def check_node_properties(properties: Fields | None) -> None:
    """Raise RefusedError when a property that the specification knows has another type."""
    wanted = properties or {}
    lifetime = wanted.get(_LIFETIME)
    if lifetime is not None and not _is_lifetime(lifetime):
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The node property {_LIFETIME!r} is no lifetime-policy, such as delete-on-close "
            "[AMQP 3.5.9].",
        )
    modes = wanted.get(_MODES)
    items = modes.items if type(modes) is AmqpArray and not modes.descriptors else (modes,)
    if modes is not None and not all(type(item) is Symbol for item in items):
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The node property {_MODES!r} is neither a symbol nor an array of them [AMQP 3.5.9].",
        )


def _is_lifetime(value: Value) -> bool:
    cls = composite_class(value.descriptor) if type(value) is Described else None
    return cls is not None and cls.layout.provides == _LIFETIME and type(value.value) is list
