"""How far a query is behind, from what Spark reports of it.

    for stream, messages in lag(query.lastProgress).items():
        print(stream, messages)

Spark keeps the source's offsets in a progress as JSON: where the batch ended, and what the gateways
had when it was planned. A stream's lag is the difference, in messages that are there to be read;
those that a selector leaves out are among them until they are read over. Streams have the names
that they have in the checkpoint; with several gateways in `url` they end in `@host:port`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lag(progress: Any) -> dict[str, int]:  # noqa: ANN401 - Spark's class, or its JSON as a dict
    """Return stream -> messages that were there and not in this batch nor in one before.

    Args:
        progress: a `StreamingQueryProgress`, or the dictionary of one; None for a query that has
            not reported yet.

    Sources of other formats are left out.
    """
    behind: dict[str, int] = {}
    for source in _get(progress, "sources") or ():
        ends, heads = (_places(_get(source, name)) for name in ("endOffset", "latestOffset"))
        for stream, (epoch, head) in heads.items():
            known, place = ends.get(stream, (epoch, 0))
            read = place if known == epoch else 0
            behind[stream] = behind.get(stream, 0) + max(head - read, 0)
    return behind


def total(progress: Any) -> int:  # noqa: ANN401 - as `lag`
    """Return the lag of all streams together, in messages."""
    return sum(lag(progress).values())


def _get(holder: Any, name: str) -> Any:  # noqa: ANN401 - see `lag`
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _places(offset: object) -> dict[str, tuple[int, int]]:
    """Return the places of an offset of ours, which is text or what was parsed from it."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping) or offset.get("v") != 1 or "s" not in offset:
        return {}
    return {stream: (int(epoch), int(place)) for stream, (epoch, place) in offset["q"].items()}
