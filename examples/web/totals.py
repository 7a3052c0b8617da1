"""The order board's Spark query: adds up the orders, and sends the totals to every page.

    ORDER_BOARD_PASSCODE=... python examples/web/totals.py --checkpoint /var/tmp/board

Spark reads the stream of the address `orders` by offsets, which it keeps in its checkpoint: each
order is added once, whatever is killed. `foreachBatch` may be called again for a batch after a
crash, with the same number and the same totals. So the totals are whole sums, not differences, and
go out under a duplicate id made of run and batch: the second time the gateway confirms and stores
nothing.
"""

from __future__ import annotations

import argparse
import json
import threading
import time

import stomp
from board import (
    DUPLICATE_ID,
    PRODUCTS,
    QUANTITY_MAX,
    REGIONS,
    TOTALS,
    passcode,
    say,
    when_input_ends,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from stomp.exception import StompException
from stomp.utils import Frame

SCHEMA = "id STRING, product STRING, quantity INT, region STRING"
#: A gateway that is started again is back within seconds.
PATIENCE_SECONDS = 120.0
CONFIRM_SECONDS = 10.0
AGAIN_SECONDS = 0.5
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",  # few groups, one machine
    "spark.sql.session.timeZone": "UTC",
}


class Topic(stomp.ConnectionListener):
    """Sends to the topic, and returns when the gateway has it for good."""

    def __init__(self, host: str, port: int, login: str) -> None:
        self._host, self._port, self._login = host, port, login
        self._connection: stomp.Connection12 | None = None
        self._confirmed = threading.Event()
        self._receipt = ""

    def send(self, body: str, duplicate_id: str) -> None:
        """Send until it is confirmed; raises TimeoutError when it never is.

        A receipt that was lost with its connection leads to another SEND under the same id.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                if self._send(body, duplicate_id):
                    return
            except (OSError, StompException) as error:
                say(f"the totals wait for the gateway: {type(error).__name__}")
            self.close()
            time.sleep(AGAIN_SECONDS)
        raise TimeoutError(f"The totals were not confirmed within {PATIENCE_SECONDS:.0f} s.")

    def _send(self, body: str, duplicate_id: str) -> bool:
        if self._connection is None:
            self._connection = stomp.Connection12(
                [(self._host, self._port)], heartbeats=(10_000, 10_000), reconnect_attempts_max=1
            )
            self._connection.set_listener("topic", self)
            self._connection.connect(self._login, passcode(), wait=True)
        self._receipt = duplicate_id
        self._confirmed.clear()
        headers = {DUPLICATE_ID: duplicate_id, "persistent": "true", "receipt": duplicate_id}
        self._connection.send(TOTALS, body, content_type="application/json", headers=headers)
        return self._confirmed.wait(CONFIRM_SECONDS)

    def close(self) -> None:
        """Leave; the next `send` connects again."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_connected():
            connection.disconnect()

    def on_receipt(self, frame: Frame) -> None:
        if frame.headers.get("receipt-id") == self._receipt:
            self._confirmed.set()

    def on_error(self, frame: Frame) -> None:
        say(f"the gateway says: {frame.headers.get('message', frame.body)}")


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


def start(spark: SparkSession, given: argparse.Namespace, topic: Topic) -> StreamingQuery:
    """Start the query over the whole stream of the address."""
    messages = (
        spark.readStream.format("sluicegate")
        .option("url", given.url)
        .option("address", "orders")
        .option("subscription", "order-board")
        .option("startingOffsets", "earliest")
        .option("username", given.login)
        .option("password", passcode())
        .load()
    )

    def publish(totals: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in totals.orderBy("product", "region").collect()]
        at = int(time.time() * 1000)
        text = json.dumps({"run": given.run, "batch": batch, "at": at, "totals": rows})
        topic.send(text, f"totals-{given.run}-{batch}")
        say(f"{sum(row['orders'] for row in rows):,} orders are in the totals, batch {batch}")

    writer = add_up(messages).writeStream.outputMode("complete").foreachBatch(publish)
    return writer.option("checkpointLocation", given.checkpoint).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8161", help="the gateway's HTTP API")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
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
    topic = Topic(given.host, given.port, given.login)
    query = start(spark, given, topic)
    query.processAllAvailable()
    say("ready")
    while query.isActive and not stop.wait(0.2):
        pass
    failure = query.exception()
    query.stop()
    spark.stop()
    topic.close()
    if failure is not None:
        raise SystemExit(f"The query failed: {failure}")


if __name__ == "__main__":
    main()
