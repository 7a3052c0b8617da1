"""The table's log, by deltalake: opened, looked at, committed to. The driver's alone.

open_table     the table as it is now; made when it is missing and that is wanted
files          the facts of its files, by one reading of the log
end            where a stream ends, by the transactions of the commits
commit         files added and removed, and ends moved, all or nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from pyspark_sluicegate.archive.layout import (
    OPTIONAL,
    PARTITIONED,
    FileFacts,
    Key,
    app_id,
    read_facts,
    table_schema,
)
from pyspark_sluicegate.archive.ledger import ends_of
from pyspark_sluicegate.archive.store import Location, explain, telling
from pyspark_sluicegate.options import SluicegateError

#: deltalake's DeltaTable: an extra, so nothing of it is named outside of functions.
DeltaTable = Any

_GATEWAY: Final = "sluicegate.gateway."
_FORM: Final = "sluicegate.form"
#: Delta lets two commits remove one file, whose rows would be there twice then. Of two compactions
#: the later one is refused by this transaction, which each of them moves.
_COMPACTION: Final = "sluicegate:compaction"


class TakenError(SluicegateError):
    """Another writer's commit came first; look at the table again."""


class NoTableError(SluicegateError):
    """There is no table."""


def open_table(place: Location, *, create: bool = False, raw: bool = False) -> ArchiveTable:
    """Return the table at `place`; with `create` it is made where there is none.

    Args:
        place: of the table.
        create: whether one may be made, and columns of this version added.
        raw: it keeps encoded messages (column `amqp`).

    Raises:
        NoTableError: there is none.
        SluicegateError: it is no archive, or one of a later version.
        StoreError: the store refused or did not answer.
    """
    try:
        import deltalake  # noqa: PLC0415 - an extra
        from deltalake.exceptions import (  # noqa: PLC0415
            CommitFailedError,
            TableNotFoundError,
        )
    except ImportError as error:
        raise SluicegateError(
            "An archive's table needs deltalake: install 'pyspark-sluicegate[archive]' where the "
            "driver or the command runs."
        ) from error
    with _delta(place):
        try:
            made = deltalake.DeltaTable(place.table_uri(), storage_options=place.table_options())
        except TableNotFoundError as error:
            if not create:
                raise NoTableError(f"There is no table at {place.uri}.") from error
            try:
                made = _create(place, raw=raw)
            except CommitFailedError:  # another archive has just made it
                made = deltalake.DeltaTable(
                    place.table_uri(), storage_options=place.table_options()
                )
    table = ArchiveTable(place, made)
    table.check_form(add=create, raw=raw)
    return table


def _create(place: Location, *, raw: bool) -> DeltaTable:
    import deltalake  # noqa: PLC0415 - an extra

    try:
        return deltalake.DeltaTable.create(
            place.table_uri(),
            table_schema(raw=raw),
            mode="ignore",
            partition_by=list(PARTITIONED),
            name="sluicegate-archive",
            configuration={_FORM: "1"},
            storage_options=place.table_options(),
            raise_if_key_not_exists=False,
        )
    except deltalake.exceptions.TableNotFoundError as error:  # a folder that cannot be made
        raise explain(place, error) from error


