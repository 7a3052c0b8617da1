"""The text of a Spark program that reads or writes an address. Pure.

A password is never in it: the program takes it from its environment when it runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

PASSWORD_VARIABLE: Final = "SLUICEGATE_PASSWORD"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the program is about.

    Attributes:
        url: the management listener; several with commas.
        address: what is read or written.
        subscription: the name under which the gateway keeps what a stream has still to read.
        checkpoint: the folder in which Spark keeps how far a stream has come.
        available: a stream takes what is there and ends.
        token_file: a file with a bearer token, on the driver and on each executor.
        user: a login whose password is in the environment.
        ca_file: certificates that are trusted over https, on the driver and on each executor.
    """

    url: str
    address: str
    subscription: str
    checkpoint: str
    available: bool = False
    token_file: str | None = None
    user: str | None = None
    ca_file: str | None = None


def write_stream(wanted: Wanted) -> str:
    """Return a streaming query that prints what it reads."""
    own = [("subscription", _quoted(wanted.subscription)), ("startingOffsets", '"earliest"')]
    return _program(
        wanted,
        f"""messages = (
    spark.readStream.format("sluicegate")
{_options(wanted, own)}
    .load()
)
# What the query does; Spark's console shows twenty rows of each batch.
rows = messages.selectExpr("offset", "timestamp", "cast(body as string) as body")
{_query(wanted, "rows", "console", [])}""",
    )


def write_batch(wanted: Wanted) -> str:
    """Return a query over what is there now."""
    return _program(
        wanted,
        f"""messages = (
    spark.read.format("sluicegate")
{_options(wanted, [])}
    .load()
)
messages.selectExpr("offset", "timestamp", "cast(body as string) as body").show()
""",
    )


def write_sink(wanted: Wanted) -> str:
    """Return a streaming query that sends messages."""
    return _program(
        wanted,
        f"""# What is sent: Spark's own numbers here, one a second.
numbers = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
messages = numbers.selectExpr("cast(value as string) as body")
{_query(wanted, "messages", "sluicegate", _common(wanted))}""",
    )


def _program(wanted: Wanted, body: str) -> str:
    imports = "import os\n\n" if wanted.user is not None else ""
    name = _quoted(wanted.subscription)
    return f"""{imports}import pyspark_sluicegate
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName({name}).getOrCreate()
pyspark_sluicegate.register(spark)
{body}"""


def _query(wanted: Wanted, rows: str, sink: str, options: list[tuple[str, str]]) -> str:
    own = [*options, ("checkpointLocation", _quoted(wanted.checkpoint))]
    trigger = "    .trigger(availableNow=True)\n" if wanted.available else ""
    return f"""# The checkpoint holds the place where the query stopped: one for each query.
query = (
    {rows}.writeStream.format("{sink}")
{_lines(own)}
{trigger}    .start()
)
query.awaitTermination()
"""


def _common(wanted: Wanted) -> list[tuple[str, str]]:
    found = [("url", _quoted(wanted.url)), ("address", _quoted(wanted.address))]
    if wanted.token_file is not None:
        found.append(("tokenFile", _quoted(wanted.token_file)))
    if wanted.user is not None:
        found.append(("username", _quoted(wanted.user)))
        found.append(("password", f'os.environ["{PASSWORD_VARIABLE}"]'))
    if wanted.ca_file is not None:
        found.append(("tlsCaFile", _quoted(wanted.ca_file)))
    return found


def _options(wanted: Wanted, own: list[tuple[str, str]]) -> str:
    return _lines([*_common(wanted), *own])


def _lines(options: list[tuple[str, str]]) -> str:
    return "\n".join(f'    .option("{name}", {value})' for name, value in options)


def _quoted(text: str) -> str:
    """Return a text as Python writes it: JSON's escapes are Python's too."""
    return json.dumps(text, ensure_ascii=False)
