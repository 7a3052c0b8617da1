"""What is wrong with a configuration, all at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: A place in the tree of keys: names, and indexes into arrays.
Path = tuple[str | int, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


def show_path(path: Path) -> str:
    """Return the path as one would write it: `address-settings."a.#".max-size-bytes`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
            continue
        word = part if _BARE.match(part) else '"' + part.replace('"', '\\"') + '"'
        shown += f".{word}" if shown else word
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake.

    Attributes:
        where: file and line, environment variable or option; empty when nothing was written.
        path: the key, shown; empty when the mistake is not about one key.
        text: what is wrong and what to do.
    """

    where: str
    path: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.path, self.text) if part)


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
