"""Whether the last batch needs an empty one behind it.

Rot in the last batch of all looks like a torn tail, which a start cuts off without a word. With one
more batch behind it, it is told apart. So the journal writes one when it has come to rest. Pure.
"""

from __future__ import annotations

from storage.batch import Batch


class Covering:
    """See the module text."""

    __slots__ = ("_covered", "_seen")

    def __init__(self, synced: int, *, suspect: bool) -> None:
        """Begin behind what was found; `suspect`: no mark of a clean stop stands behind it."""
        self._seen = synced  # the last ticket on disk when somebody looked
        self._covered = 0 if suspect else synced  # a batch that would not be missed

    def at_rest(self, synced: int) -> bool:
        """Whether nothing was synced since the last call."""
        seen, self._seen = self._seen, synced
        assert seen <= synced, "a synced batch is so no more"
        return seen == synced

    def missing(self, synced: int) -> bool:
        """Whether the batch `synced`, the last one, holds something that rot could take."""
        return self._covered != synced

    def handed_over(self, batch: Batch) -> None:
        """Note a batch that the writer gets: an empty one would not be missed."""
        records = batch.adds or batch.copies or batch.removes or batch.counts or batch.postponed
        if not (records or batch.pages or batch.notes):
            assert batch.number > self._covered, "an older batch covers nothing"
            self._covered = batch.number
