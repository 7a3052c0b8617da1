"""Answers of the calls about streams: a stream, a loss, rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.management.http import Response
from gateway.streams.plan import Loss, Reason
from gateway.streams.tap import Tap

ARROW: Final = "application/vnd.apache.arrow.stream"
#: What is written to the transport in one piece: smaller ones cost throughput (measured).
CHUNK_BYTES: Final = 1 << 20


def arrow_response(pieces: list[bytes]) -> Response:
    """Return the answer of a read, sent as its reader takes it."""
    length = sum(map(len, pieces))
    return Response(status=200, body=_chunks(pieces), content_type=ARROW, length=length)


def _chunks(pieces: list[bytes]) -> Iterator[bytes]:
    """Yield the pieces of an answer, the small ones joined, each let go when it is sent."""
    waiting: list[bytes] = []
    size = 0
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        if waiting and size + len(piece) > CHUNK_BYTES:
            yield b"".join(waiting) if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    if waiting:
        yield b"".join(waiting)


def shown_loss(stream: str, loss: Loss) -> dict[str, object]:
    """Return a loss as answers have it, with its sentence."""
    what = {
        Reason.EXPIRED: "retention dropped them at its byte limit",
        Reason.RECREATED: "the stream was deleted and made again; its new life begins at offset 0",
        Reason.TRUNCATED: "the stream ends before them",
    }[loss.reason]
    span = f"offsets {loss.first} to {loss.end - 1}" if loss.end > loss.first else "all"
    return {
        "stream": stream,
        "epoch": loss.epoch,
        "first": loss.first,
        "end": loss.end,
        "reason": loss.reason.value,
        "text": f"{stream} (life {loss.epoch}): {span} cannot be read: {what}",
    }


def shown_stream(tap: Tap) -> dict[str, object]:
    """Return a stream as operators see it."""
    stream, place = tap.stream, tap.place
    subscriptions = [
        {
            "name": known.name,
            "floor": known.floor,
            "lag": max(place.head - known.floor, 0),
            "fence": known.fence,
            "role": known.role,
            "createdMs": known.created_ms,
            "seenMs": known.seen_ms,
            "selector": known.selector,
        }
        for _, known in sorted(tap.subscriptions.items())
    ]
    return {
        "name": stream.name,
        "address": stream.address,
        "epoch": place.epoch,
        "first": place.first,
        "head": place.head,
        "next": stream.next_offset,
        "bytes": sum(s.size_bytes for s in tap.log.segments()) + stream.tail_bytes,
        "lostMessages": stream.lost_messages,
        "pins": len(tap.pins),
        "archived": tap.archived(),
        "archiveLags": tap.lagging,
        "consumers": tap.replays,
        "skippedMessages": stream.skipped_messages,
        "subscriptions": subscriptions,
    }
