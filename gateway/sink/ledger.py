"""What each producer has committed, and what a commit does next. Pure.

A batch of a producer is published from stages. Its life in the journal:

    none ──begin: the intent──> publishing (stage, row) ──finish──> committed
                                  │        ^
                                  └─advance┘  with each slice, in the atomic unit of its messages

The intent names the stages, so that whoever goes on later publishes those rows and no others: a
commit that comes again with other stages goes on with the first ones. A batch at or below the
highest committed one of its producer is done, whatever it is staged from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from gateway.model.definitions import CommitDefinition, ProgressDefinition, StageRow
from gateway.model.errors import Code, RefusedError
from gateway.sink.settings import SinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A batch that is being published: so many rows of stage number `stage` are.

    Attributes:
        stages: (partition, attempt, rows) in the order in which they are published.
    """

    batch: int
    stages: tuple[StageRow, ...]
    stage: int = 0
    row: int = 0

    @property
    def total(self) -> int:
        """Rows of all stages."""
        return sum(rows for _, _, rows in self.stages)

    @property
    def published(self) -> int:
        """Rows that are published."""
        return sum(rows for _, _, rows in self.stages[: self.stage]) + self.row

    def after(self, rows: int) -> Commit:
        """Return it with so many rows more, all of the stage that it is at."""
        at = self.row + rows
        size = self.stages[self.stage][2]
        assert 0 < rows <= size - self.row, f"{rows} rows behind {self.row} of {size}"
        if at == size:
            return replace(self, stage=self.stage + 1, row=0)
        return replace(self, row=at)


@dataclass(slots=True, kw_only=True)
class Known:
    """A producer.

    Attributes:
        committed: its highest committed batch; -1: none.
        seen_ms: broker time at which it was heard of last.
        passing: it comes once, and is forgotten as soon as its stages would be.
        commit: what is being published.
    """

    committed: int = -1
    seen_ms: int = 0
    passing: bool = False
    commit: Commit | None = None


class Next(Enum):
    """What a commit call does."""

    BEGIN = "begin"
    GO_ON = "go-on"
    DONE = "done"


class Ledger:
    """The producers by name; see the module text."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.producers: dict[str, Known] = {}

    def ask(self, producer: str, batch: int) -> Next:
        """Say what a commit of this batch does. Raises RefusedError (in-use): another goes first.

        Batches of one producer are published one after the other, so that none overtakes another.
        """
        known = self.producers.get(producer)
        if known is None:
            return Next.BEGIN
        if batch <= known.committed:
            return Next.DONE
        if known.commit is None:
            return Next.BEGIN
        if known.commit.batch == batch:
            return Next.GO_ON
        raise RefusedError.of(
            Code.IN_USE,
            f"Batch {known.commit.batch} of producer {producer!r} is being published "
            f"({known.commit.published} of {known.commit.total} messages); batch {batch} cannot "
            "begin before that. Commit that batch again, or forget the producer.",
            transient=True,
        )

    def make_room(self, producer: str, now_ms: int) -> list[CommitDefinition]:
        """See to it that there is room for a producer; returns what is forgotten for it.

        Raises RefusedError (too-many).
        """
        settings = self.settings
        gone: list[CommitDefinition] = []
        if producer in self.producers or len(self.producers) < settings.producers_max:
            return gone
        gone = self.expire(now_ms)
        if len(self.producers) >= settings.producers_max:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"{len(self.producers)} producers have committed batches, and "
                f"{settings.told('producers-max', settings.producers_max)}. Forget one that comes "
                "no more (DELETE /api/v1/sink/producers/NAME), or raise the limit.",
            )
        return gone

    def begin(
        self,
        producer: str,
        batch: int,
        stages: Sequence[StageRow],
        now_ms: int,
        *,
        passing: bool = False,
    ) -> tuple[CommitDefinition, ProgressDefinition]:
        """Intend to publish a batch from these stages; returns what the journal is to remember."""
        assert self.ask(producer, batch) is Next.BEGIN, "a batch begins twice"
        known = self.producers.setdefault(producer, Known())
        known.seen_ms, known.passing = now_ms, passing
        known.commit = Commit(batch=batch, stages=tuple(one for one in stages if one[2]))
        return _definition(producer, known), _progress(producer, known.commit)

    def advance(self, producer: str, rows: int) -> ProgressDefinition:
        """Count rows that are published; returns what goes into the journal with them."""
        known = self.producers[producer]
        assert known.commit is not None, "rows of no batch"
        known.commit = known.commit.after(rows)
        return _progress(producer, known.commit)

    def finish(self, producer: str, now_ms: int) -> CommitDefinition:
        """Count the batch as committed; returns what goes into the journal."""
        known = self.producers[producer]
        commit = known.commit
        assert commit is not None, "no batch to finish"
        assert commit.stage == len(commit.stages), "rows are left"
        known.committed, known.seen_ms, known.commit = commit.batch, now_ms, None
        return _definition(producer, known)

    def forget(self, producer: str) -> CommitDefinition | None:
        """Forget a producer; returns what the journal is to forget, None where it is unknown."""
        known = self.producers.pop(producer, None)
        return None if known is None else _definition(producer, known)

    def expire(self, now_ms: int) -> list[CommitDefinition]:
        """Forget producers that were not heard of for long enough; returns them.

        One with a batch that is being published stays.
        """
        settings = self.settings
        doomed = [
            name
            for name, known in self.producers.items()
            if known.commit is None
            and now_ms - known.seen_ms
            >= (settings.stage_expiry if known.passing else settings.producer_expiry)
        ]
        return [_definition(name, self.producers.pop(name)) for name in doomed]

    def definitions(self) -> list[CommitDefinition | ProgressDefinition]:
        """Return what each new journal segment begins with."""
        found: list[CommitDefinition | ProgressDefinition] = []
        for name, known in self.producers.items():
            found.append(_definition(name, known))
            if known.commit is not None:
                found.append(_progress(name, known.commit))
        return found

    def restore(
        self, commits: Iterable[CommitDefinition], progress: Iterable[ProgressDefinition]
    ) -> None:
        """Take back what the journal remembers."""
        places = {one.producer: one for one in progress}
        for one in commits:
            known = Known(committed=one.committed, seen_ms=one.seen_ms, passing=one.passing)
            if one.batch >= 0:
                known.commit = Commit(batch=one.batch, stages=one.stages)
                place = places.get(one.producer)
                if place is not None and place.batch == one.batch:
                    known.commit = replace(known.commit, stage=place.stage, row=place.row)
            self.producers[one.producer] = known


def _definition(producer: str, known: Known) -> CommitDefinition:
    commit = known.commit
    return CommitDefinition(
        producer=producer,
        committed=known.committed,
        seen_ms=known.seen_ms,
        passing=known.passing,
        batch=-1 if commit is None else commit.batch,
        stages=() if commit is None else commit.stages,
    )


def _progress(producer: str, commit: Commit) -> ProgressDefinition:
    return ProgressDefinition(
        producer=producer, batch=commit.batch, stage=commit.stage, row=commit.row
    )
