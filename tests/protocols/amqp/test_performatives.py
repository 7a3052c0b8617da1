"""The table of performatives: every row against the standard, Proton, and peers that break it."""

from __future__ import annotations

import dataclasses

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.amqp_types import (
    AmqpArray,
    AmqpMap,
    DecodeError,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)
from protocols.amqp import performatives as p
from protocols.amqp.fields import COMPOUND_BYTES_MAX, Layout, Type, composite
from protocols.amqp.performatives import (
    DECODE_ERROR,
    INVALID_FIELD,
    Composite,
    FieldError,
    decode_performative,
    encode_performative,
    from_described,
)
from tests.costs import costs
from tests.lanes import examples

COMPOSITES = [
    cls
    for cls in vars(p).values()
    if isinstance(cls, type) and issubclass(cls, Composite) and cls is not Composite
]
BY_NAME = {cls.layout.name: cls for cls in COMPOSITES}

#: The standard's own words: name -> code, fields in order, `!` mandatory, `*` multiple.
STANDARD = {
    "open": (
        0x10,
        (
            "container-id! hostname max-frame-size channel-max idle-time-out outgoing-locales*"
            " incoming-locales* offered-capabilities* desired-capabilities* properties"
        ),
    ),
    "begin": (
        0x11,
        (
            "remote-channel next-outgoing-id! incoming-window! outgoing-window! handle-max"
            " offered-capabilities* desired-capabilities* properties"
        ),
    ),
    "attach": (
        0x12,
        (
            "name! handle! role! snd-settle-mode rcv-settle-mode source target unsettled"
            " incomplete-unsettled initial-delivery-count max-message-size offered-capabilities*"
            " desired-capabilities* properties"
        ),
    ),
    "flow": (
        0x13,
        (
            "next-incoming-id incoming-window! next-outgoing-id! outgoing-window! handle"
            " delivery-count link-credit available drain echo properties"
        ),
    ),
    "transfer": (
        0x14,
        (
            "handle! delivery-id delivery-tag message-format settled more rcv-settle-mode state"
            " resume aborted batchable"
        ),
    ),
    "disposition": (0x15, "role! first! last settled state batchable"),
    "detach": (0x16, "handle! closed error"),
    "end": (0x17, "error"),
    "close": (0x18, "error"),
    "error": (0x1D, "condition! description info"),
    "received": (0x23, "section-number! section-offset!"),
    "accepted": (0x24, ""),
    "rejected": (0x25, "error"),
    "released": (0x26, ""),
    "modified": (0x27, "delivery-failed undeliverable-here message-annotations"),
    "source": (
        0x28,
        (
            "address durable expiry-policy timeout dynamic dynamic-node-properties"
            " distribution-mode filter default-outcome outcomes* capabilities*"
        ),
    ),
    "target": (
        0x29,
        "address durable expiry-policy timeout dynamic dynamic-node-properties capabilities*",
    ),
    "delete-on-close": (0x2B, ""),
    "delete-on-no-links": (0x2C, ""),
    "delete-on-no-messages": (0x2D, ""),
    "delete-on-no-links-or-messages": (0x2E, ""),
    "coordinator": (0x30, "capabilities*"),
    "declare": (0x31, "global-id"),
    "discharge": (0x32, "txn-id! fail"),
    "declared": (0x33, "txn-id!"),
    "transactional-state": (0x34, "txn-id! outcome"),
    "sasl-mechanisms": (0x40, "sasl-server-mechanisms!*"),
    "sasl-init": (0x41, "mechanism! initial-response hostname"),
    "sasl-challenge": (0x42, "challenge!"),
    "sasl-response": (0x43, "response!"),
    "sasl-outcome": (0x44, "code! additional-data"),
}
DEFAULTS = {
    "open": {"max_frame_size": 2**32 - 1, "channel_max": 65535},
    "begin": {"handle_max": 2**32 - 1},
    "attach": {"snd_settle_mode": 2, "rcv_settle_mode": 0, "incomplete_unsettled": False},
    "flow": {"drain": False, "echo": False},
    "transfer": {"more": False, "resume": False, "aborted": False, "batchable": False},
    "disposition": {"settled": False, "batchable": False},
    "detach": {"closed": False},
    "modified": {"delivery_failed": False, "undeliverable_here": False},
    "source": {"durable": 0, "expiry_policy": "session-end", "timeout": 0, "dynamic": False},
    "target": {"durable": 0, "expiry_policy": "session-end", "timeout": 0, "dynamic": False},
    "discharge": {"fail": False},
}
FRAMES = [n for n, (code, _) in STANDARD.items() if 0x10 <= code <= 0x18 or code >= 0x40]


