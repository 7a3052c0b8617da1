"""The tables of gateway/spark/README.md, from the options and columns of the Spark source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark_sluicegate.meanings import COLUMN_MEANINGS, OPTION_MEANINGS
from pyspark_sluicegate.options import COLUMNS, OPTIONS
from pyspark_sluicegate.sink_options import SINK_OPTIONS
from tests.reference.tables import table

PAGE = Path(__file__).resolve().parents[2] / "gateway" / "spark" / "README.md"


def every_option() -> dict[str, tuple[str, Any]]:
    """Return the options of the source, then those of the sink alone."""
    return {**OPTIONS, **SINK_OPTIONS}


def options() -> str:
    """Return the table of options. Raises KeyError where one has no meaning."""
    rows = []
    for name, (default, _) in every_option().items():
        used_by, meaning = OPTION_MEANINGS[name]
        rows.append([f"`{name}`", used_by, f"`{default}`" if default else "", meaning])
    return table(["option", "for", "default", "meaning"], rows)


def columns() -> str:
    """Return the table of columns. Raises KeyError where one has no meaning."""
    rows = [
        [f"`{name}`", " or ".join(f"`{kind}`" for kind in kinds), COLUMN_MEANINGS[name]]
        for name, kinds in COLUMNS.items()
    ]
    return table(["column", "type", "meaning"], rows)


def render(page: str) -> str:
    """Return the page with its tables made again. Raises ValueError where one has no place."""
    return _put(_put(page, "options", options()), "columns", columns())


def _put(page: str, name: str, made: str) -> str:
    begin, end = f"<!-- {name}: written by `make reference` -->\n", f"<!-- end of {name} -->\n"
    place = f"(?<={re.escape(begin)}).*?(?={re.escape(end)})"
    page, count = re.subn(place, lambda _: made, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for the table of {name}")
    return page
