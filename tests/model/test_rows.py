"""From an annotated field to the row that all else follows from."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Annotated

from gateway.model.bounds import at_least
from gateway.model.rows import Reach, Unit, rows_of

_LEAST = at_least(1)
_Size = Annotated[int, Unit.BYTES, _LEAST]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    needed: Annotated[str, Unit.NAME]
    page_size: Annotated[_Size, "bytes of a page"] = 5
    may_be_none: Annotated[int | None, Reach.RESTART, "unsaid"] = None
    no_row: int = 3


def test_a_field_says_name_type_default_and_facts():
    rows = rows_of(_Table)
    assert list(rows) == ["needed", "page_size", "may_be_none"]
    needed, size, none = rows.values()
    assert (needed.kind, needed.unit, needed.default) == (str, Unit.NAME, MISSING)
    assert (size.key, size.json, size.words) == ("page-size", "pageSize", "bytes of a page")
    assert (size.kind, size.unit, size.bound, size.default) == (int, Unit.BYTES, _LEAST, 5)
    assert (none.kind, none.optional, none.unit) == (int, True, Unit.COUNT)
    assert (none.fact(Reach), size.fact(Reach)) == (Reach.RESTART, None)
    assert [row.nullable for row in rows.values()] == [True, False, True]


def test_none_is_never_impossible_where_it_may_stand():
    rows = rows_of(_Table)
    assert rows["page_size"].problem(0) == "0 is too small; the least is 1"
    assert rows["page_size"].problem(1) is rows["may_be_none"].problem(None) is None
