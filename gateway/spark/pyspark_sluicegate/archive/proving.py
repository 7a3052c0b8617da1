"""A table proved: each offset of each stream's life once, without a gap, as its log says.

What a gateway declared (holes: offsets that no message ever had) and what was lost before it was
archived is counted apart. A fault is a range that no file covers, one that two cover, an end that
the commits do not agree with, and a file that does not hold what the log says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_sluicegate.archive.layout import FileFacts, by_stream
from pyspark_sluicegate.archive.rewriting import open_parquet
from pyspark_sluicegate.archive.store import telling
from pyspark_sluicegate.archive.table import ArchiveTable
from pyspark_sluicegate.options import SluicegateError


@dataclass(slots=True, kw_only=True)
class StreamProof:
    """What was found of one life of one stream; offsets are [first, end)."""

    gateway: str
    address: str
    stream: str
    epoch: int
    first: int
    end: int
    rows: int = 0
    files: int = 0
    holes: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found of a table at one version."""

    version: int
    streams: Sequence[StreamProof]

    def problems(self) -> list[str]:
        """Return all faults."""
        return [problem for one in self.streams for problem in one.problems]

    def view(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "version": self.version,
            "whole": not self.problems(),
            "streams": [asdict(one) for one in self.streams],
        }


def prove(table: ArchiveTable, *, quick: bool, tell: Callable[[int, int], None]) -> Proof:
    """Judge a table; `quick` reads its log alone. `tell` hears of files done, and how many are.

    Raises StoreError where the store does not answer, SluicegateError for a table of another kind.
    """
    files = table.files()
    ends = table.ends([one.key for one in files])
    found, done = [], 0
    for key, mine in sorted(by_stream(files).items()):
        proof = judge(mine, ends[key])
        for one in mine:
            if not quick:
                problem = judge_file(table, one)
                if problem:
                    proof.problems.append(problem)
            done += 1
            tell(done, len(files))
        found.append(proof)
    return Proof(table.version, found)


def judge(files: Sequence[FileFacts], end: int | None) -> StreamProof:
    """Judge the ranges of one life of one stream, in order of their offsets. Pure."""
    first = files[0]
    proof = StreamProof(
        gateway=first.gateway, address=first.address, stream=first.stream, epoch=first.epoch,
        first=first.first, end=max(one.end for one in files),
    )  # fmt: skip
    place = first.first
    for one in files:
        if one.first > place:
            proof.problems.append(f"offsets {place} to {one.first - 1} are missing")
        elif one.first < place:
            proof.problems.append(
                f"offsets {one.first} to {min(place, one.end) - 1} are there twice ({one.path})"
            )
        place = max(place, one.end)
        proof.files += 1
        proof.rows += one.rows
        if one.lost:
            proof.lost += one.end - one.first
        else:
            proof.holes += one.end - one.first - one.rows
    if end != place:
        proof.problems.append(f"the commits say that it ends at {end}, its files at {place}")
    return proof


def judge_file(table: ArchiveTable, facts: FileFacts) -> str | None:
    """Read a file's offsets; return what is wrong with it, or None."""
    try:
        with telling(table.place, facts.path), open_parquet(table.place, facts) as source:
            columns = source.read(columns=["stream", "epoch", "offset"])
    except (SluicegateError, pa.ArrowInvalid) as error:
        return str(error)
    offsets = columns.column("offset").combine_chunks()
    if len(offsets) != facts.rows:
        return f"{facts.path} has {len(offsets)} rows, the table's log says {facts.rows}"
    if not len(offsets):
        return None
    rising = pc.all(pc.less(offsets.slice(0, len(offsets) - 1), offsets.slice(1))).as_py()
    inside = facts.first <= offsets[0].as_py() and offsets[-1].as_py() < facts.end
    if rising is False or not inside:
        return f"{facts.path} does not hold offsets {facts.first} to {facts.end - 1}, each once"
    for name, value in (("stream", facts.stream), ("epoch", facts.epoch)):
        if pc.unique(columns.column(name)).to_pylist() != [value]:
            return f"{facts.path} holds rows of another {name} than {value!r}"
    return None
