"""A request for columns judged: names, header form and body form that are possible."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.decoding.view import BODY_FORMATS, HEADER_MODES, TYPES, View, columns_of
from gateway.model.errors import Code, RefusedError


def make_view(names: Sequence[str], header_mode: str, body_format: str) -> View:
    """Check a request for columns. Raises RefusedError (bad-value) naming what is impossible."""
    if header_mode not in HEADER_MODES:
        raise _impossible("headers", header_mode, HEADER_MODES)
    if body_format not in BODY_FORMATS:
        raise _impossible("body", body_format, BODY_FORMATS)
    for name in names:
        if name not in TYPES or names.count(name) > 1:
            raise _impossible("columns", name, sorted(TYPES))
    return View(
        names=tuple(names),
        schema=columns_of(names, header_mode, body_format),
        header_mode=header_mode,
        body_format=body_format,
    )


def _impossible(field: str, value: str, possible: Sequence[str]) -> RefusedError:
    return RefusedError.of(
        Code.BAD_VALUE,
        f"{field!r} names {str(value)[:60]!r}; possible, each once: {', '.join(possible)}.",
    )
