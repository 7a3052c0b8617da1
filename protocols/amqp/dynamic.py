"""What an attach may say of the node that is to be made for its link [AMQP 3.5.9]. Cold; pure."""

from __future__ import annotations

from gateway.model.amqp_types import AmqpArray, Described, Symbol, Value
from gateway.model.errors import Code, RefusedError
from protocols.amqp.fields import composite_class
from protocols.amqp.performatives import Fields

_LIFETIME: str = "lifetime-policy"
_MODES: str = "supported-dist-modes"


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
