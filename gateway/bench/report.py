"""What the bench found, as a table and as JSON; medians over rounds, ratios to a peer.

Pure but for asking the machine its name; rich is imported only for a terminal.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Final

import click

from gateway.bench.cpu import processor
from gateway.bench.rows import Row
from gateway.bench.run import Measured

_NONE: Final = "-"


@dataclass(slots=True)
class Line:
    """One row with all its rounds, ours and the peer's."""

    row: Row
    count: int
    ours: list[Measured] = field(default_factory=list)
    peer: list[Measured] = field(default_factory=list)

    def ratio(self) -> float | None:
        """How many times the peer's rate ours is, by medians."""
        if not self.ours or not self.peer:
            return None
        return middle(self.ours).rate / middle(self.peer).rate


def middle(rounds: Sequence[Measured]) -> Measured:
    """Return the median of each figure over the rounds."""

    def of(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return median(known) if known else None

    return Measured(
        rate=median(one.rate for one in rounds),
        p50=of(one.p50 for one in rounds),
        p99=of(one.p99 for one in rounds),
        worst=of(one.worst for one in rounds),
        cpu=of(one.cpu for one in rounds),
    )


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    return {
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def as_json(lines: Sequence[Line], about: dict[str, str], size: int) -> dict[str, object]:
    """Return everything measured, each round of it."""
    return {
        "machine": about,
        "bodyBytes": size,
        "rows": [
            {
                "key": line.row.key,
                "title": line.row.title,
                "count": line.count,
                "median": _figures(line.ours),
                "rounds": [asdict(one) for one in line.ours],
                "peer": {
                    "median": _figures(line.peer),
                    "rounds": [asdict(one) for one in line.peer],
                },
                "ratio": line.ratio(),
            }
            for line in lines
        ],
    }


def _figures(rounds: Sequence[Measured]) -> dict[str, float | None] | None:
    return asdict(middle(rounds)) if rounds else None


def columns(*, peer: str | None) -> list[str]:
    """Return the heads of the table."""
    heads = ["row", "msg/s", "p50 ms", "p99 ms", "CPU us/msg"]
    if peer is not None:
        heads += [f"{peer} msg/s", "p50 ms", "p99 ms", "CPU us/msg", "ratio"]
    return heads


def cells(line: Line, *, peer: str | None) -> list[str]:
    """Return one line of the table."""
    title = f"{line.row.protocol.upper()} {line.row.title}"
    found = [title, *_cells(line.ours)]
    if peer is not None:
        ratio = line.ratio()
        found += [*_cells(line.peer), _NONE if ratio is None else f"{ratio:.2f}"]
    return found


def _cells(rounds: Sequence[Measured]) -> list[str]:
    if not rounds:
        return [_NONE] * 4
    one = middle(rounds)
    return [f"{one.rate:,.0f}", _short(one.p50), _short(one.p99), _short(one.cpu)]


def _short(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def show(lines: Sequence[Line], *, peer: str | None, terminal: bool) -> None:
    """Print the table: framed on a terminal, else columns padded with blanks."""
    heads = columns(peer=peer)
    rows = [cells(line, peer=peer) for line in lines]
    if terminal:
        from rich.console import Console  # noqa: PLC0415  (70 ms that a pipe need not wait)
        from rich.table import Table  # noqa: PLC0415

        console = Console()
        # The frame takes three characters a column, and what does not fit would be cut to dots.
        needed = max(map(len, plain(heads, rows))) + len(heads) + 2
        if peer is not None and needed > console.width:
            for text in stacked(lines, peer=peer):
                click.echo(text)
            return
        table = Table(*[heads[0]])
        for head in heads[1:]:
            table.add_column(head, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    for text in plain(heads, rows):
        click.echo(text)


def plain(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns: the first to the left, numbers to the right."""
    table = [heads, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(heads))]
    return [
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def stacked(lines: Sequence[Line], *, peer: str) -> list[str]:
    """Return three lines for each row, for terminals that the table does not fit."""
    names = ("gateway", peer)
    wide = max(map(len, names))
    found = []
    for line in lines:
        ratio = line.ratio()
        times = "" if ratio is None else f"  ratio {ratio:.2f}"
        found.append(f"{line.row.protocol.upper()} {line.row.title}{times}")
        for name, rounds in zip(names, (line.ours, line.peer), strict=True):
            rate, p50, p99, cpu = _cells(rounds)
            found.append(
                f"  {name:<{wide}} {rate:>10} msg/s  p50 {p50:>5} p99 {p99:>5} ms"
                f"  CPU {cpu:>5} us/msg"
            )
    return found
