"""Offsets as Spark keeps them, and ranges cut into tasks.

An offset is `{"q": {stream: [epoch, next offset]}, "s": subscription, "v": 1}`, with the query's
selector as `"f"` where it has one. Spark compares offsets as text: the keys are always sorted, and
nothing in it changes by itself. With several gateways in `url` a stream's key ends in `@host:port`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_sluicegate.options import Options, SluicegateError

#: Stream -> [epoch, next offset].
Places = dict[str, list[int]]


def make_offset(subscription: str, places: Places, selector: str = "") -> dict[str, Any]:
    """Return an offset in its one text form: keys sorted, nothing that changes by itself."""
    filtered = {"f": selector} if selector else {}
    own = {"q": {key: list(places[key]) for key in sorted(places)}, "s": subscription, "v": 1}
    return filtered | own


def read_offset(offset: Mapping[str, Any], subscription: str, selector: str = "") -> Places:
    """Return the places of an offset; refuses a newer form, a foreign one and another query's."""
    form = offset.get("v")
    if isinstance(form, int) and form > 1:
        raise SluicegateError(
            f"The checkpoint has offsets of form {form}; this version of pyspark-sluicegate knows "
            "form 1. Use the version that wrote it, or a later one."
        )
    if form != 1 or not isinstance(offset.get("q"), Mapping):
        shown = json.dumps(offset)[:80]
        raise SluicegateError(
            f"The checkpoint was not written by this source: it has the offset {shown}. Each query "
            "needs a checkpoint location of its own."
        )
    if offset.get("s") != subscription:
        raise SluicegateError(
            f"The checkpoint belongs to the subscription {offset.get('s')!r}, the query names "
            f"{subscription!r}. Use the same name, or a new checkpoint location."
        )
    if offset.get("f", "") != selector:
        had, wanted = (repr(text) if text else "none" for text in (offset.get("f", ""), selector))
        raise SluicegateError(
            f"The checkpoint was written with the selector {had}, the query names {wanted}. A "
            "selector is fixed for the life of a checkpoint: use the same one, or a new "
            "subscription and a new checkpoint location."
        )
    return {key: [int(epoch), int(place)] for key, (epoch, place) in offset["q"].items()}


@dataclass(frozen=True)
class Span:
    """Offsets [start, end) of one life of a stream, on the gateway at `url`."""

    url: str
    stream: str
    epoch: int
    start: int
    end: int
    size: int


class Partition(InputPartition):
    """The spans that one task reads, all of one gateway."""

    def __init__(self, spans: Sequence[Span], pin: str = "") -> None:
        self.spans = list(spans)
        self.pin = pin


def cut_and_pack(spans: Sequence[Span], options: Options, pin: str = "") -> list[Partition]:
    """Cut spans to about `targetPartitionBytes`, pack small pieces, keep within min and max."""
    total = sum(span.size for span in spans)
    target = min(options["targetPartitionBytes"], -(-total // options["minPartitions"]))
    target = max(target, -(-total // options["maxPartitions"]), 1)
    pieces: list[Span] = []
    for span in spans:
        rows = span.end - span.start
        count = min(rows, max(1, -(-span.size // target)))
        cuts = [span.start + rows * i // count for i in range(count + 1)]
        size = span.size // count if count else 0
        pieces += [replace(span, start=a, end=b, size=size) for a, b in pairwise(cuts)]
    bins: list[list[Span]] = []
    for piece in sorted(pieces, key=lambda p: (-p.size, p.url, p.stream, p.start)):
        mine = [one for one in bins if one[0].url == piece.url]
        fits = [one for one in mine if sum(p.size for p in one) + piece.size <= target]
        if fits:
            fits[0].append(piece)
        elif mine and len(bins) >= options["maxPartitions"]:
            min(mine, key=lambda one: sum(p.size for p in one)).append(piece)
        else:
            bins.append([piece])
    return [Partition(sorted(one, key=lambda p: (p.stream, p.start)), pin) for one in bins]
