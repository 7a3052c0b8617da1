"""Log records: what may be said, how it looks, what is kept out, and that writing never blocks."""

from __future__ import annotations

import ast
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure

from gateway.logs import lines as logs
from gateway.logs.lines import (
    EVENTS,
    LINES_WAITING_MAX,
    RECORD_BYTES_MAX,
    LineWriter,
    TwistedBridge,
    configure,
)
from gateway.security.secret import Secret

ROOT = Path(logs.__file__).parents[2]
METHODS = ("debug", "info", "warning", "error", "critical", "exception")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    written: list[str] = []
    configure(written.append, wall=lambda: 1_700_000_000.5, level="debug")
    yield written
    structlog.reset_defaults()


def said_events() -> dict[str, str]:
    """Return every event name that our code logs, with a place that does."""
    said: dict[str, str] = {}
    for package in ("gateway", "protocols", "storage"):
        for path in (ROOT / package).rglob("*.py"):
            if path.is_relative_to(ROOT / "gateway" / "spark"):
                # Runs inside Spark and logs as programs there do.
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in METHODS
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                    and isinstance(node.args[0].value, str)
                    and re.search(r"log|get_logger", ast.unparse(node.func.value), re.IGNORECASE)
                ):
                    said[node.args[0].value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return said


def test_the_catalogue_is_what_the_code_says() -> None:
    said = said_events()
    assert {name: place for name, place in said.items() if name not in EVENTS} == {}
    assert sorted(EVENTS.keys() - said.keys()) == []


def test_event_names_have_one_shape() -> None:
    assert [
        name for name in EVENTS if not re.fullmatch(r"[a-z]+(_[a-z]+)*\.[a-z]+(_[a-z]+)*", name)
    ] == []


def test_json_lines(lines: list[str]) -> None:
    structlog.get_logger().info("gateway.ready", port=5672, name="edge", free=None, ok=True)
    assert json.loads(lines[0]) == {
        "timestamp": "2023-11-14T22:13:20.500Z",
        "level": "info",
        "event": "gateway.ready",
        "port": 5672,
        "name": "edge",
        "free": None,
        "ok": True,
    }


def test_lines_for_people() -> None:
    written: list[str] = []
    configure(written.append, wall=lambda: 0.0, human=True)
    log = structlog.get_logger()
    log.info("gateway.ready", port=5672, name="edge one", empty="")
    log.debug("gateway.ready")
    log.error("gateway.failed", traceback="a\nb\x1b[31m\n")
    configure(written.append, wall=lambda: 0.0, human=True, colours=True)
    structlog.get_logger().warning("gateway.ready")
    structlog.reset_defaults()
    assert written == [
        '00:00:00.000 info    gateway.ready port=5672 name="edge one" empty=""',
        "00:00:00.000 error   gateway.failed\n    a\n    b\\x1b[31m",
        "00:00:00.000 \x1b[33mwarning\x1b[0m \x1b[1mgateway.ready\x1b[0m",
    ]


def test_secrets_stay_inside(lines: list[str]) -> None:
    canary = "hunter2"
    structlog.get_logger().info(
        "login.refused",
        password=canary,
        passcode=canary,
        Authorization=f"Basic {canary}",
        api_key=canary,
        session_cookie=canary,
        text=f"CONNECT passcode:{canary} then",
        header=f"Authorization: Basic {canary}",
        nested={"password": canary, "user": "ann"},
        secret=Secret(canary),
        holder=[Secret(canary)],
    )
    assert canary not in lines[0]
    assert "ann" in lines[0]


@pytest.mark.parametrize("human", [False, True])
def test_no_value_breaks_out_of_its_line(human: bool) -> None:
    written: list[str] = []
    configure(written.append, wall=lambda: 0.0, human=human)
    nasty = "a\r\n00:00 info gateway.ready\x1b[2J\x00\x9b\u2028z"
    structlog.get_logger().warning("login.refused", user=nasty)
    structlog.get_logger().warning(nasty, user=b"\n")
    structlog.reset_defaults()
    for line in written:
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028]", line)


@pytest.mark.parametrize("human", [False, True])
def test_a_record_is_bounded(human: bool) -> None:
    written: list[str] = []
    configure(written.append, wall=lambda: 0.0, human=human)
    log = structlog.get_logger()
    log.error("gateway.failed", text="ü" * 100_000)
    log.error("gateway.failed", traceback="line\n" * 10_000, error="e" * 5000)
    log.error("gateway.failed", **{f"key{n}": "x" * 300 for n in range(200)})
    structlog.reset_defaults()
    for line in written:
        assert len(line.encode()) <= RECORD_BYTES_MAX
        if not human:
            json.loads(line)


def test_the_end_of_a_traceback_is_kept(lines: list[str]) -> None:
    structlog.get_logger().error("gateway.failed", traceback="x\n" * 5000 + "ValueError: the cause")
    assert json.loads(lines[0])["traceback"].endswith("ValueError: the cause")


def test_twisted_speaks_through_structlog(lines: list[str]) -> None:
    publisher = LogPublisher(TwistedBridge())
    log = Logger(namespace="twisted.thing", observer=publisher)
    log.info("hello {who}", who="you\n")
    log.emit(LogLevel.warn, "careful")
    log.emit(LogLevel.error, "bad")
    log.failure("while {doing}", failure=Failure(ValueError("the cause")), doing="this")
    records = [json.loads(line) for line in lines]
    assert [(r["level"], r["event"], r["text"]) for r in records] == [
        ("debug", "twisted.reported", "hello you\\n"),
        ("warning", "twisted.reported", "careful"),
        ("error", "twisted.failed", "bad"),
        ("error", "twisted.failed", "while this"),
    ]
    assert records[0]["source"] == "twisted.thing"
    assert records[3]["error"] == "the cause"
    assert "ValueError" in records[3]["traceback"]


class SlowStream(io.StringIO):
    """A stream whose first write waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.go.wait(10)
        return super().write(text)


def test_a_blocked_stream_costs_lines_and_tells_so() -> None:
    stream = SlowStream()
    writer = LineWriter(stream)
    configure(writer.write, wall=lambda: 0.0)
    log = structlog.get_logger()
    log.info("gateway.ready", n=0)
    assert stream.entered.wait(10)
    for n in range(LINES_WAITING_MAX + 7):
        log.info("gateway.ready", n=n + 1)
    assert writer.dropped == 7
    stream.go.set()
    deadline = threading.Event()
    for _ in range(200):
        if "log.lines_dropped" in stream.getvalue():
            break
        deadline.wait(0.05)
    writer.close()
    structlog.reset_defaults()
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [r["n"] for r in written[:-1]] == list(range(LINES_WAITING_MAX + 1))
    assert written[-1]["event"] == "log.lines_dropped"
    assert written[-1]["count"] == 7


def test_a_closed_stream_does_no_harm() -> None:
    stream = io.StringIO()
    stream.close()
    writer = LineWriter(stream)
    writer.write("x")
    writer.close()
    assert writer.dropped == 1
