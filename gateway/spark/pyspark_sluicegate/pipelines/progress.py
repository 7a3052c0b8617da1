"""How far a pipeline is: for people, for programs, for Prometheus."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

_BAR: Final = 30


@dataclass(slots=True, kw_only=True)
class Totals:
    """What a pipeline has done since it was started.

    Attributes:
        places: stream as `gateway/stream` -> the offset that is reached.
        heads: as before -> the offset behind the last message.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    skipped: int = 0
    lost: int = 0
    places: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)

    def lags(self) -> dict[str, int]:
        """Return how many offsets each stream is behind its head."""
        known = self.heads.items()
        return {name: max(head - self.places.get(name, 0), 0) for name, head in known}


class Progress:
    """Tells of the totals after each batch."""

    def __init__(
        self, mode: str, metrics: str, seconds: Callable[[], float], out: TextIO | None = None
    ) -> None:
        """`mode` is auto, bar, json or none; `seconds` counts on; `metrics` is a path or empty."""
        self._out = out or sys.stderr
        self._mode = mode
        if mode == "auto":
            self._mode = "bar" if self._out.isatty() else "none"
        self._metrics = metrics
        self._seconds = seconds
        self._started = seconds()

    def tell(self, totals: Totals) -> None:
        """Show what was done."""
        if self._metrics:
            _replace(Path(self._metrics), metrics_text(totals))
        if self._mode == "json":
            told = {
                "batches": totals.batches, "rows": totals.rows, "bytes": totals.bytes,
                "files": totals.files, "skipped": totals.skipped, "lost": totals.lost,
                "lag": totals.lags(), "seconds": round(self._seconds() - self._started, 3),
            }  # fmt: skip
            self._out.write(json.dumps(told, sort_keys=True) + "\n")
            self._out.flush()
        elif self._mode == "bar":
            self._out.write("\r\x1b[K" + self.line(totals))
            self._out.flush()

    def line(self, totals: Totals) -> str:
        """Return the bar with its figures."""
        whole = sum(totals.heads.values())
        left = sum(totals.lags().values())
        share = 1.0 if whole <= 0 else max(0.0, 1 - left / whole)
        done = int(share * _BAR)
        passed = max(self._seconds() - self._started, 0.001)
        return (
            f"[{'#' * done}{'.' * (_BAR - done)}] {share:6.1%}  {totals.rows:,} rows  "
            f"{totals.bytes / 1e6:,.1f} MB in {totals.files:,} files  "
            f"{totals.rows / passed:,.0f} rows/s  {left:,} behind"
        )

    def end(self) -> None:
        """Leave the line of the bar."""
        if self._mode == "bar":
            self._out.write("\n")


def metrics_text(totals: Totals) -> str:
    """Return the totals in Prometheus' text form."""
    counters = {
        "batches": totals.batches, "rows": totals.rows, "bytes": totals.bytes,
        "files": totals.files, "skipped_ranges": totals.skipped, "lost_offsets": totals.lost,
    }  # fmt: skip
    lines = []
    for name, value in counters.items():
        lines += [
            f"# TYPE sluicegate_archive_{name}_total counter",
            f"sluicegate_archive_{name}_total {value}",
        ]
    lines.append("# TYPE sluicegate_archive_lag_offsets gauge")
    lines += [
        f'sluicegate_archive_lag_offsets{{stream="{_label(name)}"}} {lag}'
        for name, lag in sorted(totals.lags().items())
    ]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _replace(path: Path, text: str) -> None:
    """Write whole: who reads meanwhile has the old or the new."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def heads_of(name: str, items: list[Mapping[str, object]]) -> dict[str, int]:
    """Return the heads that a gateway called `name` tells, by `gateway/stream`."""
    return {f"{name}/{one['name']}": int(str(one["head"])) for one in items}
