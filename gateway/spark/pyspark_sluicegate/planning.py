"""What a gateway has planned for a batch, held against the batch that the checkpoint has.

Spark counts a batch as read once its tasks are done, so ranges that a plan left out would be lost
without a word: whatever answers, a plan covers all that it was asked for, or says what is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark_sluicegate.offsets import Places
from pyspark_sluicegate.options import SluicegateError

#: The reason of a loss that is found here, beside those that gateways tell.
GONE: Final = "stream_gone"


def unplanned(
    asked: Mapping[str, Places], reply: Mapping[str, Any], url: str
) -> list[dict[str, Any]]:
    """Return as losses the ranges of streams that are no longer there: of them nothing is said.

    `asked` has the places `start` and `end` of the batch. Raises SluicegateError where the plan of
    a stream that is there is not the range that was asked for.
    """
    told = {loss.get("stream") for loss in reply["losses"]}
    gone: list[dict[str, Any]] = []
    for stream, (epoch, end) in asked["end"].items():
        begun = asked["start"].get(stream)
        if stream in told or begun == [epoch, end]:
            continue
        if stream not in reply["start"] or stream not in reply["end"]:
            gone.append(_gone(stream, epoch, begun[1] if begun is not None else 0, end))
            continue
        start, last = list(reply["start"][stream]), list(reply["end"][stream])
        if last != [epoch, end] or (begun is not None and start != begun):
            raise SluicegateError(
                f"{url} has planned {start} to {last} of {stream!r}, and the batch of the "
                f"checkpoint is {begun} to {[epoch, end]} ([epoch, offset]). Nothing of it is "
                "read: is it the gateway, and the data directory, that the query began with?"
            )
    return gone


def _gone(stream: str, epoch: int, first: int, end: int) -> dict[str, Any]:
    return {
        "stream": stream,
        "epoch": epoch,
        "first": first,
        "end": end,
        "reason": GONE,
        "text": f"{stream} (life {epoch}): offsets {first} to {end - 1} cannot be read: the "
        "gateway has no such stream any more",
    }
