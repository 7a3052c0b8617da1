"""How the demo shows where it stands: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

import click

from gateway.demo.orders import PRICES, Total

#: Lines to a file or a pipe, where bars make no sense, come at most so often.
LINE_EVERY_SECONDS: Final = 1.0


class Screen(Protocol):
    """What the demo tells as it goes."""

    def note(self, text: str) -> None:
        """Say that something has begun or is done."""

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Show that something takes a while."""

    def counts(self, done: Mapping[str, int], total: Mapping[str, int], now: float) -> None:
        """Show how far each part is, at `now` seconds."""


class LineScreen:
    """Plain lines."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._shown = ""

    def note(self, text: str) -> None:
        """Say that something has begun or is done."""
        click.echo(text)

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Say that something takes a while."""
        self.note(text)
        return nullcontext()

    def counts(self, done: Mapping[str, int], total: Mapping[str, int], now: float) -> None:
        """Print one line when something has changed and the last line is old enough."""
        text = "   ".join(f"{name} {count:,}/{total[name]:,}" for name, count in done.items())
        finished = dict(done) == dict(total)
        if text != self._shown and (finished or now - self._last >= LINE_EVERY_SECONDS):
            self._last, self._shown = now, text
            click.echo(f"  {text}")


@contextmanager
def screen() -> Iterator[Screen]:
    """Give the screen that fits standard output."""
    if not sys.stdout.isatty():
        yield LineScreen()
        return
    # 70 ms that a pipe need not wait for.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    with Progress(TextColumn("  {task.description:22}"), BarColumn(), MofNCompleteColumn()) as bars:

        class Bars:
            tasks: dict[str, object] = {}  # noqa: RUF012  (one instance)

            def note(self, text: str) -> None:
                bars.console.print(text, highlight=False)

            @contextmanager
            def busy(self, text: str) -> Iterator[None]:
                task = bars.add_task(text, total=None)
                try:
                    yield
                finally:
                    bars.remove_task(task)

            def counts(self, done: Mapping[str, int], total: Mapping[str, int], now: float) -> None:
                for name, count in done.items():
                    if name not in self.tasks:
                        self.tasks[name] = bars.add_task(name, total=total[name])
                    bars.update(self.tasks[name], completed=count)  # type: ignore[arg-type]

        yield Bars()


def table(totals: Mapping[str, Total]) -> list[str]:
    """Return the lines of the table of totals, products in the order of the price list."""
    names = [*PRICES, *sorted(set(totals) - set(PRICES))]
    rows = [("product", "orders", "pieces", "amount")]
    rows += [(name, *_figures(totals[name])) for name in names if name in totals]
    every = Total(
        orders=sum(total.orders for total in totals.values()),
        pieces=sum(total.pieces for total in totals.values()),
        cents=sum(total.cents for total in totals.values()),
    )
    rows.append(("all", *_figures(every)))
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    return [
        "  " + row[0].ljust(widths[0]) + "".join(f"  {text:>{width}}" for text, width in pairs)
        for row in rows
        if (pairs := list(zip(row[1:], widths[1:], strict=True)))
    ]


def _figures(total: Total) -> tuple[str, str, str]:
    return f"{total.orders:,}", f"{total.pieces:,}", f"{total.cents / 100:,.2f}"
