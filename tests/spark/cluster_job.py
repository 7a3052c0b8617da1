"""A driver program: three gateways in one query, into parquet; run by `test_cluster`.

    python cluster_job.py MASTER URLS TABLE CHECKPOINT PACKAGE

Prints a line for each batch that is done, and ends when its input says so.
"""

from __future__ import annotations

import json
import sys
import threading

from pyspark.sql import SparkSession


def main() -> None:
    """See the module text."""
    master, urls, table, checkpoint, package = sys.argv[1:]
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "4",
        "spark.submit.pyFiles": package,
    }
    builder = SparkSession.builder.master(master).appName("cluster")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    from pyspark_sluicegate import DefaultSource

    spark.dataSource.register(DefaultSource)
    frame = (
        spark.readStream.format("sluicegate")
        .option("url", urls)
        .option("address", "orders")
        .option("subscription", "cluster")
        .option("startingOffsets", "earliest")
        .option("maxMessagesPerTrigger", "3000")
        .option("minPartitions", "4")
        .load()
    )
    rows = frame.selectExpr("address", "offset", "CAST(body AS STRING) AS body")
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .option("path", table)
        .start()
    )
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    seen = -1
    while not over.wait(0.05):
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        if progress and progress["batchId"] > seen and progress["numInputRows"]:
            seen = progress["batchId"]
            print(
                json.dumps({"batch": seen, "end": progress["sources"][0]["endOffset"]}), flush=True
            )
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
