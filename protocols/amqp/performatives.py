"""Every composite value of AMQP 1.0 but message sections, declared once.

Performatives, SASL frames, termini, outcomes. The classes below are the table: field order, names,
types, what is mandatory (no default), defaults, bounds [AMQP 2.7, 2.8, 3.4, 3.5, 4.5, 5.3.3].
`decode_performative` and `encode_performative` are the general codec; transfers in the usual
encodings take a shorter way that must agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from gateway.model.amqp_types import AmqpMap, DecodeError, Described, Value, decode, encode, skip
from protocols.amqp.fields import (
    COMPOUND_BYTES_MAX,
    DECODE_ERROR,
    INVALID_FIELD,
    Composite,
    FieldError,
    Layout,
    Type,
    composite,
    composite_class,
    from_described,
    from_list,
    to_described,
    wire,
)

__all__ = [
    "DECODE_ERROR",
    "INVALID_FIELD",
    "Composite",
    "FieldError",
    "from_described",
    "to_described",
]

ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True
SND_UNSETTLED: Final = 0
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1
DURABLE_NONE: Final = 0
DURABLE_CONFIGURATION: Final = 1
DURABLE_UNSETTLED_STATE: Final = 2
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4

#: Names go into logs, metrics and file names of exports; no real one comes near this.
_NAME_MAX: Final = 1024
#: Levels inside one field; a source with filters takes five.
_FIELD_DEPTH_MAX: Final = 8
#: The description and the list that every performative is, around its fields.
_OUTER_DEPTH: Final = 2
_EXPIRY: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)

Fields: TypeAlias = Mapping[str, Value]
_Symbols: TypeAlias = tuple[str, ...]


@composite("amqp:error:list", 0x1D, "error")
class Error(Composite):
    """What went wrong [AMQP 2.8.14]."""

    condition: str = wire(Type.SYMBOL)
    description: str | None = wire(Type.STRING, default=None)
    info: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:received:list", 0x23, "delivery-state")
class Received(Composite):
    """Partial progress of a delivery [AMQP 3.4.1]."""

    section_number: int = wire(Type.UINT)
    section_offset: int = wire(Type.ULONG)


@composite("amqp:accepted:list", 0x24, "delivery-state outcome")
class Accepted(Composite):
    """[AMQP 3.4.2]."""


@composite("amqp:rejected:list", 0x25, "delivery-state outcome")
class Rejected(Composite):
    """[AMQP 3.4.3]."""

    error: Error | None = wire(Type.COMPOSITE, default=None, provides="error")


@composite("amqp:released:list", 0x26, "delivery-state outcome")
class Released(Composite):
    """[AMQP 3.4.4]."""


@composite("amqp:modified:list", 0x27, "delivery-state outcome")
class Modified(Composite):
    """[AMQP 3.4.5]."""

    delivery_failed: bool = wire(Type.BOOLEAN, default=False)
    undeliverable_here: bool = wire(Type.BOOLEAN, default=False)
    message_annotations: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:declared:list", 0x33, "delivery-state outcome")
class Declared(Composite):
    """A transaction was opened [AMQP 4.5.7]."""

    txn_id: bytes = wire(Type.BINARY)


Outcome: TypeAlias = Accepted | Rejected | Released | Modified | Declared


@composite("amqp:transactional-state:list", 0x34, "delivery-state")
class TransactionalState(Composite):
    """A state inside a transaction [AMQP 4.5.8]."""

    txn_id: bytes = wire(Type.BINARY)
    outcome: Outcome | Described | None = wire(
        Type.COMPOSITE, default=None, provides="outcome", open_ended=True
    )


#: A state of a kind that we do not know stays a described value.
DeliveryState: TypeAlias = Received | Outcome | TransactionalState | Described


@composite("amqp:delete-on-close:list", 0x2B, "lifetime-policy")
class DeleteOnClose(Composite):
    """[AMQP 3.5.10]."""


@composite("amqp:delete-on-no-links:list", 0x2C, "lifetime-policy")
class DeleteOnNoLinks(Composite):
    """[AMQP 3.5.11]."""


@composite("amqp:delete-on-no-messages:list", 0x2D, "lifetime-policy")
class DeleteOnNoMessages(Composite):
    """[AMQP 3.5.12]."""


@composite("amqp:delete-on-no-links-or-messages:list", 0x2E, "lifetime-policy")
class DeleteOnNoLinksOrMessages(Composite):
    """[AMQP 3.5.13]."""


@composite("amqp:source:list", 0x28, "source")
class Source(Composite):
    """Where a link takes messages from [AMQP 3.5.3]."""

    address: str | None = wire(Type.STRING, default=None, size_max=_NAME_MAX)
    durable: int = wire(Type.UINT, default=DURABLE_NONE, above=3)
    expiry_policy: str = wire(Type.SYMBOL, default=SESSION_END, choices=_EXPIRY)
    timeout: int = wire(Type.UINT, default=0)
    dynamic: bool = wire(Type.BOOLEAN, default=False)
    dynamic_node_properties: Fields | None = wire(Type.FIELDS, default=None)
    distribution_mode: str | None = wire(Type.SYMBOL, default=None)
    filter: Fields | None = wire(Type.FIELDS, default=None)
    default_outcome: Outcome | Described | None = wire(
        Type.COMPOSITE, default=None, provides="outcome", open_ended=True
    )
    outcomes: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)


@composite("amqp:target:list", 0x29, "target")
class Target(Composite):
    """Where a link puts messages [AMQP 3.5.4]."""

    address: str | None = wire(Type.STRING, default=None, size_max=_NAME_MAX)
    durable: int = wire(Type.UINT, default=DURABLE_NONE, above=3)
    expiry_policy: str = wire(Type.SYMBOL, default=SESSION_END, choices=_EXPIRY)
    timeout: int = wire(Type.UINT, default=0)
    dynamic: bool = wire(Type.BOOLEAN, default=False)
    dynamic_node_properties: Fields | None = wire(Type.FIELDS, default=None)
    capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)


@composite("amqp:coordinator:list", 0x30, "target")
class Coordinator(Composite):
    """The target that transactions are declared on [AMQP 4.5.1]."""

    capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)


@composite("amqp:declare:list", 0x31)
class Declare(Composite):
    """Ask for a transaction [AMQP 4.5.2]."""

    global_id: bytes | None = wire(Type.BINARY, default=None)


@composite("amqp:discharge:list", 0x32)
class Discharge(Composite):
    """End a transaction: `fail` rolls back [AMQP 4.5.3]."""

    txn_id: bytes = wire(Type.BINARY)
    fail: bool = wire(Type.BOOLEAN, default=False)


@composite("amqp:open:list", 0x10)
class Open(Composite):
    """[AMQP 2.7.1]."""

    container_id: str = wire(Type.STRING, size_max=_NAME_MAX)
    hostname: str | None = wire(Type.STRING, default=None, size_max=_NAME_MAX)
    max_frame_size: int = wire(Type.UINT, default=0xFFFFFFFF)
    channel_max: int = wire(Type.USHORT, default=0xFFFF)
    idle_time_out: int | None = wire(Type.UINT, default=None)
    outgoing_locales: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    incoming_locales: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    offered_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    desired_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    properties: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:begin:list", 0x11)
class Begin(Composite):
    """[AMQP 2.7.2]."""

    remote_channel: int | None = wire(Type.USHORT, default=None)
    next_outgoing_id: int = wire(Type.UINT)
    incoming_window: int = wire(Type.UINT)
    outgoing_window: int = wire(Type.UINT)
    handle_max: int = wire(Type.UINT, default=0xFFFFFFFF)
    offered_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    desired_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    properties: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:attach:list", 0x12)
class Attach(Composite):
    """[AMQP 2.7.3]. `role` is ROLE_SENDER or ROLE_RECEIVER, of whoever sends it."""

    name: str = wire(Type.STRING, size_max=_NAME_MAX)
    handle: int = wire(Type.UINT)
    role: bool = wire(Type.BOOLEAN)
    snd_settle_mode: int = wire(Type.UBYTE, default=SND_MIXED, above=3)
    rcv_settle_mode: int = wire(Type.UBYTE, default=RCV_FIRST, above=2)
    source: Source | None = wire(Type.COMPOSITE, default=None, provides="source")
    target: Target | Coordinator | None = wire(Type.COMPOSITE, default=None, provides="target")
    unsettled: Mapping[Value, Value] | AmqpMap | None = wire(Type.MAP, default=None)
    incomplete_unsettled: bool = wire(Type.BOOLEAN, default=False)
    initial_delivery_count: int | None = wire(Type.UINT, default=None)
    max_message_size: int | None = wire(Type.ULONG, default=None)
    offered_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    desired_capabilities: _Symbols = wire(Type.SYMBOL, default=(), multiple=True)
    properties: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:flow:list", 0x13)
class Flow(Composite):
    """[AMQP 2.7.4]."""

    next_incoming_id: int | None = wire(Type.UINT, default=None)
    incoming_window: int = wire(Type.UINT)
    next_outgoing_id: int = wire(Type.UINT)
    outgoing_window: int = wire(Type.UINT)
    handle: int | None = wire(Type.UINT, default=None)
    delivery_count: int | None = wire(Type.UINT, default=None)
    link_credit: int | None = wire(Type.UINT, default=None)
    available: int | None = wire(Type.UINT, default=None)
    drain: bool = wire(Type.BOOLEAN, default=False)
    echo: bool = wire(Type.BOOLEAN, default=False)
    properties: Fields | None = wire(Type.FIELDS, default=None)


@composite("amqp:transfer:list", 0x14)
class Transfer(Composite):
    """[AMQP 2.7.5]."""

    handle: int = wire(Type.UINT)
    delivery_id: int | None = wire(Type.UINT, default=None)
    delivery_tag: bytes | None = wire(Type.BINARY, default=None, size_max=32)
    message_format: int | None = wire(Type.UINT, default=None)
    settled: bool | None = wire(Type.BOOLEAN, default=None)
    more: bool = wire(Type.BOOLEAN, default=False)
    rcv_settle_mode: int | None = wire(Type.UBYTE, default=None, above=2)
    state: DeliveryState | None = wire(
        Type.COMPOSITE, default=None, provides="delivery-state", open_ended=True
    )
    resume: bool = wire(Type.BOOLEAN, default=False)
    aborted: bool = wire(Type.BOOLEAN, default=False)
    batchable: bool = wire(Type.BOOLEAN, default=False)


@composite("amqp:disposition:list", 0x15)
class Disposition(Composite):
    """[AMQP 2.7.6]. `last` None means `first`."""

    role: bool = wire(Type.BOOLEAN)
    first: int = wire(Type.UINT)
    last: int | None = wire(Type.UINT, default=None)
    settled: bool = wire(Type.BOOLEAN, default=False)
    state: DeliveryState | None = wire(
        Type.COMPOSITE, default=None, provides="delivery-state", open_ended=True
    )
    batchable: bool = wire(Type.BOOLEAN, default=False)


@composite("amqp:detach:list", 0x16)
class Detach(Composite):
    """[AMQP 2.7.7]."""

    handle: int = wire(Type.UINT)
    closed: bool = wire(Type.BOOLEAN, default=False)
    error: Error | None = wire(Type.COMPOSITE, default=None, provides="error")


@composite("amqp:end:list", 0x17)
class End(Composite):
    """[AMQP 2.7.8]."""

    error: Error | None = wire(Type.COMPOSITE, default=None, provides="error")


@composite("amqp:close:list", 0x18)
class Close(Composite):
    """[AMQP 2.7.9]."""

    error: Error | None = wire(Type.COMPOSITE, default=None, provides="error")


@composite("amqp:sasl-mechanisms:list", 0x40)
class SaslMechanisms(Composite):
    """[AMQP 5.3.3.1]."""

    sasl_server_mechanisms: _Symbols = wire(Type.SYMBOL, multiple=True)


@composite("amqp:sasl-init:list", 0x41)
class SaslInit(Composite):
    """[AMQP 5.3.3.2]. Its repr shows no response: that holds a password."""

    mechanism: str = wire(Type.SYMBOL, size_max=_NAME_MAX)
    initial_response: bytes | None = wire(Type.BINARY, default=None)
    hostname: str | None = wire(Type.STRING, default=None, size_max=_NAME_MAX)

    def __repr__(self) -> str:
        return f"SaslInit(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@composite("amqp:sasl-challenge:list", 0x42)
class SaslChallenge(Composite):
    """[AMQP 5.3.3.3]."""

    challenge: bytes = wire(Type.BINARY)


@composite("amqp:sasl-response:list", 0x43)
class SaslResponse(Composite):
    """[AMQP 5.3.3.4]. Its repr shows no response: that may hold a password."""

    response: bytes = wire(Type.BINARY)

    def __repr__(self) -> str:
        return "SaslResponse()"


@composite("amqp:sasl-outcome:list", 0x44)
class SaslOutcome(Composite):
    """[AMQP 5.3.3.5]."""

    code: int = wire(Type.UBYTE, above=5)
    additional_data: bytes | None = wire(Type.BINARY, default=None)


SaslFrame: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
AmqpFrame: TypeAlias = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
Performative: TypeAlias = AmqpFrame | SaslFrame

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

_PERFORMATIVE_CODES: Final = frozenset((*range(0x10, 0x19), *range(0x40, 0x45)))


def decode_performative(buf: bytes, offset: int, end: int) -> tuple[Performative, int]:
    """Return the performative at `offset` and where its payload starts.

    Raises DecodeError when the bytes are no performative (answer with DECODE_ERROR), FieldError
    when a field breaks its declaration (answer with its `condition`).
    """
    value, payload = decode(buf, offset, end, depth_max=_FIELD_DEPTH_MAX + _OUTER_DEPTH)
    if type(value) is not Described:
        raise DecodeError(offset, "frame body without a performative")
    cls = composite_class(value.descriptor)
    if cls is None or cls.layout.code not in _PERFORMATIVE_CODES:
        raise DecodeError(offset, "frame body of an unknown performative")
    if payload - offset > COMPOUND_BYTES_MAX and type(value.value) is list:
        _check_sizes(cls.layout, buf, offset, payload)
    return cast("Performative", from_list(cls, value.value)), payload


def _check_sizes(layout: Layout, buf: bytes, offset: int, end: int) -> None:
    """Raise FieldError when a map or composite of a decodable performative is too long."""
    at = skip(buf, offset + 1, end)  # behind 0x00 and the descriptor
    at += 3 if buf[at] == 0xC0 else 9
    for field in layout.fields:
        if at >= end:
            return
        start, at = at, skip(buf, at, end)
        # The unsettled map lists deliveries; the frame and the decoder's node limit bound it.
        if field.type in (Type.FIELDS, Type.COMPOSITE) and at - start > COMPOUND_BYTES_MAX:
            reason = f"has {at - start} bytes, the limit is {COMPOUND_BYTES_MAX}"
            raise FieldError(layout.name, field.name, reason, INVALID_FIELD)


def encode_performative(performative: Composite) -> bytes:
    """Return the shortest encoding; works for every composite of this file. Raises EncodeError."""
    return encode(to_described(performative))
