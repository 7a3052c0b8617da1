"""Dead letters counted by group, for people and programs; and a stream cut into ranges. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_sluicegate.pipelines.progress import share_of

#: What a group has beside its names.
FIGURES: Final = ("messages", "bytes")
#: How a group is shown whose name is empty.
_NONE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One life of a stream at one gateway, as it stands when the program begins."""

    gateway: str
    identity: str
    name: str
    epoch: int
    first: int
    head: int

    @property
    def key(self) -> str:
        """Its name for people and for Prometheus."""
        return f"{self.gateway}/{self.name}"


def ranges(first: int, head: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets [first, head) in ranges [start, end) that end at multiples of `size`.

    So the same offsets lie in the same ranges, wherever a run begins.
    """
    while first < head:
        end = min((first // size + 1) * size, head)
        yield first, end
        first = end


class Counts:
    """Messages and bytes by group."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._found: dict[tuple[str, ...], dict[str, int]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the counts of a group, which may be there from another range."""
        key = tuple(str(row[name] or "") for name in self.names)
        known = self._found.setdefault(key, dict.fromkeys(FIGURES, 0))
        for name in FIGURES:
            known[name] += row[name] or 0

    def rows(self) -> list[dict[str, Any]]:
        """Return the groups, most messages first."""
        ordered = sorted(self._found.items(), key=lambda one: (-one[1]["messages"], one[0]))
        return [{**dict(zip(self.names, key, strict=True)), **found} for key, found in ordered]


def as_json(counts: Counts) -> str:
    """Return one line of JSON for each group."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in counts.rows())


def as_table(counts: Counts) -> str:
    """Return the groups as a table with its sums."""
    rows = counts.rows()
    if not rows:
        return "No dead letters.\n"
    heads = [name.replace("_", " ") for name in counts.names]
    cells = [[*heads, *FIGURES]]
    cells += [
        [*(_shown(row[name]) for name in counts.names), *(f"{row[name]:,}" for name in FIGURES)]
        for row in rows
    ]
    sums = [f"{sum(row[name] for row in rows):,}" for name in FIGURES]
    cells.append(["all", *[""] * (len(counts.names) - 1), *sums])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join(_line(line, widths, len(counts.names)) for line in cells)


def _shown(text: str) -> str:
    """Return a name as a terminal may show it: it was written by whoever sent the message."""
    plain = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return plain or _NONE


def _line(cells: Sequence[str], widths: Sequence[int], names: int) -> str:
    padded = [
        text.ljust(width) if i < names else text.rjust(width)
        for i, (text, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip() + "\n"


@dataclass(slots=True, kw_only=True)
class LetterTotals:
    """What `dead-letters` has done.

    Attributes:
        letters: dead letters that were chosen.
        homeless: those of them that have no origin to go back to.
        places, heads: as in `progress.Totals`, counted from the stream's first offset.
    """

    batches: int = 0
    letters: int = 0
    sent: int = 0
    homeless: int = 0
    places: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)

    def counters(self) -> dict[str, int]:
        """Return what only grows, by name."""
        return {
            "batches": self.batches,
            "letters": self.letters,
            "sent": self.sent,
            "homeless": self.homeless,
        }

    def gauges(self) -> dict[str, int]:
        """Return nothing: the lag is all that falls."""
        return {}

    def lags(self) -> dict[str, int]:
        """Return how many offsets are not looked at yet."""
        return {n: max(head - self.places.get(n, 0), 0) for n, head in self.heads.items()}

    def share(self) -> float:
        """Return how much is looked at, 0 to 1."""
        return share_of(self.heads, self.lags())

    def summary(self, seconds: float) -> str:
        """Return the figures for people."""
        sent = f"{self.sent:,} sent  " if self.sent else ""
        return f"{self.letters:,} dead letters  {sent}{seconds:,.0f} s"
