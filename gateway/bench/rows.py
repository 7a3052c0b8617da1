"""The rows of the bench: what is sent, how, and how much of it.

Standard library only; a row is turned into the jobs of driver processes by `gateway.bench.run`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

#: Windows as in the design figures: wide, moderate, one in flight.
WIDE: Final = 2000
MODERATE: Final = 100
#: No row is so small that starting up is what it shows.
COUNT_MIN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement.

    Attributes:
        key: what `--rows` selects by, and the key in `--json`.
        title: for people.
        protocol: `amqp` or `stomp`.
        kind: `in` (send, all confirmed), `out` (receive what lies there), `both` at once, `fan`
            (one sends to a topic, and `connections` subscribers receive each message).
        count: messages at scale 1; of `fan` those that are received.
        confirmed: each message by itself; else only the last of a connection.
        settle_every: messages that a receiver lets come before it settles them.
    """

    key: str
    title: str
    protocol: str
    kind: str
    count: int
    durable: bool = False
    connections: int = 1
    window: int = WIDE
    confirmed: bool = True
    shape: str = "uniform"
    ack: str = "auto"
    settle_every: int = 100

    def scaled(self, scale: float) -> int:
        """Return the count at a scale, a multiple of the connections."""
        each = max(round(self.count * scale), COUNT_MIN) // self.connections
        return max(each, 1) * self.connections


def _amqp(key: str, title: str, kind: str, count: int) -> Row:
    return Row(key=f"amqp-{key}", title=title, protocol="amqp", kind=kind, count=count)


def _stomp(key: str, title: str, kind: str, count: int) -> Row:
    return Row(key=f"stomp-{key}", title=title, protocol="stomp", kind=kind, count=count)


def _durable(row: Row) -> Row:
    return replace(row, durable=True)


def _spread(row: Row, connections: int, window: int) -> Row:
    return replace(row, connections=connections, window=window)


def _window(row: Row, window: int) -> Row:
    return replace(row, window=window)


ROWS: Final = (
    _amqp("in", "in", "in", 200_000),
    replace(_amqp("in-settled", "in, pre-settled", "in", 200_000), confirmed=False),
    _amqp("out", "out", "out", 200_000),
    _amqp("both", "in and out", "both", 200_000),
    _durable(_amqp("in-durable", "in, durable", "in", 200_000)),
    _durable(_amqp("out-durable", "out, durable", "out", 200_000)),
    _durable(_amqp("both-durable", "in and out, durable", "both", 200_000)),
    _window(_amqp("in-w100", "in, window 100", "in", 100_000), MODERATE),
    _durable(_window(_amqp("in-durable-w100", "in, durable, window 100", "in", 50_000), MODERATE)),
    _window(_amqp("in-w1", "in, window 1", "in", 10_000), 1),
    _durable(_window(_amqp("in-durable-w1", "in, durable, window 1", "in", 1_000), 1)),
    _spread(_amqp("100x1", "in, 100 producers of window 1", "in", 50_000), 100, 1),
    _durable(
        _spread(
            _amqp("100x1-durable", "in, durable, 100 producers of window 1", "in", 30_000), 100, 1
        )
    ),
    _spread(_amqp("10x100", "in, 10 producers of window 100", "in", 100_000), 10, MODERATE),
    _durable(
        _spread(
            _amqp("10x100-durable", "in, durable, 10 producers of window 100", "in", 100_000),
            10,
            MODERATE,
        )
    ),
    replace(_amqp("mixed-in", "in, mixed shapes", "in", 100_000), shape="mixed"),
    replace(_amqp("mixed-both", "in and out, mixed shapes", "both", 100_000), shape="mixed"),
    replace(_stomp("in", "in, no receipts", "in", 200_000), confirmed=False),
    replace(_stomp("out", "out", "out", 200_000), confirmed=False),
    replace(_stomp("both", "in and out, no receipts", "both", 200_000), confirmed=False),
    _durable(_window(_stomp("in-durable", "in, persistent, receipts", "in", 100_000), 1000)),
    _durable(
        replace(
            _stomp("both-durable", "in and out, persistent, receipts, ack client", "both", 100_000),
            window=1000,
            ack="client",
        )
    ),
    _durable(
        _window(_stomp("in-durable-w1", "in, persistent, receipts, window 1", "in", 1_000), 1)
    ),
    _durable(
        _spread(
            _stomp("100x1-durable", "in, persistent, 100 producers of window 1", "in", 30_000),
            100,
            1,
        )
    ),
    replace(
        _stomp("mixed-both", "in and out, mixed shapes, receipts", "both", 100_000),
        shape="mixed",
        window=1000,
    ),
    _spread(_stomp("fan-1000", "a topic to 1,000 subscribers", "fan", 200_000), 1000, MODERATE),
    _spread(
        _stomp("fan-1000-w1", "a topic to 1,000 subscribers, window 1", "fan", 50_000), 1000, 1
    ),
)

#: What warms a peer up: the row on which a virtual machine's compiler settles last.
WARM_UP: Final = next(row for row in ROWS if row.key == "amqp-both-durable")


def select(patterns: str) -> list[Row]:
    """Return the rows that any of the comma-separated patterns names (`amqp-in*`, `stomp-*`).

    Raises:
        ValueError: a pattern names none; the text lists the keys.
    """
    wanted = [part.strip() for part in patterns.split(",") if part.strip()]
    for pattern in wanted:
        if not any(fnmatchcase(row.key, pattern) for row in ROWS):
            keys = ", ".join(row.key for row in ROWS)
            raise ValueError(f"No row is called {pattern!r}. There are: {keys}.")
    return [row for row in ROWS if not wanted or any(fnmatchcase(row.key, part) for part in wanted)]
