"""Small files of a table joined to larger ones, in the order of their offsets.

Rows stay as they are, and so do the ranges: a commit that changes no data replaces neighbours by
one file that covers both. deltalake's own `optimize` is not used: it mixes what lies in a
partition, and its files would no longer say which offsets they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_sluicegate.archive.layout import FileFacts, by_stream
from pyspark_sluicegate.archive.rewriting import rewrite
from pyspark_sluicegate.archive.table import ArchiveTable, TakenError

#: Files joined in one commit are at most as many: bounds what one conflict costs.
_GROUPS = 64


def groups(files: Sequence[FileFacts], file_bytes: int) -> list[list[FileFacts]]:
    """Return runs of neighbouring files of one day that together make one of about `file_bytes`."""
    found: list[list[FileFacts]] = []
    for mine in by_stream(files).values():
        run: list[FileFacts] = []
        size = 0
        for one in mine:
            neighbour = run and (one.first, one.date) == (run[-1].end, run[-1].date)
            if not neighbour or size + one.size > file_bytes or one.lost or run[-1].lost:
                found.append(run)
                run, size = [], 0
            run.append(one)
            size += one.size
        found.append(run)
    return [run for run in found if len(run) > 1]


def compact(
    table: ArchiveTable, file_bytes: int, nonce: Callable[[], str], now_ms: Callable[[], int],
    compression: str = "zstd",
) -> int:  # fmt: skip
    """Join small files; returns how many are gone. One whose commit another overtakes is left."""
    gone = 0
    for run in groups(table.files(), file_bytes)[:_GROUPS]:
        made = rewrite(run, table.place, nonce(), compression=compression)
        try:
            table.replace(run, made, now_ms())
        except TakenError:
            table.refresh()
            continue
        gone += len(run) - 1
    return gone