class ArchiveTable:
    """A table at one version; `refresh` brings it up to date."""

    def __init__(self, place: Location, table: DeltaTable) -> None:
        self.place = place
        self._table = table
        self._files: tuple[int, list[FileFacts]] | None = None

    @property
    def version(self) -> int:
        """The version that is looked at."""
        return int(self._table.version())

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return [field.name for field in self._table.schema().fields]

    def refresh(self) -> None:
        """Look at the newest version."""
        with _delta(self.place):
            self._table.update_incremental()

    def check_form(self, *, add: bool, raw: bool) -> None:
        """Raise SluicegateError for a table of another kind; with `add` give it what it lacks."""
        have = {field.name: field.type for field in pa.schema(self._table.schema())}
        wanted = {f.name: f.type for f in table_schema(raw=raw)}
        found = list(self._table.metadata().partition_columns)
        core = [n for n in (*PARTITIONED, "stream", "epoch", "offset", "timestamp") if n in have]
        if found != list(PARTITIONED) or len(core) < 7:
            raise SluicegateError(
                f"The table at {self.place.uri} is no archive of Sluicegate: it has the columns "
                f"{', '.join(list(have)[:12])} and is partitioned by "
                f"{', '.join(found) or 'nothing'}. Name another folder."
            )
        for name, kind in wanted.items():
            if name in have and not _alike(have[name], kind):
                raise SluicegateError(
                    f"The column {name!r} of the table at {self.place.uri} is {have[name]}, an "
                    f"archive's is {kind}. Its schema was changed by another program."
                )
        unknown = have.keys() - wanted.keys() - OPTIONAL.keys()
        if unknown and add:
            raise SluicegateError(
                f"The table at {self.place.uri} has columns that this version does not know "
                f"({', '.join(sorted(unknown))}): a later one writes it. Install that one here."
            )
        missing = {name: kind for name, kind in wanted.items() if name not in have}
        if missing and add:
            self._add_columns(missing)

    def _add_columns(self, missing: Mapping[str, pa.DataType]) -> None:
        from deltalake import Schema  # noqa: PLC0415 - an extra

        with _delta(self.place):
            self._table.alter.add_columns(Schema.from_arrow(pa.schema(dict(missing))).fields)
            self._table.update_incremental()

    def properties(self) -> dict[str, str]:
        """Return what is kept with the table."""
        return dict(self._table.metadata().configuration)

    def identity(self, gateway: str) -> str | None:
        """Return the id of the gateway that `gateway` names here; None when it is new here."""
        return self.properties().get(_GATEWAY + gateway)

    def introduce(self, gateway: str, identity: str) -> None:
        """Bind a gateway's name to the one that has it. Raises SluicegateError for another one."""
        known = self.identity(gateway)
        if known is None:
            with _delta(self.place):
                self._table.alter.set_table_properties(
                    {_GATEWAY + gateway: identity}, raise_if_not_exists=False
                )
                self._table.update_incremental()
            known = self.identity(gateway)
        if known != identity:
            raise SluicegateError(
                f"The table at {self.place.uri} holds the streams of another gateway that is "
                f"called {gateway!r} too (its id is {known}, this one's is {identity}). Give each "
                "gateway a `name` of its own, or name another table. A gateway that takes over "
                "this history says so with [archive] table in its configuration."
            )

    def files(self, gateway: str | None = None) -> list[FileFacts]:
        """Return the facts of all files, or of those of one gateway. Raises SluicegateError."""
        if self._files is None or self._files[0] != self.version:
            with _delta(self.place):
                actions = pa.table(self._table.get_add_actions(flatten=True))
            self._files = (self.version, [read_facts(one) for one in actions.to_pylist()])
        return [one for one in self._files[1] if gateway in (None, one.gateway)]

    def ends(self, keys: Sequence[Key]) -> dict[Key, int | None]:
        """Return where streams end in this version; None for one that is not in it."""
        return {key: self._table.transaction_version(app_id(key)) for key in keys}

    def transaction(self, application: str) -> int | None:
        """Return the highest batch that `application` has committed."""
        found = self._table.transaction_version(application)
        return None if found is None else int(found)

    def commit(
        self, files: Sequence[FileFacts], transactions: Mapping[str, int], now_ms: int
    ) -> None:
        """Add files and move transactions, all or nothing. Raises TakenError, StoreError."""
        from deltalake.transaction import (  # noqa: PLC0415 - an extra
            AddAction,
            CommitProperties,
            Transaction,
        )

        actions = [
            AddAction(f.path, f.size, f.partition_values(), now_ms, True, f.stats()) for f in files
        ]
        moved = [Transaction(name, version) for name, version in transactions.items()]
        with _delta(self.place):
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=list(PARTITIONED),
                commit_properties=CommitProperties(app_transactions=moved),
            )
            self._table.update_incremental()

    def replace(self, old: Sequence[FileFacts], new: FileFacts, now_ms: int) -> None:
        """Put one file in the place of others that hold the same rows; it changes no data.

        Raises TakenError when one of them is gone, StoreError.
        """
        from deltalake.transaction import (  # noqa: PLC0415 - an extra
            AddAction,
            CommitProperties,
            RemoveAction,
            Transaction,
        )

        add = AddAction(new.path, new.size, new.partition_values(), now_ms, False, new.stats())
        gone = [RemoveAction(f.path, False, now_ms, f.size, f.partition_values()) for f in old]
        with _delta(self.place):
            self._table.create_write_transaction(
                [*gone, add],
                mode="append",
                schema=self._table.schema(),
                partition_by=list(PARTITIONED),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(_COMPACTION, self.version + 1)]
                ),
            )
            self._table.update_incremental()

    def vacuum(self, hours: int) -> list[str]:
        """Remove files that no version has and that are older than `hours`; returns their paths."""
        with _delta(self.place):
            return list(
                self._table.vacuum(
                    hours, dry_run=False, enforce_retention_duration=False, full=True
                )
            )

    def raw_table(self) -> DeltaTable:
        """Return deltalake's own object, for the steps that only it has."""
        return self._table


def table_ends(table: ArchiveTable, gateway: str) -> dict[str, tuple[str, int, int]]:
    """Return address, newest life and end of each stream of a gateway, by stream."""
    found: dict[str, tuple[str, int, int]] = {}
    files = table.files(gateway)
    addresses = {one.key: one.address for one in files}
    for (_, stream, epoch), end in ends_of(files).items():
        if stream not in found or epoch > found[stream][1]:
            found[stream] = (addresses[gateway, stream, epoch], epoch, end)
    return found


def _alike(have: pa.DataType, kind: pa.DataType) -> bool:
    """Whether two types are one in Delta, which has one kind of text and one of bytes."""
    if pa.types.is_map(kind):
        return bool(pa.types.is_map(have))
    if pa.types.is_string(kind):
        return bool(pa.types.is_string(have) or pa.types.is_large_string(have))
    if pa.types.is_binary(kind):
        return bool(pa.types.is_binary(have) or pa.types.is_large_binary(have))
    return bool(have == kind)


@contextmanager
def _delta(place: Location) -> Iterator[None]:
    """Turn what deltalake raises into errors that name the place and the cause."""
    from deltalake.exceptions import (  # noqa: PLC0415 - an extra
        CommitFailedError,
        DeltaError,
        TableNotFoundError,
    )

    try:
        with telling(place):
            yield
    except TableNotFoundError:
        raise
    except CommitFailedError as error:
        raise TakenError(f"Another writer came first at {place.uri}: {error}") from error
    except DeltaError as error:
        raise explain(place, error) from error
