r"""The form of the Prometheus text exposition: families, samples and labels. Pure.

A family is a `# HELP` and a `# TYPE` line and its samples, `name{label="value"} number` each (in
a value `\`, `"` and line feed are escaped).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from gateway.model.histogram import Histogram

PREFIX: Final = "sluicegate_"

Number = int | float | bool
Sample = tuple[str, Number]
Thing = TypeVar("Thing")


def histogram_lines(histogram: Histogram) -> str:
    """Return the family of a histogram."""
    name = PREFIX + histogram.name
    totals = histogram.totals()
    lines = [f"# HELP {name} {histogram.text}.", f"# TYPE {name} histogram"]
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    lines += [
        f'{name}_bucket{{le="{le}"}} {total}' for le, total in zip(bounds, totals, strict=True)
    ]
    lines += [f"{name}_sum {histogram.sum}", f"{name}_count {totals[-1]}"]
    return "\n".join(lines) + "\n"


def family(
    name: str, kind: str, text: str, samples: Iterable[Sample], *, prefix: str = PREFIX
) -> str:
    """Return a family with its samples, each the text of its labels and a number."""
    full = prefix + name
    lines = [f"# HELP {full} {text}.", f"# TYPE {full} {kind}"]
    # `+ 0` writes True as 1.
    lines += [f"{full}{labels} {value + 0}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def labelled(
    items: Iterable[tuple[str, Thing]], label: str, objects_max: int
) -> list[tuple[str, Thing]]:
    """Return things with the text of their one label, no more than so many."""
    return [(label_text(**{label: name}), thing) for name, thing in islice(items, objects_max)]


def label_text(**values: str) -> str:
    """Return labels as they stand behind a name."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