def drawn(layout: Layout) -> str:
    return " ".join(
        f.name + ("!" if f.mandatory else "") + ("*" if f.multiple else "") for f in layout.fields
    )


@pytest.mark.parametrize("name", STANDARD)
def test_the_table_is_the_standard(name):
    layout = BY_NAME[name].layout
    assert (layout.code, drawn(layout)) == STANDARD[name]
    assert layout.symbol == f"amqp:{name}:list"
    defaults = {
        f.attribute: f.default for f in layout.fields if not f.mandatory and f.default is not None
    }
    multiples = {f.attribute: () for f in layout.fields if f.multiple and not f.mandatory}
    assert defaults == DEFAULTS.get(name, {}) | multiples


def test_only_a_composite_is_declared():
    with pytest.raises(TypeError):
        composite("amqp:mine:list", 0x99)(type("Mine", (), {}))


def test_nothing_is_missing_or_extra():
    assert BY_NAME.keys() == STANDARD.keys()


# ---- round trips

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
_fields = st.dictionaries(_symbols.map(Symbol), st.one_of(_text, st.integers(0, 9)), max_size=3)
_values = {
    Type.BOOLEAN: st.booleans(),
    Type.UBYTE: st.integers(0, 255),
    Type.USHORT: st.integers(0, 65535),
    Type.UINT: st.integers(0, 2**32 - 1),
    Type.ULONG: st.integers(0, 2**64 - 1),
    Type.STRING: _text,
    Type.SYMBOL: _symbols,
    Type.BINARY: st.binary(max_size=32),
    Type.MAP: st.dictionaries(st.binary(max_size=4), st.none(), max_size=3),
    Type.FIELDS: _fields,
}


def _of(name: str) -> st.SearchStrategy[Composite]:
    cls = BY_NAME[name]
    parts = {}
    for field in cls.layout.fields:
        if field.type is Type.COMPOSITE:
            fitting = [n for n, c in BY_NAME.items() if field.provides in c.layout.provides.split()]
            each = st.one_of([_of(n) for n in fitting])
        elif field.choices:
            each = st.sampled_from(field.choices)
        elif field.above:
            each = st.integers(0, field.above - 1)
        else:
            each = _values[field.type]
        if field.multiple:
            each = st.lists(each, max_size=3).map(tuple)
        elif not field.mandatory:
            each = st.one_of(st.just(field.default), each)
        parts[field.attribute] = each
    return st.builds(cls, **parts)


@pytest.mark.parametrize("name", STANDARD)
def test_every_value_comes_back(name):
    @given(_of(name), st.binary(max_size=5))
    @settings(max_examples=examples(40), deadline=None)
    def check(value, payload):
        raw = encode_performative(value)
        if name in FRAMES:
            found, at = decode_performative(b"xx" + raw + payload, 2, len(raw) + len(payload) + 2)
            assert at == len(raw) + 2
        else:
            described, _ = decode(raw, 0, len(raw))
            found = from_described(described)
        assert found == value
        assert encode_performative(found) == raw

    check()


@pytest.mark.parametrize("name", STANDARD)
def test_every_value_is_read_with_a_symbolic_descriptor(name):
    @given(_of(name))
    @settings(max_examples=5, deadline=None)
    def check(value):
        numeric, _ = decode(encode_performative(value), 0, 1 << 20)
        symbolic = Described(Symbol(f"amqp:{name}:list"), numeric.value)
        assert from_described(symbolic) == value

    check()


@pytest.mark.parametrize("name", FRAMES)
def test_every_truncation_is_told(name):
    @given(_of(name))
    @settings(max_examples=5, deadline=None)
    def check(value):
        raw = encode_performative(value)
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                decode_performative(raw, 0, cut)

    check()


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (p.Close(), "00531845"),
        (p.Accepted(), "00532445"),
        (
            p.Disposition(role=True, first=0, settled=True, state=p.ACCEPTED),
            "005315c009054143404100532445",
        ),
        (p.Detach(handle=1, closed=True), "005316c00402520141"),
        (p.SaslOutcome(code=0), "005344c003015000"),
        (p.SaslMechanisms(sasl_server_mechanisms=("PLAIN",)), "005340c00b01e00801a305504c41494e"),
        (p.SaslMechanisms(sasl_server_mechanisms=()), "005340c00501e00200a3"),
        (
            p.Open(container_id="c", max_frame_size=2**32 - 1, channel_max=255),
            "005310c00904a1016340406000ff",
        ),
    ],
)
def test_the_shortest_encoding_is_written(value, raw):
    assert encode_performative(value) == bytes.fromhex(raw)


