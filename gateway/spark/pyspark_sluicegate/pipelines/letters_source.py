"""The source of the pipeline `dead-letters`: rows of an address, made to dead letters in its tasks.

It plans and reads as the batch source does; `letters` decides what a row comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_sluicegate.options import Options, parse_options
from pyspark_sluicegate.pipelines.letters import COLUMNS, READ, letters
from pyspark_sluicegate.source import BatchReader

FORMAT: Final = "sluicegate-dead-letters"


#: Spark reads no DDL where a reader is made: that is a process without a session.
_KINDS: Final[Mapping[str, DataType]] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def _struct(columns: Mapping[str, str]) -> StructType:
    return StructType([StructField(name, _KINDS[kind]) for name, kind in columns.items()])


class LettersReader(BatchReader):
    """The batch source's reader, whose rows are dead letters."""

    def __init__(self, options: Options) -> None:
        super().__init__(_struct(READ), options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield letters(rows)


class DeadLetters(DataSource):
    """`spark.read.format("sluicegate-dead-letters")`, for the pipeline `dead-letters` alone."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return _struct(COLUMNS)

    def reader(self, schema: StructType) -> LettersReader:
        given = {**self.options, "columns": ",".join(READ), "includeHeaders": "json"}
        return LettersReader(parse_options(given))
