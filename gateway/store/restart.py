"""What a start found, given back to the core: pages, and the tails of streams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import structlog

from gateway.broker import Gateway
from gateway.model.message import MAYBE_SEEN, Message
from gateway.store.persistence import Restored
from gateway.streams.stream import Accepted

_log = structlog.get_logger()


def restore_pages(broker: Gateway, restored: Restored) -> None:
    """Go on with the pages that were found."""
    for pages in restored.pages:
        for page in pages.pages:
            if page.damage:
                _log.error("page.damaged", address=pages.definition.address, reason=page.damage)
    broker.operations.pager.on_unreadable = _tell_unreadable
    broker.operations.pager.restore(restored.pages)


def restore_routing(broker: Gateway, restored: Restored) -> None:
    """Take back diverts and duplicate ids."""
    for divert in restored.diverts:
        broker.branches.restore(divert)
    for definition in restored.ids:
        number = definition.ids_id
        broker.routing.duplicates.restore(
            definition,
            [(m.seq, m.body) for m in restored.messages.get(number, ())],
            restored.highest.get(number, 0),
        )
    broker.routing.duplicates.trim(broker.settings.for_address)
    broker.routing.retro.start()


def _tell_unreadable(queue: str, count: int, why: str) -> None:
    _log.error("page.messages_lost", queue=queue, count=count, reason=why)


def stream_runs(messages: Sequence[Message], accepted: Sequence[int]) -> list[Accepted]:
    """Join a stream's recovered messages into runs: neighbours that were accepted together."""
    places = zip(messages, accepted, range(len(messages)), strict=True)
    runs = []
    for (now_ms, _), group in groupby(places, key=lambda p: (p[1], p[0].seq - p[2])):
        run = [message for message, _, _ in group]
        bodies = [message.body for message in run]
        flags = [message.flags & ~MAYBE_SEEN for message in run]
        runs.append(Accepted(run[0].seq, bodies, flags, now_ms, sum(map(len, bodies))))
    return runs
