"""Dead letters of real clients, counted and sent back: each one once, whatever is run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import stomp
from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway
from pyspark_sluicegate.pipelines import dead_letters
from tests.interop.support import queue, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

SETTINGS = (
    "address-settings.'#'.dead-letter-address='DLQ'",
    "address-settings.'#'.expiry-address='DLQ'",
    "message-expiry-scan-period=100",
)
#: What dies over AMQP: body, and what a sender of text or bytes gets back of it.
BODIES: dict[str, Any] = {"bytes": b"\x00\xff", "text": "tea", "map": {"a": 1}, "nothing": None}


class _Nacks(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, client: Any) -> None:
        self.client = client
        self.count = 0

    def on_message(self, frame: Any) -> None:
        self.client.nack(frame.headers["ack"], requeue="false")
        self.count += 1


def die_over_amqp(gateway: ScratchGateway, address: str) -> None:
    """Send `BODIES` and reject them; and one that expires."""
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}")
    sender = connection.create_sender(address)
    for i, (name, body) in enumerate(BODIES.items()):
        given = {"n": i, "odd": bool(i % 2)}
        sender.send(Message(body=body, inferred=isinstance(body, bytes), durable=True, id=name,
                            subject=f"of {name}", properties=given))  # fmt: skip
    receiver = connection.create_receiver(address)
    for _ in BODIES:
        receiver.receive(10)
        receiver.reject()
    receiver.close()
    sender.send(Message(body="late", durable=True, ttl=0.1, id="late"))
    connection.close()


def die_over_stomp(gateway: ScratchGateway, address: str) -> None:
    """Send an order and NACK it."""
    client = stomp.Connection12([(HOST, gateway.stomp_port)])
    nacks = _Nacks(client)
    client.set_listener("nacks", nacks)
    client.connect(wait=True)
    client.send(f"/queue/{address}", '{"region": "eu"}', content_type="application/json",
                persistent="true", tenant="a")  # fmt: skip
    client.subscribe(f"/queue/{address}", id="1", ack="client-individual")
    wait_until(lambda: nacks.count == 1)
    client.disconnect()


def head(gateway: ScratchGateway) -> int:
    _, shown = gateway.request("GET", "/api/v1/streams/DLQ")
    assert isinstance(shown, dict)
    return int(shown["head"])


def takings(gateway: ScratchGateway, address: str, count: int) -> dict[str, Message]:
    """Consume so many messages; returns them by message-id."""
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}")
    receiver = connection.create_receiver(address, credit=count)
    found = {}
    for _ in range(count):
        message = receiver.receive(10)
        receiver.accept()
        found[message.id] = message
    connection.close()
    wait_until(lambda: queue(gateway, address)["messageCount"] == 0)
    return found


class Program:
    """The pipeline on one dead-letter address, run in this process."""

    def __init__(self, gateway: ScratchGateway, capfd: pytest.CaptureFixture[str]) -> None:
        self.base = ["--url", gateway.url, "--address", "DLQ"]
        self.capfd = capfd

    def __call__(self, *given: str) -> list[dict[str, Any]]:
        """Return its output's lines of JSON."""
        self.capfd.readouterr()
        status = dead_letters.main([*self.base, "--json", *given])
        out, err = self.capfd.readouterr()
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def sent(self, *given: str) -> int:
        (found,) = self("--redrive", *given)
        return int(found["sent"])


@pytest.fixture
def gateway(gateway_process: Callable[..., ScratchGateway]) -> ScratchGateway:
    """A gateway whose dead letters are tapped, with seven of them."""
    made = gateway_process(settings=SETTINGS)
    made.request("POST", "/api/v1/streams", {"name": "DLQ", "address": "DLQ"})
    die_over_amqp(made, "orders")
    die_over_stomp(made, "work")
    connection = BlockingConnection(f"amqp://{HOST}:{made.port}")
    connection.create_sender("DLQ").send(Message(body="sent here", durable=True))
    connection.close()
    wait_until(lambda: head(made) == 7, 20)
    return made


