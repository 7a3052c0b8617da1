"""A walk over the raw values of a configuration, which collects all that is wrong. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from gateway.config import schema
from gateway.config.errors import Path, Problem, show_path
from gateway.config.sources import Layers
from gateway.config.values import describe


class Walk:
    """One walk over the layers; collects problems."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.problems = list(layers.problems)

    def wrong(self, path: Path, text: str) -> None:
        """Keep a mistake."""
        where = self.layers.origin(path)
        self.problems.append(Problem(where=where, path=show_path(path), text=text))

    def table(self, raw: object, path: Path, keys: schema.Table) -> dict[str, Any]:
        """Return field -> value for what was written in one table."""
        if not isinstance(raw, Mapping):
            self.wrong(path, f"needs a table, not {describe(raw)}")
            return {}
        read: dict[str, Any] = {}
        for key, value in raw.items():
            here = (*path, key)
            if key in keys.keys:
                try:
                    read[key.replace("-", "_")] = keys.keys[key](value)
                except ValueError as error:
                    self.wrong(here, str(error))
            elif key in keys.later:
                self.wrong(here, f"{keys.refusal(key)}; remove it")
            elif key not in keys.nested:
                self.wrong(here, _unknown(key, keys))
        for key in sorted(keys.required - raw.keys()):
            self.wrong(path, f"needs the key {key}")
        return read

    def tables(self, raw: object, path: Path) -> list[tuple[str, object]]:
        """Return name -> table for a table of named tables."""
        if not isinstance(raw, Mapping):
            self.wrong(path, f"needs tables with names below it, not {describe(raw)}")
            return []
        return list(raw.items())

    def array(self, raw: object, path: Path) -> list[object]:
        """Return the tables of an array of them."""
        if not isinstance(raw, list):
            self.wrong(path, f"needs an array of tables, not {describe(raw)}")
            return []
        return raw


def _unknown(key: str, keys: schema.Table) -> str:
    """Say that a key is unknown, with the nearest known one."""
    kebab = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", key).replace("_", "-").lower()
    if kebab in keys.keys or kebab in keys.nested:
        return f"unknown key; did you mean {kebab}?"
    if kebab in keys.later:
        why = keys.why.get(kebab, "is known, but not supported yet by this version")
        return f"unknown key; {kebab} {why}"
    near = difflib.get_close_matches(kebab, keys.known(), n=1, cutoff=0.6)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; the keys here are {', '.join(keys.known())}"
