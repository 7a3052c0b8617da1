"""Layers of configuration and how they merge: defaults < file < environment < `--set`. Pure.

Tables merge key by key, everything else replaces what was below it. Beside the merged tree stands
where each value came from, so that an error and `explain` can name file and line, variable or
option.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.config.errors import Path, Problem
from gateway.config.lines import key_lines

ENV_PREFIX = "SLUICEGATE__"
_KEY_PART = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^."'=\s]+)(\.|\Z)""")

Tree = dict[str, object]


@dataclass(slots=True)
class Layers:
    """The merged tree, the origin of each path in it, and what could not be read."""

    tree: Tree = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def origin(self, path: Path) -> str:
        """Return where `path`, or the nearest table around it, was written; empty for a default."""
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path[:-1]
        return ""

    def add_file(self, source: str, file_name: str) -> None:
        """Merge a TOML text."""
        try:
            tree = tomllib.loads(source)
        except tomllib.TOMLDecodeError as error:
            self.problems.append(Problem(where=file_name, path="", text=f"is not TOML: {error}"))
            return
        lines = key_lines(source)
        # A file that names acceptors means those and no others.
        if "acceptors" in tree:
            self.tree.pop("acceptors", None)
        self._merge(self.tree, tree, ())
        for path, line in lines.items():
            self.origins[path] = f"{file_name}:{line}"

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Merge `SLUICEGATE__SECTION__KEY=value` variables; `_` in a name is `-` in a key."""
        for variable in sorted(environment):
            if not variable.startswith(ENV_PREFIX):
                continue
            parts = variable[len(ENV_PREFIX) :].split("__")
            path = tuple(part.lower().replace("_", "-") for part in parts)
            self._set(path, environment[variable], f"environment {variable}")

    def add_set(self, text: str) -> None:
        """Merge one `KEY=VALUE` of `--set`."""
        key, equals, value = _split_assignment(text)
        where = f"--set {text}"
        if not equals:
            problem = "needs KEY=VALUE, for example --set name=edge-1"
            self.problems.append(Problem(where=where, path="", text=problem))
            return
        path = _dotted(key)
        if path is None:
            problem = f"{key!r} is no dotted key; quote parts with dots or signs, as in TOML"
            self.problems.append(Problem(where=where, path="", text=problem))
            return
        self._set(path, value, where)

    def _set(self, path: tuple[str, ...], text: str, where: str) -> None:
        if not all(path):
            self.problems.append(Problem(where=where, path="", text="has an empty part in its key"))
            return
        table = self.tree
        for depth, part in enumerate(path[:-1]):
            below = table.setdefault(part, {})
            if not isinstance(below, dict):
                name = ".".join(path[: depth + 1])
                problem = f"{name} is a value, not a table; it has no keys below it"
                self.problems.append(Problem(where=where, path="", text=problem))
                return
            table = below
        self._merge(table, {path[-1]: toml_or_text(text)}, path[:-1])
        self.origins[path] = where

    def _merge(self, into: Tree, tree: Mapping[str, object], path: Path) -> None:
        for key, value in tree.items():
            below = into.get(key)
            here = (*path, key)
            if isinstance(value, dict) and isinstance(below, dict):
                self._merge(below, value, here)
                continue
            into[key] = _copy(value)
            # Origins of what this value replaces are gone with it.
            for old in [p for p in self.origins if p[: len(here)] == here]:
                del self.origins[old]


def toml_or_text(text: str) -> object:
    """Read `text` as a TOML value; what is none is taken as the text itself."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(below) for key, below in value.items()}
    return value


def _split_assignment(text: str) -> tuple[str, str, str]:
    """Split at the first `=` outside quotes."""
    quote = ""
    for position, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c == "=":
            return text[:position].strip(), "=", text[position + 1 :].strip()
    return text, "", ""


def _dotted(key: str) -> tuple[str, ...] | None:
    """Split a dotted key; parts with dots stand in quotes."""
    parts: list[str] = []
    position = 0
    while position < len(key):
        found = _KEY_PART.match(key, position)
        if found is None:
            return None
        part = found[1]
        if part[0] in "\"'":
            part = str(toml_or_text(part))
        parts.append(part)
        position = found.end()
    return tuple(parts) if parts and not key.endswith(".") else None
