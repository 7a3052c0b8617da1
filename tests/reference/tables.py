"""Markdown tables, and the sentences of docstrings."""

from __future__ import annotations

import inspect
import re

_ATTRIBUTE = re.compile(r"^ {4}([a-z_]+): (.+(?:\n {5,}.+)*)", re.MULTILINE)


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table; a cell may hold `|`."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def attributes_of(documented: type) -> dict[str, str]:
    """Return attribute -> what the `Attributes:` of a class say of it."""
    _, _, told = inspect.getdoc(documented).partition("Attributes:\n")
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(told)}


def sentence(text: str) -> str:
    """Return a text with a capital and one full stop."""
    text = " ".join(text.split())
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
