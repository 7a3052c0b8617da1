"""The tables below `[quotas]`, read and checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.addresses.match import match_problem
from gateway.config import schema
from gateway.config.errors import Path
from gateway.config.sources import Layers
from gateway.model.quota import ROWS, Group, Quotas, QuotaTable, name_problem


class Walk(Protocol):
    """The walk over a configuration, which collects what is wrong."""

    layers: Layers

    def wrong(self, path: Path, text: str) -> None:
        """Something is wrong there."""

    def table(self, raw: object, path: Path, keys: schema.Table) -> dict[str, Any]:
        """Return field -> value for what was written in one table."""

    def tables(self, raw: object, path: Path) -> list[tuple[str, object]]:
        """Return name -> table for a table of named tables."""


def read_quotas(walk: Walk, raw: object) -> Quotas:
    """Return what is written of quotas."""
    walk.table(raw, ("quotas",), schema.Table(keys={}, nested=frozenset(g.value for g in Group)))
    groups: dict[str, dict[str, QuotaTable]] = {}
    for group in Group:
        tables = raw.get(group.value, {}) if isinstance(raw, Mapping) else {}
        found = groups[group.value] = {}
        for name, table in walk.tables(tables, ("quotas", group.value)):
            path: Path = ("quotas", group.value, name)
            problem = name_problem(group, name, match_problem)
            if problem is not None:
                walk.wrong(path, problem)
            values = walk.table(table, path, schema.QUOTA)
            if group is Group.ADDRESSES and "connections" in values:
                walk.wrong((*path, "connections"), "is not for addresses: nobody connects to one")
            origins = {row: walk.layers.origin((*path, ROWS[row].key)) for row in values}
            found[name] = QuotaTable(name=name, values=values, origins=origins)
    return Quotas(**groups)
