"""Whether the jar of Spark's Kafka sink is there, and fits the Spark that runs. Pure.

The jar calls Spark's inside, which changes from one minor version to the next, so the two must be
of the same one. Each Spark has its jar, but not always on the day it comes out: at the time of
writing there was one for 4.0, 4.1 and 4.2, and none for 4.3.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark_sluicegate.options import SluicegateError

#: The class in the jar that Spark looks for.
PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ARTIFACT: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
#: Minor versions of Spark 4 whose jar is known to be published.
PUBLISHED: Final = ("4.0", "4.1", "4.2")
_VERSION: Final = re.compile(r"spark-sql-kafka-0-10_(\d+\.\d+)-(\d+\.\d+)\.[\w.-]*?jar$")


def check_jar(spark: str, jar: str | None) -> None:
    """Raise SluicegateError unless `jar`, a path or None, fits Spark of version `spark`."""
    minor = ".".join(spark.split(".")[:2])
    if jar is None:
        raise SluicegateError(f"Spark {spark} has no Kafka sink here. {_way_out(spark, minor)}")
    found = _VERSION.search(jar)
    if found is None or (found[1] == "2.13" and found[2] == minor):
        # A jar under another name was put there on purpose.
        return
    name = jar.rpartition("/")[2]
    raise SluicegateError(
        f"The jar {name} is for Spark {found[2]} with Scala {found[1]}, and this is Spark {spark} "
        f"with Scala 2.13; it would fail in the middle of a batch. {_way_out(spark, minor)}"
    )


def _way_out(spark: str, minor: str) -> str:
    if minor in PUBLISHED:
        version = spark if re.fullmatch(r"\d+\.\d+\.\d+", spark) else f"{minor}.0"
        return f"Start with: spark-submit --packages {_ARTIFACT}:{version}"
    newest = PUBLISHED[-1]
    return (
        f"None was published for Spark {minor} when this was written (there is one for "
        f"{', '.join(PUBLISHED)}). Run this pipeline with pyspark {newest} and --packages "
        f"{_ARTIFACT}:{newest}.0, or give the jar for {minor} once there is one."
    )
