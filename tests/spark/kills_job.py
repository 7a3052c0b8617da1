"""The query of `kills`: from `in` to `out`, for ever.

python -m tests.spark.kills_job URL FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.kills import CAP
from tests.spark.session import spark_session


def main(url: str, folder: Path) -> None:
    """See the module text."""
    with spark_session("kills", spark_master="local[2,4]") as spark:
        source = spark.readStream.format("sluicegate").option("url", url).option("address", "in")
        source = source.option("subscription", "kills").option("startingOffsets", "earliest")
        source = source.option("maxMessagesPerTrigger", str(CAP)).option("minPartitions", "2")
        sink = source.load().select("body").writeStream.format("sluicegate").option("url", url)
        sink = sink.option("address", "out")
        query = sink.option("checkpointLocation", str(folder / "checkpoint")).start()
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
