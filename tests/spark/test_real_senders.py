"""Messages of real clients, stored by the real gateway: chosen and typed as their senders meant."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from proton import Message, byte, char, decimal64, float32, symbol, timestamp, ulong
from proton.utils import BlockingConnection
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
    VariantVal,
)

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import self_signed
from pyspark_sluicegate.source import DefaultSource
from tests.gateway.stomp_peer import StompPeer
from tests.spark.test_source import read_batch

pytestmark = pytest.mark.interop

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNIQUE = UUID("123e4567-e89b-12d3-a456-426614174000")
SCHEMA = StructType([
    StructField("offset", LongType()), StructField("body", BinaryType()),
    StructField("properties", VariantType()), StructField("traceparent", StringType()),
])  # fmt: skip
PROPERTIES: dict[str, Any] = {
    "text": "tea", "number": 7, "small": byte(-3), "large": ulong((1 << 64) - 1),
    "half": float32(0.5), "double": 2.5, "yes": True, "nothing": None, "raw": b"\x00\xff",
    "id": UNIQUE, "sym": symbol("s"), "one": char("c"), "when": timestamp(1_700_000_000_123),
    "price": decimal64((398 - 2) << 53 | 12345),
}  # fmt: skip
SEEN = {
    "text": "tea", "number": 7, "small": -3, "large": Decimal((1 << 64) - 1), "half": 0.5,
    "double": 2.5, "yes": True, "nothing": None, "raw": b"\x00\xff", "id": str(UNIQUE), "sym": "s",
    "one": "c", "when": dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.UTC),
    "price": Decimal("123.45"),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway with seven messages in the stream `orders`, and in a queue of that address."""
    with ScratchGateway(tmp_path_factory.mktemp("real") / "served") as server:
        made = server.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
        assert made[0] == 201
        connection = BlockingConnection(f"amqp://{HOST}:{server.port}", timeout=20)
        connection.create_receiver("orders", credit=0).close()  # makes the queue
        sender = connection.create_sender("orders")
        for message in (
            Message(body=b"0", inferred=True, durable=True, properties=PROPERTIES, priority=7),
            Message(body=b"1", inferred=True, durable=True, properties={"traceparent": TRACE}),
            Message(body=b"2", inferred=True, annotations={symbol("traceparent"): TRACE}, id="two"),
            Message(body=b"3", inferred=True, subject="bill", correlation_id="c3", ttl=3600.0),
            Message(body="4", creation_time=1_700_000_000.0),
        ):
            sender.send(message)
        connection.close()
        peer = StompPeer(server.stomp_port)
        for number, headers in ((5, f"number:7\ntraceparent:{TRACE}\n"), (6, "type:bill\n")):
            peer.write(f"SEND\ndestination:orders\n{headers}receipt:r\n\n", b"%d" % number)
            assert peer.read()[0] == "RECEIPT"
        yield server


def read(server: ScratchGateway, **options: str) -> list[dict[str, Any]]:
    given = {"url": server.url, "address": "orders", "retryDeadline": "20s"}
    source = DefaultSource(given | options)
    return sorted(read_batch(source, SCHEMA), key=lambda row: row["offset"])


def typed(row: dict[str, Any]) -> Any:
    return VariantVal(row["properties"]["value"], row["properties"]["metadata"]).toPython()


def test_properties_have_the_types_that_their_senders_gave_them(served: ScratchGateway) -> None:
    rows = read(served)
    assert [row["body"] for row in rows] == [b"%d" % n for n in range(7)]
    found = typed(rows[0])
    assert found == SEEN
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in SEEN.items()
    }
    assert typed(rows[3]) == {}
    assert typed(rows[5])["number"] == "7"


def test_the_trace_of_a_sender_wherever_it_put_it(served: ScratchGateway) -> None:
    traces = [row["traceparent"] for row in read(served)]
    assert traces == [None, TRACE, TRACE, None, None, TRACE, None]


@pytest.mark.parametrize(
    ("selector", "bodies"),
    [
        ("number = 7", b"0"),
        ("convert_string_expressions:number = 7", b"05"),
        ("JMSPriority > 4", b"0"),
        ("JMSDeliveryMode = 'PERSISTENT'", b"0156"),
        ("JMSMessageID = 'two'", b"2"),
        ("JMSCorrelationID = 'c3'", b"3"),
        ("JMSType = 'bill'", b"36"),
        ("JMSTimestamp = 1700000000000", b"4"),
        ("JMSExpiration > 0", b"3"),
        ("traceparent LIKE '00-%'", b"15"),
        ('"m.traceparent" IS NOT NULL', b"2"),
        ("AMQAddress = 'orders' AND NOT yes", b""),
    ],
)
def test_a_selector_sees_what_a_consumer_of_a_queue_sees(
    served: ScratchGateway, selector: str, bodies: bytes
) -> None:
    assert b"".join(row["body"] for row in read(served, selector=selector)) == bodies
    # The queue of the address has copies; a consumer with this selector gets the same.
    connection = BlockingConnection(f"amqp://{HOST}:{served.port}", timeout=20)
    try:
        options = [_browsing(selector)]
        receiver = connection.create_receiver("orders", credit=20, options=options)
        got = []
        while len(got) < len(bodies):
            message = receiver.receive(timeout=10)  # its body lies in it
            text = isinstance(message.body, str)
            got.append(message.body.encode() if text else bytes(message.body))
    finally:
        connection.close()
    assert b"".join(got) == bodies


def _browsing(selector: str) -> Any:
    from proton.reactor import Copy, Selector

    class Browsing(Selector):
        def apply(self, link: Any) -> None:
            super().apply(link)
            Copy().apply(link)

    return Browsing(selector)


def test_a_stream_over_tls_with_a_selector(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    gateway = ScratchGateway(
        tmp_path / "served", tls=(pair.certificate, pair.key), tls_management=True
    )
    with gateway as server:
        options = {
            "url": server.url, "address": "orders", "subscription": "tls", "selector": "n = '1'",
            "tlsCaFile": str(pair.certificate), "retryDeadline": "20s",
        }  # fmt: skip
        reader = DefaultSource(options).streamReader(SCHEMA)
        start = reader.initialOffset()
        peer = StompPeer(
            server.stomp_port, context=ssl.create_default_context(cafile=pair.certificate)
        )
        for number in range(4):
            peer.write(f"SEND\ndestination:orders\nn:{number % 2}\nreceipt:r\n\n", b"%d" % number)
            assert peer.read()[0] == "RECEIPT"
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["q"] == {"orders": [1, 4]}
        rows = [
            r for p in reader.partitions(start, end) for b in reader.read(p) for r in b.to_pylist()
        ]
        assert [row["body"] for row in rows] == [b"1", b"3"]
