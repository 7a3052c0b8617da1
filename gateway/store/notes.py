"""Definitions as notes in the journal and back: JSON with a `kind`, which is written first. Pure.

One table says for each kind which fields of the definition are noted, under which names, and how.
A field that older notes lack, or that is left out where few have it, reads as its default.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from gateway.model.address import RoutingType
from gateway.model.attributes import PLAIN, from_note, to_note
from gateway.model.definitions import (
    AddressDefinition,
    CommitDefinition,
    Definition,
    DivertDefinition,
    DivertRouting,
    IdsDefinition,
    PageGone,
    PageMark,
    PagesDefinition,
    ProgressDefinition,
    QueueDefinition,
    StageRow,
    StreamDefinition,
)
from storage.errors import StorageError

_Convert = Callable[[Any], Any]
#: No value of any field.
_NEVER: Final = object()


def _same(value: object) -> object:
    return value


def _value(value: Enum) -> str:
    return str(value.value)


def _values(types: frozenset[RoutingType]) -> list[str]:
    return sorted(map(_value, types))


@dataclass(frozen=True, slots=True)
class _Noted:
    """One field of a definition.

    Attributes:
        name: in the note.
        field: of the definition.
        write: what stands in the note for its value.
        read: its value for what stands in the note.
        unless: it is left out where it has this value.
        added: older notes lack it.
    """

    name: str
    field: str
    write: _Convert = _same
    read: _Convert = _same
    unless: object = _NEVER
    added: bool = False

    @property
    def needed(self) -> bool:
        """Whether every note has it."""
        return self.unless is _NEVER and not self.added


def _types(names: Sequence[str]) -> frozenset[RoutingType]:
    return frozenset(RoutingType(name) for name in names)


def _write_marks(marks: Sequence[PageMark]) -> list[list[object]]:
    return [[m.queue_id, m.page, m.first, m.floor, _packed(m.marks)] for m in marks]


def _read_marks(items: Sequence[Any]) -> tuple[PageMark, ...]:
    return tuple(
        PageMark(queue_id=queue_id, page=page, first=first, floor=floor, marks=_unpacked(marks))
        for queue_id, page, first, floor, marks in items
    )


def _packed(marks: bytes) -> str:
    """Return marks as text: long runs of the same are the rule."""
    return base64.b64encode(zlib.compress(marks, 1)).decode() if marks else ""


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text)) if text else b""


def _triples(items: Sequence[Any]) -> tuple[tuple[int, int, int], ...]:
    return tuple((queue_id, seq, third) for queue_id, seq, third in items)


def _stages(items: Sequence[Any]) -> tuple[StageRow, ...]:
    return tuple((partition, attempt, rows) for partition, attempt, rows in items)


_NAME: Final = _Noted("name", "name")
_ADDRESS: Final = _Noted("address", "address")
_AUTO: Final = _Noted("auto", "auto_created")
_BY: Final = _Noted("by", "made_by", unless=None)
_KINDS: Final[Mapping[str, tuple[Callable[..., Definition], tuple[_Noted, ...]]]] = {
    "queue": (
        QueueDefinition,
        (
            _Noted("id", "queue_id"),
            _NAME,
            _ADDRESS,
            _Noted("routing", "routing", _value, RoutingType),
            _AUTO,
            _Noted("ring", "ring_size"),
            _Noted("max", "max_consumers"),
            _Noted("paused", "paused"),
            # Few queues have the rest; each segment begins with all definitions.
            _Noted("attributes", "attributes", to_note, from_note, unless=PLAIN),
            _Noted("filter", "filter", unless=""),
            _Noted("no-local", "no_local", unless=""),
            _BY,
        ),
    ),
    "address": (
        AddressDefinition,
        (
            _NAME,
            _AUTO,
            _Noted("types", "routing_types", _values, _types),
            _BY,
        ),
    ),
    "stream": (
        StreamDefinition,
        (_Noted("id", "stream_id"), _NAME, _ADDRESS, _Noted("epoch", "epoch")),
    ),
    "pages": (
        PagesDefinition,
        (
            _Noted("id", "store_id"),
            _ADDRESS,
            _Noted("pages", "pages", lambda pages: list(pages.items()), dict),
            _Noted("marks", "marks", _write_marks, _read_marks),
            _Noted("counts", "counts", read=_triples),
            _Noted("suspect", "suspect"),
            _Noted("next", "next_page", added=True),
            _Noted("dues", "dues", read=_triples, added=True),
        ),
    ),
    "ids": (IdsDefinition, (_Noted("id", "ids_id"), _ADDRESS)),
    "divert": (
        DivertDefinition,
        (
            _NAME,
            _ADDRESS,
            _Noted("to", "forwarding", list, tuple),
            _Noted("exclusive", "exclusive"),
            _Noted("filter", "filter"),
            _Noted("routing", "routing", _value, DivertRouting),
        ),
    ),
    "commit": (
        CommitDefinition,
        (
            _Noted("producer", "producer"),
            _Noted("committed", "committed"),
            _Noted("seen", "seen_ms"),
            _Noted("passing", "passing", unless=False),
            _Noted("batch", "batch", unless=-1),
            _Noted("stages", "stages", read=_stages, unless=()),
        ),
    ),
    "progress": (
        ProgressDefinition,
        (
            _Noted("producer", "producer"),
            _Noted("batch", "batch"),
            _Noted("stage", "stage"),
            _Noted("row", "row"),
        ),
    ),
    "page": (PageGone, (_Noted("id", "store_id"), _Noted("page", "page"))),
}
_KIND_OF: Final = {made: kind for kind, (made, _) in _KINDS.items()}


def key_of(definition: Definition) -> tuple[str, object]:
    """Return what a later note of the same thing has too: its kind, and its number or name."""
    if isinstance(definition, PageGone):
        return "page", (definition.store_id, definition.page)
    kind = _KIND_OF[type(definition)]
    return kind, getattr(definition, _KINDS[kind][1][0].field)


def encode_definition(definition: Definition, *, gone: bool = False) -> bytes:
    """Return the journal note that says that this exists, or that it is gone."""
    kind = _KIND_OF[type(definition)]
    fields: dict[str, object] = {"kind": kind}
    for noted in _KINDS[kind][1]:
        value = getattr(definition, noted.field)
        if value != noted.unless:
            fields[noted.name] = noted.write(value)
    if gone:
        fields["gone"] = True
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_definition(note: bytes) -> tuple[Definition, bool]:
    """Return the definition of a note and whether it is gone.

    Raises StorageError on a note of another program.
    """
    try:
        fields = json.loads(note)
        gone = bool(fields.get("gone"))
        kind = fields["kind"]
        if kind not in _KINDS:
            raise StorageError(f"The journal defines a {kind!r}, which this program does not know.")
        make, table = _KINDS[kind]
        said = {
            noted.field: noted.read(fields[noted.name])
            for noted in table
            if noted.needed or noted.name in fields
        }
        return make(**said), gone
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise StorageError(f"A definition in the journal cannot be read: {error}.") from error
