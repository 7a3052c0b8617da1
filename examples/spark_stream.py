"""Count the messages of an address as they come, with Spark.

    python examples/spark_stream.py --address orders --checkpoint /var/tmp/orders-count

The gateway keeps what was sent since its stream exists; the checkpoint says how far Spark has come,
so a restart goes on where it stopped and each message is counted exactly once. `--available` takes
what is there and ends. Needs `pip install 'sluicegate[spark]'`, Java 17 and a running gateway.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8161")
    parser.add_argument("--address", default="orders")
    parser.add_argument("--subscription", default="count-example")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--available", action="store_true", help="take what is there, then end")
    given = parser.parse_args()

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("count-example")
        .config("spark.sql.shuffle.partitions", "2")  # few groups, one machine
        .getOrCreate()
    )
    messages = (
        spark.readStream.format("sluicegate")
        .option("url", given.url)
        .option("address", given.address)
        .option("subscription", given.subscription)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = messages.groupBy("content_type").agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes")
    )
    writer = (
        counts.writeStream.outputMode("complete")
        .option("checkpointLocation", given.checkpoint)
        .option("truncate", value=False)
        .format("console")
    )
    if given.available:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
