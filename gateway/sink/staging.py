"""Which stages there are: what each one has, who it is of, and when it goes. Pure.

    coming ──seal──> whole ──committed, or aborted──> gone
       └──── not heard of for `stage-expiry` ───────────^

A stage is known by (producer, batch, partition, attempt). The names of its files say the same, with
a digest in place of the producer, whose name may be long.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.broker.pressure.demand import Demand
from gateway.model.errors import Code, RefusedError
from gateway.sink.settings import SinkSettings

PRODUCER_BYTES_MAX: Final = 200
NUMBER_MAX: Final = (1 << 63) - 1
_ATTEMPT: Final = re.compile(r"[0-9a-z]{1,32}")
_FILE: Final = re.compile(
    r"([0-9a-f]{32})-(\d{1,19})-(\d{1,10})-([0-9a-z]{1,32})(?:-(\d{1,19})\.arrow|\.part)"
)


@dataclass(frozen=True, slots=True)
class StageKey:
    """What a stage is known by; `owner` is the digest of its producer's name."""

    owner: str
    batch: int
    partition: int
    attempt: str

    @property
    def name(self) -> str:
        """The name of its file, as long as it comes, without an ending."""
        return f"{self.owner}-{self.batch}-{self.partition}-{self.attempt}"


@dataclass(slots=True)
class Stage:
    """A stage.

    Attributes:
        size: bytes.
        rows: how many it has; -1 while it comes.
        seen: seconds of the clock at which it was heard of last.
        addresses: address -> what is for it; None where that is not known now.
        writing: something of it is under way on a thread.
    """

    key: StageKey
    size: int = 0
    rows: int = -1
    seen: float = 0.0
    addresses: Mapping[str, Demand] | None = None
    writing: bool = False

    @property
    def whole_name(self) -> str:
        return f"{self.key.name}-{self.rows}"

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.key.name}.part" if self.rows < 0 else f"{self.whole_name}.arrow"


def owner_of(producer: str) -> str:
    """Return what stands for a producer in names of files."""
    return hashlib.blake2b(producer.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def stage_key(producer: str, batch: int, partition: int, attempt: str) -> StageKey:
    """Return the key of a stage. Raises RefusedError (bad-name, bad-value)."""
    check_producer(producer)
    if not 0 <= batch <= NUMBER_MAX or not 0 <= partition < 1 << 31:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"There is no batch {batch} with a partition {partition}; both count from 0.",
        )
    if _ATTEMPT.fullmatch(attempt) is None:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The attempt is {attempt[:40]!a}; it must be 1 to 32 lower-case letters and digits.",
        )
    return StageKey(owner_of(producer), batch, partition, attempt)


def check_producer(producer: str) -> None:
    """Raise RefusedError (bad-name) for what cannot be the name of a producer."""
    size = len(producer.encode("utf-8", "surrogatepass"))
    if not 0 < size <= PRODUCER_BYTES_MAX or not producer.isprintable():
        raise RefusedError.of(
            Code.BAD_NAME,
            f"The producer is {producer[:60]!a} ({size} bytes); a name has 1 to "
            f"{PRODUCER_BYTES_MAX} bytes, all of them printable.",
        )


class Staging:
    """The stages by key; see the module text. `bytes` (read only): of all of them."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.bytes = 0
        self._stages: dict[StageKey, Stage] = {}

    def __len__(self) -> int:
        return len(self._stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._stages.values())

    def get(self, key: StageKey) -> Stage | None:
        """Return a stage."""
        return self._stages.get(key)

    def take_up(self, files: Sequence[tuple[str, int]], now: float) -> list[str]:
        """Know again what a start found, as (file name, bytes); returns what is none of ours."""
        strange = []
        for file, size in files:
            found = _FILE.fullmatch(file)
            if found is None:
                strange.append(file)
                continue
            owner, batch, partition, attempt, rows = found.groups()
            key = StageKey(owner, int(batch), int(partition), attempt)
            rows_there = -1 if rows is None else int(rows)
            self._stages[key] = Stage(key, size=size, rows=rows_there, seen=now)
            self.bytes += size
        return strange

    def piece(self, key: StageKey, offset: int, size: int, now: float) -> Stage:
        """Take a piece of a stage; returns it with its size as it is then.

        Raises RefusedError: bad-value for a piece behind a gap or of a stage that is whole,
        too-large and too-many by the limits, in-use while another piece is being written.
        """
        settings = self.settings
        stage = self._stages.get(key)
        here = 0 if stage is None else stage.size
        self._check_place(stage, offset, here)
        grown = max(0, offset + size - here)
        if here + grown > settings.stage_max_size:
            limit = settings.told("stage-max-size", settings.stage_max_size)
            raise RefusedError.of(
                Code.TOO_LARGE,
                f"A stage would have {here + grown} bytes, and {limit}. Use more partitions, "
                "smaller batches (maxBytesPerTrigger of the source), or raise the limit.",
            )
        if self.bytes + grown > settings.staged_max_size:
            limit = settings.told("staged-max-size", settings.staged_max_size)
            raise RefusedError.of(
                Code.STORE_BUSY,
                f"{self.bytes} bytes are staged, {grown} more would come, and {limit}. Batches "
                "that are committed or aborted make room; else raise the limit.",
                transient=True,
            )
        if stage is None:
            stage = self._add(key)
        stage.size += grown
        stage.seen = now
        self.bytes += grown
        return stage

    def _check_place(self, stage: Stage | None, offset: int, here: int) -> None:
        """Raise RefusedError where a piece cannot go."""
        if stage is not None and stage.rows >= 0:
            raise RefusedError.of(
                Code.BAD_VALUE, f"The stage is sealed with {stage.rows} rows and takes no more."
            )
        if stage is not None and stage.writing:
            raise RefusedError.of(
                Code.STORE_BUSY, "A piece of this stage is being written.", transient=True
            )
        if offset > here:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"The stage has {here} bytes here, and the piece begins at {offset}: what was "
                "before it has expired or was lost. Stage the partition again from its beginning.",
            )

    def _add(self, key: StageKey) -> Stage:
        settings = self.settings
        if len(self._stages) >= settings.stages_max:
            raise RefusedError.of(
                Code.STORE_BUSY,
                f"There are {len(self._stages)} stages, and "
                f"{settings.told('stages-max', settings.stages_max)}. Batches that are committed "
                "or aborted make room; else use fewer partitions, or raise the limit.",
                transient=True,
            )
        stage = self._stages[key] = Stage(key)
        return stage

    def sealed(self, stage: Stage, rows: int, addresses: Mapping[str, Demand]) -> None:
        """The stage is whole."""
        stage.rows, stage.addresses = rows, addresses

    def shrink(self, stage: Stage, size: int) -> None:
        """Take back a piece that could not be written; a stage that has nothing else is none."""
        self.bytes -= stage.size - size
        stage.size = size
        if not size:
            self.drop(stage)

    def drop(self, stage: Stage) -> None:
        """Forget a stage."""
        if self._stages.pop(stage.key, None) is not None:
            self.bytes -= stage.size

    def of_batches(self, owner: str, batches: range) -> list[Stage]:
        """Return all stages of a producer for these batches."""
        return [
            stage
            for key, stage in self._stages.items()
            if key.owner == owner and key.batch in batches
        ]

    def expired(self, now: float, kept: Collection[StageKey]) -> list[Stage]:
        """Return the stages that were not heard of for long enough, but for these."""
        age = self.settings.stage_expiry / 1000
        return [
            stage
            for key, stage in self._stages.items()
            if now - stage.seen >= age and not stage.writing and key not in kept
        ]
