"""`sluicegate browse`: a queue's waiting messages, over the management API; changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import click

from gateway.cli.http_client import Api, api_options

#: What one request asks for; the API gives at most 1,000.
_PAGE: Final = 200


@click.command()
@click.argument("queue")
@click.option("--offset", default=0, type=click.IntRange(0), help="Skip so many.")
@click.option("--limit", default=0, type=click.IntRange(0), help="How many at most; 0: all.")
@click.option("--filter", "selector", default="", help="Only what this selector matches.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@api_options
def browse(
    queue: str,
    *,
    offset: int,
    limit: int,
    selector: str,
    as_json: bool,
    api: Api,
) -> None:
    """Print the waiting messages of QUEUE in the order in which they would be delivered.

    They stay where they are; those that a consumer holds are not shown.
    """
    count = 0
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages?filter={quote(selector, safe='')}"
    for message in _messages(api, path, offset, limit):
        count += 1
        click.echo(json.dumps(message, ensure_ascii=False) if as_json else _line(message))
    if not as_json:
        total = _total(api, queue, selector)
        click.echo(_summary(queue, count, total, filtered=bool(selector)), err=True)


def _total(api: Api, queue: str, selector: str) -> int:
    """Return how many wait, of those that match."""
    path = f"/api/v1/queues/{quote(queue, safe='')}"
    if selector:
        asked = f"{path}/countMessages?filter={quote(selector, safe='')}"
        return int(api.get(asked)["messages"])
    return int(api.get(f"{path}/messages?limit=1")["total"])


def _summary(queue: str, shown: int, total: int, *, filtered: bool) -> str:
    """Return how many there are, and of how many that is only a part."""
    total = max(shown, total)  # some may have left since they were shown
    plural = "" if total == 1 else "s"
    of = f"{shown} of {total}" if shown < total else str(total)
    matching = " that match" + ("es" if total == 1 else "") if filtered else ""
    return f"{of} message{plural} waiting in {queue}{matching}"


def _messages(api: Api, path: str, offset: int, limit: int) -> Iterator[dict[str, Any]]:
    """Ask page by page; messages that leave meanwhile are not shown twice but may be missed."""
    left = limit
    while True:
        size = min(_PAGE, left) if limit else _PAGE
        page = f"{path}&offset={offset}&limit={size}"
        items = api.get(page)["items"]
        yield from items
        offset += len(items)
        left -= len(items)
        if len(items) < size or (limit and left <= 0):
            return


def _line(message: dict[str, Any]) -> str:
    """Return what a person sees of a message: its place, what is special about it, its body."""
    facts = [f"#{message['sequence']}"]
    if message["priority"] != 4:
        facts.append(f"priority {message['priority']}")
    if message["deliveryCount"]:
        facts.append(f"failed {message['deliveryCount']}x")
    if not message["durable"]:
        facts.append("not durable")
    body = message["body"] if message["body"] is not None else ""
    kind = "base64 " if message["bodyEncoding"] == "base64" else ""
    cut = f" ... [{message['bodySize']} bytes]" if message["bodyTruncated"] else ""
    return f"{', '.join(facts)}: {kind}{body}{cut}"