def test_the_dead_are_counted_by_cause_origin_type_and_day(
    spark: Any, gateway: ScratchGateway, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program(gateway, capfd)
    metrics = tmp_path / "metrics"
    found = program("--metrics-file", str(metrics), "--batch", "3")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert {one.pop("day") for one in found} <= {today, time.strftime("%Y-%m-%d", time.gmtime())}
    counted = {tuple(one.values())[:3]: one["messages"] for one in found}
    assert counted == {
        ("undelivered", "orders", ""): 3,
        ("undelivered", "orders", "application/json"): 1,
        ("undelivered", "work", "application/json"): 1,
        ("expired", "orders", ""): 1,
        ("direct", "", ""): 1,
    }
    assert "sluicegate_dead_letters_letters_total 7\n" in metrics.read_text()
    chosen = program("--where", "body.region = 'eu' and headers.tenant = 'a'")
    assert [(one["original_address"], one["messages"]) for one in chosen] == [("work", 1)]
    capfd.readouterr()
    assert dead_letters.main(program.base) == 0
    table = capfd.readouterr().out.splitlines()
    assert table[0].split() == ["cause", "original", "address", "content", "type", "day",
                                "messages", "bytes"]  # fmt: skip
    assert table[-1].split()[:2] == ["all", "7"]


def test_a_selection_is_sent_back_once_and_what_dies_later_too(
    spark: Any, gateway: ScratchGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program(gateway, capfd)
    dry = program("--redrive", "--dry-run")
    assert sum(one["messages"] for one in dry) == 6
    assert queue(gateway, "orders")["messageCount"] == 0, "a dry run sends nothing"
    # Two ranges of four offsets, each in a batch for texts and one for bytes.
    (first,) = program("--redrive", "--batch", "4")
    assert (first["letters"], first["sent"], first["homeless"]) == (7, 6, 1)
    assert [program.sent() for _ in range(2)] == [0, 0]
    assert program("--redrive", "--dry-run") == []

    back = takings(gateway, "orders", 5)
    assert {name: back[name].body for name in ("text", "map", "late")} == {
        "text": "tea", "map": '{"a":1}', "late": "late",
    }  # fmt: skip
    assert bytes(back["bytes"].body) == b"\x00\xff"
    assert back["map"].content_type == "application/json"
    for i, name in enumerate(BODIES):
        assert back[name].subject == f"of {name}"
        assert back[name].properties == {"n": i, "odd": bool(i % 2)}, "headers keep their types"
        assert back[name].durable
        assert not back[name].annotations, "it tells of no death any more"
    (order,) = takings(gateway, "work", 1).values()
    assert order.body == '{"region": "eu"}'
    assert order.properties == {"tenant": "a"}

    # A gateway that was killed remembers; what died since is new to the same selection.
    gateway.kill()
    gateway.start()
    die_over_amqp(gateway, "orders")
    wait_until(lambda: head(gateway) == 12, 20)
    assert program.sent() == 5
    assert program.sent() == 0
    assert len(takings(gateway, "orders", 5)) == 5


def test_other_selections_and_other_places(
    spark: Any, gateway: ScratchGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program(gateway, capfd)
    where = "--where", "cause = 'undelivered' and original_address = 'orders'"
    assert program.sent(*where) == 4
    assert program.sent(*where, "--id", "again") == 4, "another id is another selection"
    assert program.sent(*where, "--id", "again") == 0
    assert queue(gateway, "orders")["messageCount"] == 8
    assert program.sent("--to", "morgue", "--routing", "anycast") == 7, "also what has no origin"
    assert queue(gateway, "morgue")["messageCount"] == 7
    assert program.sent("--to-queue", "--where", "original_queue = 'work'") == 1
    assert queue(gateway, "work")["messageCount"] == 1


def test_what_an_earlier_run_left_half_done_is_finished_or_forgotten(
    spark: Any, gateway: ScratchGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa

    from pyspark_sluicegate.sink_options import parse_sink_options
    from pyspark_sluicegate.staging import Batch

    program = Program(gateway, capfd)
    job = dead_letters.DeadLetterJob(
        spark, dead_letters.make_parser().parse_args([*program.base, "--redrive"])
    )
    stream = job._stream()
    name = job._plan(stream).producer
    options = parse_sink_options({"url": gateway.url, "address": "orders"})
    rows = [pa.record_batch({"body": pa.array(["tea"], pa.string())})]
    # It died behind the stage and before the commit: nothing was sent, and the stage will expire.
    Batch(options, f"{name}-text", stream.head).stage(rows, 0, "killed")
    assert program.sent() == 6
    # It died behind the commit of its texts and before that of its bytes.
    again = job._plan(stream)
    gateway.request("DELETE", f"/api/v1/sink/producers/{name}-bytes")
    assert (again.begin(), again.places) == (0, {"text": stream.head, "bytes": 0})
    assert program.sent() == 2, "the two of bytes alone"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--where", "cause ="], "--where 'cause =' is no expression"),
        (["--where", "nothing > 1"], "`nothing`"),
        (["--address", "untapped"], "'untapped' at http"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    spark: Any,
    gateway_process: Callable[..., ScratchGateway],
    capfd: pytest.CaptureFixture[str],
    given: list[str],
    text: str,
) -> None:
    made = gateway_process()
    made.request("POST", "/api/v1/streams", {"name": "DLQ", "address": "DLQ"})
    connection = BlockingConnection(f"amqp://{HOST}:{made.port}")
    connection.create_sender("DLQ").send(Message(body="one", durable=True))
    connection.close()
    assert dead_letters.main(["--url", made.url, "--address", "DLQ", *given]) == 1
    lines = capfd.readouterr().err.splitlines()
    (line,) = [one for one in lines if one.startswith("dead-letters:")]
    assert text in line