# ---- Proton


def proton_list(code: int, *values) -> bytes:
    data = proton.Data()
    data.put_object(proton.Described(proton.ulong(code), list(values)))
    return bytes(data.encode())


def test_an_attach_that_proton_wrote():
    source = proton.Described(
        proton.ulong(0x28),
        [
            "queue",
            proton.uint(2),
            proton.symbol("never"),
            None,
            None,
            None,
            proton.symbol("copy"),
            {
                proton.symbol("selector"): proton.Described(
                    proton.symbol("apache.org:selector-filter:string"), "a = 1"
                )
            },
            proton.Described(proton.ulong(0x26), []),
            proton.Array(
                proton.UNDESCRIBED, proton.Data.SYMBOL, proton.symbol("amqp:accepted:list")
            ),
            proton.symbol("queue"),
        ],
    )
    target = proton.Described(
        proton.symbol("amqp:coordinator:list"), [proton.symbol("amqp:local-transactions")]
    )
    raw = proton_list(0x12, "link", proton.uint(3), True, proton.ubyte(1), None, source, target)
    found, _ = decode_performative(raw, 0, len(raw))
    assert found == p.Attach(
        name="link",
        handle=3,
        role=p.ROLE_RECEIVER,
        snd_settle_mode=p.SND_SETTLED,
        source=p.Source(
            address="queue",
            durable=2,
            expiry_policy="never",
            distribution_mode="copy",
            filter={"selector": Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
            default_outcome=p.RELEASED,
            outcomes=("amqp:accepted:list",),
            capabilities=("queue",),
        ),
        target=p.Coordinator(capabilities=("amqp:local-transactions",)),
    )


def test_proton_reads_an_open():
    raw = encode_performative(
        p.Open(
            container_id="c",
            idle_time_out=30_000,
            offered_capabilities=("a", "b"),
            properties={"product": "x"},
        )
    )
    data = proton.Data()
    data.decode(raw)
    data.rewind()
    data.next()
    found = data.get_object()
    assert found.descriptor == proton.ulong(0x10)
    assert found.value[0] == "c"
    assert found.value[4] == proton.uint(30_000)
    assert list(found.value[7].elements) == ["a", "b"]
    assert found.value[9] == {"product": "x"}


# ---- peers that break it


def raw_of(code: int, values: list) -> bytes:
    return encode(Described(ULong(code), values))


GOOD = {
    "open": ["c"],
    "begin": [None, UInt(0), UInt(1), UInt(1)],
    "attach": ["link", UInt(0), True],
    "flow": [None, UInt(1), UInt(0), UInt(1)],
    "transfer": [UInt(0)],
    "disposition": [True, UInt(0)],
    "detach": [UInt(0)],
    "end": [],
    "close": [],
    "sasl-mechanisms": [Symbol("PLAIN")],
    "sasl-init": [Symbol("PLAIN")],
    "sasl-challenge": [b""],
    "sasl-response": [b""],
    "sasl-outcome": [UByte(0)],
}
MANDATORY = [(n, i) for n, values in GOOD.items() for i, v in enumerate(values) if v is not None]


@pytest.mark.parametrize("name", GOOD)
def test_the_least_that_a_peer_may_send(name):
    raw = raw_of(STANDARD[name][0], GOOD[name])
    found, end = decode_performative(raw, 0, len(raw))
    assert isinstance(found, BY_NAME[name])
    assert end == len(raw)


@pytest.mark.parametrize(("name", "index"), MANDATORY)
@pytest.mark.parametrize("how", ["null", "short"])
def test_a_missing_mandatory_field_is_named(name, index, how):
    values = list(GOOD[name])
    values[index:] = [None, *values[index + 1 :]] if how == "null" else []
    raw = raw_of(STANDARD[name][0], values)
    with pytest.raises(FieldError) as caught:
        decode_performative(raw, 0, len(raw))
    assert caught.value.field == BY_NAME[name].layout.fields[index].name
    assert caught.value.composite == name
    assert caught.value.condition == INVALID_FIELD


FIELDS = [(name, index) for name in GOOD for index in range(len(BY_NAME[name].layout.fields))]
WRONG = {
    Type.BOOLEAN: UByte(1),
    Type.UBYTE: UInt(1),
    Type.USHORT: UInt(1),
    Type.UINT: 1,
    Type.ULONG: UInt(1),
    Type.STRING: Symbol("x"),
    Type.SYMBOL: "x",
    Type.BINARY: "x",
    Type.MAP: [],
    Type.FIELDS: [],
    Type.COMPOSITE: [],
}


@pytest.mark.parametrize(("name", "index"), FIELDS)
def test_a_field_of_another_type_is_named(name, index):
    field = BY_NAME[name].layout.fields[index]
    values = [*GOOD[name], *[None] * 14][: len(BY_NAME[name].layout.fields)]
    values[index] = WRONG[field.type]
    raw = raw_of(STANDARD[name][0], values)
    with pytest.raises(FieldError, match=field.name) as caught:
        decode_performative(raw, 0, len(raw))
    assert caught.value.condition == DECODE_ERROR
    assert field.type.value in caught.value.reason


def attach(**places):
    fields = [f.attribute for f in p.Attach.layout.fields]
    values = [*GOOD["attach"], *[None] * 11]
    for name, value in places.items():
        values[fields.index(name)] = value
    return raw_of(0x12, values)


def source(*values):
    return Described(ULong(0x28), list(values))


BAD = {
    "snd-settle-mode 3": (attach(snd_settle_mode=UByte(3)), "snd-settle-mode", INVALID_FIELD),
    "snd-settle-mode 255": (attach(snd_settle_mode=UByte(255)), "snd-settle-mode", INVALID_FIELD),
    "rcv-settle-mode 2": (attach(rcv_settle_mode=UByte(2)), "rcv-settle-mode", INVALID_FIELD),
    "name of 1,025 bytes": (attach(name="é" * 512 + "x"), "name", INVALID_FIELD),
    "address of 1 MB": (attach(source=source("x" * 5000)), "address", INVALID_FIELD),
    "address of 1 MB at once": (attach(source=source("x" * 1_000_000)), "source", INVALID_FIELD),
    "durable 3": (attach(source=source(None, UInt(3))), "durable", INVALID_FIELD),
    "expiry-policy": (
        attach(source=source(None, None, Symbol("someday"))),
        "expiry-policy",
        INVALID_FIELD,
    ),
    "source that is a target": (attach(source=Described(ULong(0x29), [])), "source", INVALID_FIELD),
    "target that is a source": (attach(target=source()), "target", INVALID_FIELD),
    "unknown target": (attach(target=Described(ULong(0x99), [])), "target", INVALID_FIELD),
    "source that is no list": (attach(source=Described(ULong(0x28), {})), "list", DECODE_ERROR),
    "default-outcome that is no outcome": (
        attach(source=source(*[None] * 8, Described(ULong(0x23), [UInt(0), ULong(0)]))),
        "default-outcome",
        INVALID_FIELD,
    ),
    "properties with string keys": (attach(properties={"a": 1}), "properties", DECODE_ERROR),
    "properties with a key twice": (
        attach(properties=AmqpMap(((Symbol("a"), 1), (Symbol("a"), 2)))),
        "properties",
        DECODE_ERROR,
    ),
    "properties of 8 KiB and more": (
        attach(properties={Symbol("a"): "x" * COMPOUND_BYTES_MAX}),
        "properties",
        INVALID_FIELD,
    ),
    "capabilities that are a list": (
        attach(offered_capabilities=[Symbol("a")]),
        "offered-capabilities",
        DECODE_ERROR,
    ),
    "capabilities that are strings": (
        attach(offered_capabilities=AmqpArray(0xA1, ("a",))),
        "offered-capabilities",
        DECODE_ERROR,
    ),
    "capabilities that are described": (
        attach(offered_capabilities=AmqpArray(0xA3, (Symbol("a"),), (ULong(1),))),
        "offered-capabilities",
        DECODE_ERROR,
    ),
    "a value too many": (raw_of(0x18, [None, True]), "list", DECODE_ERROR),
    "performative that is a map": (encode(Described(ULong(0x18), {})), "list", DECODE_ERROR),
    "delivery-tag of 33 bytes": (
        raw_of(0x14, [UInt(0), UInt(0), b"x" * 33]),
        "delivery-tag",
        INVALID_FIELD,
    ),
    "rejected with annotations of 10 KB": (
        raw_of(
            0x15,
            [
                True,
                UInt(0),
                None,
                True,
                Described(
                    ULong(0x27), [None, None, {Symbol(f"x{n}"): "y" * 9 for n in range(700)}]
                ),
            ],
        ),
        "state",
        INVALID_FIELD,
    ),
    "container-id of 1 MB": (raw_of(0x10, ["x" * 1_000_000]), "container-id", INVALID_FIELD),
    "outcome code 5": (raw_of(0x44, [UByte(5)]), "code", INVALID_FIELD),
    "state that is a source": (
        raw_of(0x15, [True, UInt(0), None, None, source()]),
        "state",
        INVALID_FIELD,
    ),
    "transactional-state in itself": (
        raw_of(
            0x15,
            [
                True,
                UInt(0),
                None,
                None,
                Described(ULong(0x34), [b"t", Described(ULong(0x34), [b"t"])]),
            ],
        ),
        "outcome",
        INVALID_FIELD,
    ),
    "channel-max that is a uint": (
        raw_of(0x10, ["c", None, None, UInt(1)]),
        "channel-max",
        DECODE_ERROR,
    ),
}


@pytest.mark.parametrize(("raw", "field", "condition"), BAD.values(), ids=BAD.keys())
def test_a_field_that_breaks_the_rules_is_named(raw, field, condition):
    with pytest.raises(FieldError) as caught:
        decode_performative(raw, 0, len(raw))
    assert (caught.value.field, caught.value.condition) == (field, condition)


NO_PERFORMATIVE = {
    "empty": b"",
    "a value": encode("text"),
    "unknown code": raw_of(0x19, []),
    "unknown symbol": encode(Described(Symbol("amqp:nothing:list"), [])),
    "a source": raw_of(0x28, []),
    "a section": raw_of(0x70, []),
    "code as uint": encode(Described(UInt(0x10), ["c"])),
    "symbol as string": encode(Described("amqp:close:list", [])),
    "described by a list": encode(Described([], [])),
}


@pytest.mark.parametrize("raw", NO_PERFORMATIVE.values(), ids=NO_PERFORMATIVE.keys())
def test_what_is_no_performative_is_a_decode_error(raw):
    with pytest.raises(DecodeError):
        decode_performative(raw, 0, len(raw))


def nested_list(depth: int):
    value: list = [None]
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [7, 8, 33])
def test_depth_of_properties(depth):
    # The map is a level of its own.
    raw = raw_of(0x10, ["c", *[None] * 8, {Symbol("deep"): nested_list(depth)}])
    if depth + 1 <= 8:
        assert decode_performative(raw, 0, len(raw))[0].properties
    else:
        with pytest.raises(DecodeError, match="deeper"):
            decode_performative(raw, 0, len(raw))


