"""How far a pipeline is: for people, for programs, for Prometheus."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TextIO

_BAR: Final = 30


class Account(Protocol):
    """What a pipeline has done since it was started, as it is told."""

    def counters(self) -> Mapping[str, int]:
        """Return what only grows, by name."""

    def gauges(self) -> Mapping[str, int]:
        """Return what also falls, by name."""

    def lags(self) -> Mapping[str, int]:
        """Return how many offsets each stream is behind its head."""

    def share(self) -> float:
        """Return how much of what is there is done, 0 to 1."""

    def summary(self, seconds: float) -> str:
        """Return the figures for people, after so many seconds."""


def share_of(heads: Mapping[str, int], lags: Mapping[str, int]) -> float:
    """Return how much of streams with these heads is done, 0 to 1."""
    whole = sum(heads.values())
    return 1.0 if whole <= 0 else max(0.0, 1 - sum(lags.values()) / whole)


@dataclass(slots=True, kw_only=True)
class Totals:
    """What the archive has done since it was started.

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

    def counters(self) -> dict[str, int]:
        """Return what only grows, by name."""
        return {
            "batches": self.batches, "rows": self.rows, "bytes": self.bytes,
            "files": self.files, "skipped": self.skipped, "lost": self.lost,
        }  # fmt: skip

    def gauges(self) -> dict[str, int]:
        """Return nothing: the lag is all that falls."""
        return {}

    def share(self) -> float:
        """Return how much of what is there is archived, 0 to 1."""
        return share_of(self.heads, self.lags())

    def summary(self, seconds: float) -> str:
        """Return the figures for people."""
        return (
            f"{self.rows:,} rows  {self.bytes / 1e6:,.1f} MB in {self.files:,} files  "
            f"{self.rows / seconds:,.0f} rows/s  {sum(self.lags().values()):,} behind"
        )


class Progress:
    """Tells of the totals after each batch."""

    def __init__(
        self,
        mode: str,
        metrics: str,
        seconds: Callable[[], float],
        out: TextIO | None = None,
        *,
        pipeline: str = "archive",
    ) -> None:
        """`mode` is auto, bar, json or none; `seconds` counts on; `metrics` is a path or empty.

        Auto is a bar on a terminal, and one line at the end anywhere else.
        """
        self._out = out or sys.stderr
        self._mode = mode
        if mode == "auto":
            self._mode = "bar" if self._out.isatty() else "last"
        self._last = ""
        self._metrics = metrics
        self._seconds = seconds
        self._started = seconds()
        self._pipeline = pipeline

    def tell(self, totals: Account) -> None:
        """Show what was done."""
        if self._metrics:
            _replace(Path(self._metrics), metrics_text(totals, self._pipeline))
        if self._mode == "json":
            told = {
                **totals.counters(), **totals.gauges(), "lag": totals.lags(),
                "seconds": round(self._seconds() - self._started, 3),
            }  # fmt: skip
            self._out.write(json.dumps(told, sort_keys=True) + "\n")
            self._out.flush()
        elif self._mode == "bar":
            self._out.write("\r\x1b[K" + self.line(totals))
            self._out.flush()
        elif self._mode == "last":
            passed = max(self._seconds() - self._started, 0.001)
            self._last = f"{self._pipeline}: {totals.summary(passed)}\n"

    def line(self, totals: Account) -> str:
        """Return the bar with its figures."""
        share = totals.share()
        done = int(share * _BAR + 1e-9)
        passed = max(self._seconds() - self._started, 0.001)
        bar = f"[{'#' * done}{'.' * (_BAR - done)}] {share:6.1%}"
        return f"{bar}  {totals.summary(passed)}"

    def end(self) -> None:
        """Leave the line of the bar, or say in one what was done."""
        self._out.write("\n" if self._mode == "bar" else self._last)
        self._out.flush()


#: What a counter is called for Prometheus, where it has to say more than for people.
_METRICS: Final = {"skipped": "skipped_ranges", "lost": "lost_offsets"}


def metrics_text(totals: Account, pipeline: str = "archive") -> str:
    """Return the totals in Prometheus' text form."""
    prefix = f"sluicegate_{pipeline.replace('-', '_')}"
    lines = []
    for name, value in totals.counters().items():
        metric = f"{prefix}_{_METRICS.get(name, name)}_total"
        lines += [f"# TYPE {metric} counter", f"{metric} {value}"]
    for name, value in totals.gauges().items():
        lines += [f"# TYPE {prefix}_{name} gauge", f"{prefix}_{name} {value}"]
    lines.append(f"# TYPE {prefix}_lag_offsets gauge")
    lines += [
        f'{prefix}_lag_offsets{{stream="{_label(name)}"}} {lag}'
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
