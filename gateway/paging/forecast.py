"""What the pages of an address would be if so much more were sent to them: for a commit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.addresses.settings import AddressSettings, PageFullPolicy
from gateway.model.errors import Refusal
from gateway.paging.limits import pages_full
from gateway.paging.paging import MESSAGE_BYTES, Paging, fits
from gateway.queues.queue import Queue


class PageForecast:
    """Figures of pages as they would be."""

    __slots__ = ("_address", "_charge", "_files", "_live", "_most", "_settings")

    def __init__(self, address: str, settings: AddressSettings, paging: Paging | None) -> None:
        """Begin with what is there now; `paging`: None before page mode."""
        self._address = address
        self._settings = settings
        self._charge = paging.charge if paging is not None else 0
        self._files = paging.page_files if paging is not None else 0
        self._most = paging.most_messages if paging is not None else 0
        self._live = (
            {queue_id: backlog.live for queue_id, backlog in paging.backlogs.items()}
            if paging is not None
            else {}
        )

    def step(self, queues: Sequence[Queue], size: int) -> Refusal | None:
        """Go on by one message for these queues; returns the refusal that it would meet."""
        settings = self._settings
        refusal = pages_full(self._address, settings, pages=self._files, most_messages=self._most)
        if refusal is not None:
            return refusal if settings.page_full_policy is PageFullPolicy.FAIL else None
        if queues:
            if not self._charge or not fits(self._charge, size, settings.page_size_bytes):
                self._files += 1
                self._charge = 0
            self._charge += size + MESSAGE_BYTES
            assert self._files, "a message on no page"
        for queue in queues:
            live = self._live[queue.queue_id] = self._live.get(queue.queue_id, 0) + 1
            self._most = max(self._most, live)
        return None
