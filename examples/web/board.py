"""The order board's rules, for its worker and its Spark query: products, regions, a right order.

The page knows them from the same `catalogue.json`. Whoever is let in can send anything, so that a
page's own checks are a courtesy: these here count. An order says how many pieces, never a price.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

CATALOGUE = json.loads(Path(__file__).with_name("catalogue.json").read_text("utf-8"))
PRODUCTS = [product["name"] for product in CATALOGUE["products"]]
REGIONS: list[str] = CATALOGUE["regions"]
QUANTITY_MAX: int = CATALOGUE["quantityMax"]

#: Destinations of STOMP: one worker takes each order, every page sees each of the totals.
ORDERS = "/queue/orders"
TOTALS = "/topic/totals"
#: What the page's server, the worker and the Spark query log in with, from the environment.
PASSCODE = "ORDER_BOARD_PASSCODE"


def fault(body: str) -> str | None:
    """Return what is wrong with an order, None when nothing is."""
    try:
        order = json.loads(body)
    except ValueError:
        return "it is not JSON"
    if not isinstance(order, dict):
        return "it is not an object"
    quantity = order.get("quantity")
    if order.get("product") not in PRODUCTS:
        return f"the product {order.get('product')!r} is unknown"
    if order.get("region") not in REGIONS:
        return f"the region {order.get('region')!r} is unknown"
    if type(quantity) is not int or not 1 <= quantity <= QUANTITY_MAX:
        return f"the quantity {quantity!r} is not a whole number from 1 to {QUANTITY_MAX}"
    return None


def passcode() -> str:
    """Return the password from the environment; it stands in no argument, which others can see."""
    return os.environ.get(PASSCODE, "")


def say(text: str) -> None:
    """Tell whoever started this process; it reads lines."""
    print(text, flush=True)


def when_input_ends(call: Callable[[], object]) -> None:
    """Call once standard input is at its end: whoever started this process wants it to end.

    A pipe also ends when its other side was killed, so that no part is left behind.
    """

    def wait() -> None:
        while sys.stdin.readline():
            pass
        call()

    threading.Thread(target=wait, daemon=True, name="standard input").start()
