"""The orders of the demo: written down by number, so that both ends know what the totals must be.

Pure: half the orders go over AMQP, half over STOMP, and what Spark must add up to is computed here
from the same list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ADDRESS: Final = "orders"
#: Where Spark sends the totals.
TOTALS: Final = "totals"
#: Cents a piece.
PRICES: Final = {"tea": 450, "coffee": 620, "cocoa": 580, "mate": 510, "rooibos": 490}
#: As Spark's `from_json` takes it.
SCHEMA: Final = "number INT, product STRING, pieces INT, cents BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What one product came to."""

    orders: int
    pieces: int
    cents: int


def order(number: int) -> dict[str, object]:
    """Return the order of this number."""
    product = list(PRICES)[number * 7 % len(PRICES) if number % 3 else 0]
    pieces = 1 + number * 5 % 9
    return {
        "number": number,
        "product": product,
        "pieces": pieces,
        "cents": pieces * PRICES[product],
    }


def encoded(number: int) -> str:
    """Return the order of this number as the JSON that is sent."""
    return json.dumps(order(number), separators=(",", ":"))


def expected(numbers: Iterable[int]) -> dict[str, Total]:
    """Return what the orders of these numbers come to, by product."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for number in numbers:
        one = json.loads(encoded(number))
        into = sums[one["product"]]
        into[0] += 1
        into[1] += one["pieces"]
        into[2] += one["cents"]
    return {name: Total(orders=a, pieces=b, cents=c) for name, (a, b, c) in sums.items()}


def differences(wanted: Mapping[str, Total], found: Mapping[str, Total]) -> list[str]:
    """Return one line for each product whose total is not what was sent; none when all agree."""
    nothing = Total(orders=0, pieces=0, cents=0)
    return [
        f"{name}: sent {_text(wanted.get(name, nothing))}, Spark has {_text(one)}"
        for name in sorted({*wanted, *found})
        if (one := found.get(name, nothing)) != wanted.get(name, nothing)
    ]


def read_total(body: str) -> tuple[str, Total]:
    """Return product and total of a message that Spark sent."""
    found = json.loads(body)
    return found.pop("product"), Total(**found)


def _text(total: Total) -> str:
    return f"{total.orders} orders, {total.pieces} pieces, {total.cents / 100:,.2f}"
