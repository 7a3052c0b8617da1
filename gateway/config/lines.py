"""Where each key of a TOML text stands. Pure.

`tomllib` tells no positions, so this scans the statements of a text that `tomllib` has already
accepted: it only needs to know where a statement begins and ends (strings, comments, brackets) and
what its key is. Keys inside an inline table have the line of the statement they are in.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

from gateway.config.errors import Path

_PART: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_QUOTES: Final = ('"""', "'''", '"', "'")


def key_lines(source: str) -> dict[Path, int]:
    """Return the line (from 1) of each table header and key of `source`, which is valid TOML."""
    lines: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    for start, line in _statements(source):
        if source.startswith("[", start):
            double = source.startswith("[[", start)
            keys = _keys(source, start + (2 if double else 1))
            table = _resolve(keys, arrays, double=double)
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], line)
        else:
            path = table
            for key in _keys(source, start):
                path = (*path, key)
                lines.setdefault(path, line)
    return lines


def _resolve(keys: tuple[str, ...], arrays: dict[Path, int], *, double: bool) -> Path:
    """Turn a header into a path: each array of tables on the way means its last element."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if double and position == len(keys) - 1:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def _keys(source: str, position: int) -> tuple[str, ...]:
    """Return the parts of the dotted key at `position`."""
    parts: list[str] = []
    while (found := _PART.match(source, position)) is not None:
        part = found[1]
        if part[0] in "\"'":
            part = str(tomllib.loads(f"k={part}")["k"])
        parts.append(part)
        position = found.end()
        if not source.startswith(".", position):
            break
        position += 1
    return tuple(parts)


def _statements(source: str) -> list[tuple[int, int]]:
    """Return (offset, line) of each statement."""
    found: list[tuple[int, int]] = []
    position, line = 0, 1
    while position < len(source):
        if source[position] == "#":
            position = _line_end(source, position)
        elif source[position].isspace():
            line += source[position] == "\n"
            position += 1
        else:
            found.append((position, line))
            end = _statement_end(source, position)
            line += source.count("\n", position, end)
            position = end
    return found


def _statement_end(source: str, position: int) -> int:
    """Return the offset of the newline (or the end of the text) that ends the statement."""
    depth = 0
    while position < len(source):
        c = source[position]
        if c in "\"'":
            position = _string_end(source, position)
            continue
        if c == "#":
            position = _line_end(source, position)
            continue
        if c == "\n" and depth == 0:
            return position
        depth += (c in "[{") - (c in "]}")
        position += 1
    return position


def _string_end(source: str, position: int) -> int:
    quote = next(q for q in _QUOTES if source.startswith(q, position))
    if quote in ('"', "'") and source.startswith(quote * 2, position):
        return position + 2
    position += len(quote)
    while not source.startswith(quote, position):
        position += 2 if quote[0] == '"' and source[position] == "\\" else 1
        if position >= len(source):
            return len(source)
    position += len(quote)
    # A multi-line string may end in up to two quotes of its own before the closing three.
    while len(quote) == 3 and source.startswith(quote[0], position):
        position += 1
    return position


def _line_end(source: str, position: int) -> int:
    end = source.find("\n", position)
    return len(source) if end < 0 else end