@pytest.mark.parametrize("depth", [500, 65_000])
def test_depth_bombs_before_login_are_refused_at_once(depth):
    bomb = b"\x00\x40" * depth + b"\x40"
    raw = b"\x00\x53\x10\xd0" + (len(bomb) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + bomb
    with costs(), pytest.raises(DecodeError):
        decode_performative(raw, 0, len(raw))


def test_a_small_frame_of_large_properties_is_read():
    raw = attach(
        properties={Symbol("a"): "x" * 8000}, unsettled={bytes((n,)): None for n in range(200)}
    )
    found, _ = decode_performative(raw, 0, len(raw))
    assert len(found.properties["a"]) == 8000
    assert len(found.unsettled) == 200


def test_an_unsettled_map_may_be_longer_than_other_fields():
    unsettled = {n.to_bytes(4, "big") * 8: None for n in range(400)}
    raw = attach(unsettled=unsettled)
    assert len(raw) > COMPOUND_BYTES_MAX
    assert decode_performative(raw, 0, len(raw))[0].unsettled == unsettled


def test_an_unknown_delivery_state_stays_described():
    state = Described(Symbol("com.example:postponed:list"), [1])
    raw = raw_of(0x15, [True, UInt(0), None, True, state])
    assert decode_performative(raw, 0, len(raw))[0].state == state


@pytest.mark.parametrize("given_as", [None, Symbol("a"), AmqpArray(0xA3, (Symbol("a"),))])
def test_a_multiple_field_in_its_three_forms(given_as):
    raw = raw_of(0x10, ["c", None, None, UShort(3), None, None, None, given_as])
    found, _ = decode_performative(raw, 0, len(raw))
    assert found.offered_capabilities == (() if given_as is None else ("a",))
    assert found.channel_max == 3


def test_trailing_nulls_are_taken():
    raw = raw_of(0x18, [None] * 9)
    assert decode_performative(raw, 0, len(raw))[0] == p.Close()


def test_no_repr_shows_a_response():
    for value in (
        p.SaslInit(mechanism="PLAIN", initial_response=b"\0me\0secret"),
        p.SaslResponse(response=b"\0me\0secret"),
    ):
        assert "secret" not in repr(value)
        assert "secret" not in f"{[value]}"


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.Close().error = None


@given(st.sampled_from(FRAMES).flatmap(_of), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_changed_frame_is_read_or_refused_by_our_errors(value, data):
    raw = bytearray(encode_performative(value))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, end = decode_performative(bytes(raw), 0, len(raw))
    except (DecodeError, FieldError):
        return
    assert end <= len(raw)
    assert isinstance(found, Composite)
