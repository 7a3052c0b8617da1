"""`sluicegate connections`: who is connected to a running gateway, and closing one of them.

Exit status: 1 when there is no such connection.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from gateway.cli.http_client import Api, api_options

PATH: Final = "/api/v1/connections"
#: What one request asks for.
_PAGE: Final = 500
_HEADS: Final = (
    "id", "user", "remote", "protocol", "client", "since", "idle", "in flight", "in", "out",
)  # fmt: skip
#: What goes on in a second line where the terminal is narrow; what is left is for `client`.
_WRAPPED: Final = frozenset({"protocol", "in flight"})
#: What the gateway says of a connection.
Facts = dict[str, Any]
Command = Callable[..., Any]


class _ListByDefault(click.Group):
    """Lists when no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


_as_json: Final = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group(cls=_ListByDefault)
def connections() -> None:
    """Show who is connected (ls, also without a command), or close a connection."""


@connections.command()
@click.option("--of-user", help="Only those of this login.")
@click.option("--address", help="Only those that send to it or receive from it.")
@click.option("--remote", help="Only from this network address, or address:port.")
@click.option("--protocol", type=click.Choice(["amqp", "stomp"]), help="Only of this protocol.")
@click.option("--sort", default="id", show_default=True, help="since, idle, bytesIn ...; -: back.")
@_as_json
@api_options
def ls(
    *,
    as_json: bool,
    api: Api,
    of_user: str | None,
    sort: str,
    **filters: str | None,
) -> None:
    """List the open connections."""
    query = {name: value for name, value in (filters | {"user": of_user}).items() if value}
    asked = urlencode({**query, "sort": sort, "limit": _PAGE})
    found = list(_all(api, f"{PATH}?{asked}"))
    if as_json:
        for one in found:
            click.echo(json.dumps(one, ensure_ascii=False))
        return
    _show([_row(one) for one in found])
    plural = "" if len(found) == 1 else "s"
    click.echo(f"{len(found)} connection{plural}", err=True)


@connections.command(short_help="Close one, by its id.")
@click.argument("connection")
@click.option("--reason", default="", help="What the client is told.")
@_as_json
@api_options
def close(
    connection: str,
    *,
    reason: str,
    as_json: bool,
    api: Api,
) -> None:
    """Close CONNECTION, an id as `ls` shows it; what it holds goes back to its queues."""
    query = f"?{urlencode({'reason': reason})}" if reason else ""
    path = f"{PATH}/{quote(connection, safe='')}{query}"
    answer = api.delete(path)
    click.echo(json.dumps(answer) if as_json else f"{connection} closed")


def _all(api: Api, path: str) -> Iterator[Facts]:
    cursor = ""
    while True:
        part = api.get(path + cursor)
        yield from part["items"]
        if part["cursor"] is None:
            return
        cursor = f"&cursor={quote(part['cursor'], safe='')}"


def _row(one: Facts) -> tuple[str, ...]:
    tls = "" if one["tls"] is None else " TLS"
    if one["protocol"] is None:
        return (one["id"], "-", one["remote"], f"-{tls}", "-", _ago(one), "-", "-", "-", "-")
    client = one["product"] or one["clientId"] or "-"
    return (
        one["id"],
        one["user"] or "-",
        one["remote"],
        f"{one['protocol']} {one['version']}{tls}",
        f"{client} {one['productVersion']}".strip(),
        _ago(one),
        _seconds(one["idleSeconds"]),
        str(one["inFlight"]),
        str(one["messagesIn"]),
        str(one["messagesOut"]),
    )


def _ago(one: Facts) -> str:
    return _seconds(one["openSeconds"])


def _seconds(seconds: float) -> str:
    """Return a time in the largest unit that it has two of."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _show(rows: list[tuple[str, ...]]) -> None:
    """Print a table: drawn on a terminal, aligned columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  (70 ms that a pipe need not wait)
        from rich.markup import escape  # noqa: PLC0415
        from rich.table import Column, Table  # noqa: PLC0415

        console = Console()
        rows, widths = _fitted(rows, console.width)
        heads = (
            Column(head, no_wrap=head not in _WRAPPED, min_width=width)
            for head, width in zip(_HEADS, widths, strict=True)
        )
        table = Table(*heads, box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    for row in (_HEADS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _fitted(rows: list[tuple[str, ...]], width: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return rows whose client leaves room for all else in a terminal so wide, and least widths."""
    at = _HEADS.index("client")
    least = [
        max(max(map(len, cell.split())) if head in _WRAPPED else len(cell) for cell in column)
        for head, *column in zip(_HEADS, _HEADS, *rows, strict=True)
    ]
    room = max(len("client"), width - sum(least) + least[at] - len(_HEADS) - 1)
    least[at] = min(least[at], room)
    fitted = [
        (*row[:at], row[at] if len(row[at]) <= room else f"{row[at][: room - 1]}…", *row[at + 1 :])
        for row in rows
    ]
    return fitted, least
