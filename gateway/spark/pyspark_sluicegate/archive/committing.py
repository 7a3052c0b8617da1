"""One batch of the archive, one commit: what the driver does with the facts of the files.

    facts of a batch ──> judged against the table's ends ──> one commit with their new ends
                              └── skipped, trimmed, refused

A batch that comes again (its driver died between the commit and Spark's own note) finds its ends
reached and adds nothing. Where another writer comes between, the commit fails as a whole and the
table is looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark_sluicegate.archive.layout import FileFacts, Key, app_id
from pyspark_sluicegate.archive.ledger import check_alone, decide
from pyspark_sluicegate.archive.rewriting import delete_files, rewrite
from pyspark_sluicegate.archive.store import Location, StoreError, check_conditional
from pyspark_sluicegate.archive.table import ArchiveTable, TakenError, open_table
from pyspark_sluicegate.options import SluicegateError

#: Another writer of other streams may come between as often.
_TRIES: Final = 20
Made = TypeVar("Made")

_log = logging.getLogger("pyspark_sluicegate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of a batch.

    Attributes:
        files: that were added.
        skipped: ranges that the table had already.
        lost: offsets that were gone, and are noted as such.
        ends: where each stream of the batch ends now.
    """

    files: int
    rows: int
    size: int
    skipped: int
    lost: int
    ends: Mapping[Key, int]


class Committer:
    """Commits the batches of one query to one table."""

    def __init__(
        self,
        place: Location,
        now_ms: Callable[[], int],
        nonce: Callable[[], str],
        *,
        raw: bool = False,
        compression: str = "zstd",
    ) -> None:
        """Nothing is opened yet; `nonce` makes names of files that are trimmed."""
        self._place = place
        self._now_ms = now_ms
        self._nonce = nonce
        self._raw = raw
        self._compression = compression
        self._table: ArchiveTable | None = None
        #: Where this archive has left each stream.
        self._ends: dict[Key, int] = {}
        self._known: dict[str, str] = {}

    def open(self) -> ArchiveTable:
        """Open or make the table. Raises SluicegateError: see `open_table`, `check_conditional`."""
        if self._table is None:
            check_conditional(self._place, self._nonce())
            self._table = open_table(self._place, create=True, raw=self._raw)
        return self._table

    def introduce(self, gateway: str, identity: str) -> None:
        """Bind a gateway's name to its id. Raises SluicegateError where another one has it."""
        if self._known.get(gateway) != identity:
            table = self.open()
            self._retried(lambda: table.introduce(gateway, identity))
            self._known[gateway] = identity

    def commit(self, files: Sequence[FileFacts], query: str, batch: int) -> Committed:
        """Commit a batch; nothing, where all of it is there. Raises SluicegateError."""
        table = self.open()
        return self._retried(lambda: self._commit(table, files, query, batch))

    def _retried(self, step: Callable[[], Made]) -> Made:
        """Take a step on the newest version; again where another writer came first."""
        for _ in range(_TRIES):
            self.open().refresh()
            try:
                return step()
            except TakenError:
                continue
        raise SluicegateError(
            f"{self._place.uri}: {_TRIES} times another writer's commit came first; the batch was "
            "not committed. Run fewer archives into one table."
        )

    def _commit(
        self, table: ArchiveTable, files: Sequence[FileFacts], query: str, batch: int
    ) -> Committed:
        done = table.transaction(query)
        ends = table.ends([*{one.key for one in files}, *self._ends])
        again = done is not None and done >= batch
        if not again:
            check_alone(self._ends, ends)
        made = decide(files, ends)
        if again and (made.keep or made.trim):
            raise SluicegateError(
                f"The table has batch {done} of this query, and now batch {batch} brings offsets "
                "that it has not. The checkpoint was put back to an older state while the table "
                "was not. Start with a new checkpoint: the table knows where to go on."
            )
        trimmed = [
            rewrite([one], self._place, self._nonce(), start=start, compression=self._compression)
            for one, start in made.trim
        ]
        added = [*made.keep, *trimmed]
        if added:
            moved = {app_id(key): end for key, end in made.ends.items()}
            table.commit(added, {query: batch, **moved}, self._now_ms())
        self._ends |= {one.key: made.ends.get(one.key) or ends[one.key] or 0 for one in files}
        self._clean(table, [*made.drop, *(one for one, _ in made.trim)])
        return Committed(
            files=len(added),
            rows=sum(one.rows for one in added),
            size=sum(one.size for one in added),
            skipped=len(made.drop),
            lost=sum(one.end - one.first for one in added if one.lost),
            ends=made.ends,
        )

    def _clean(self, table: ArchiveTable, files: Sequence[FileFacts]) -> None:
        """Delete files of a batch that the table did not need.

        A commit whose answer was lost looks like another writer's, and its batch like one that is
        there already: then the files are the table's own, and stay.
        """
        if not files:
            return
        try:
            known = {one.path for one in table.files()}
            delete_files(self._place, [one for one in files if one.path not in known])
        except StoreError as error:  # the batch is committed; the next cleaning removes them
            _log.warning("files that no commit has are left for now: %s", error)
