"""The order board's Spark query: adds up the orders, and sends the totals to every page.

    ORDER_BOARD_PASSCODE=... python examples/web/totals.py --checkpoint /var/tmp/board

Spark reads the stream of the address `orders` by offsets, which it keeps in its checkpoint: each
order is added once, whatever is killed. `foreachBatch` may be called again for a batch after a
crash, with the same number and the same totals. The totals go out under the name of the run and
the number of the batch: the second time the gateway publishes nothing.
"""

from __future__ import annotations

import argparse
import json
import threading
import time

from board import PRODUCTS, QUANTITY_MAX, REGIONS, TOTALS, passcode, say, when_input_ends
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "id STRING, product STRING, quantity INT, region STRING"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",  # few groups, one machine
    "spark.sql.session.timeZone": "UTC",
}


def right(order: Column) -> Column:
    """Return the rule of `board.fault` as a column, for orders that were parsed."""
    return (
        order.product.isin(PRODUCTS)
        & order.region.isin(REGIONS)
        & order.quantity.between(1, QUANTITY_MAX)
    )


def add_up(messages: DataFrame) -> DataFrame:
    """Return orders and pieces by product and region."""
    orders = messages.select(f.from_json(f.col("body").cast("string"), SCHEMA).alias("order"))
    return (
        orders.where(right(f.col("order")))
        .groupBy("order.product", "order.region")
        .agg(f.count("*").alias("orders"), f.sum("order.quantity").alias("pieces"))
    )


def start(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the query over the whole stream of the address."""
    gateway = {"url": given.url, "username": given.login, "password": passcode()}
    messages = (
        spark.readStream.format("sluicegate")
        .options(**gateway)
        .option("address", "orders")
        .option("subscription", "order-board")
        .option("startingOffsets", "earliest")
        .load()
    )

    def publish(totals: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in totals.orderBy("product", "region").collect()]
        at = int(time.time() * 1000)
        text = json.dumps({"run": given.run, "batch": batch, "at": at, "totals": rows})
        message = spark.createDataFrame(
            [(text, "application/json")], "body string, content_type string"
        )
        (
            message.coalesce(1)
            .write.format("sluicegate")
            .mode("append")
            .options(**gateway)
            .options(address=TOTALS.removeprefix("/topic/"), routing="multicast")
            .options(producerId=f"totals-{given.run}", batchId=batch)
            .save()
        )
        say(f"{sum(row['orders'] for row in rows):,} orders are in the totals, batch {batch}")

    writer = add_up(messages).writeStream.outputMode("complete").foreachBatch(publish)
    return writer.option("checkpointLocation", given.checkpoint).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8161", help="the gateway's HTTP API")
    parser.add_argument("--login", default="board")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--run", default="1", help="a name for this checkpoint's totals")
    given = parser.parse_args()

    stop = threading.Event()
    when_input_ends(stop.set)
    builder = SparkSession.builder.master("local[2]").appName("order-board")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    query = start(spark, given)
    query.processAllAvailable()
    say("ready")
    while query.isActive and not stop.wait(0.2):
        pass
    failure = query.exception()
    query.stop()
    spark.stop()
    if failure is not None:
        raise SystemExit(f"The query failed: {failure}")


if __name__ == "__main__":
    main()
