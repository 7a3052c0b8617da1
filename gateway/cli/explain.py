"""`sluicegate explain`: the settings that hold for an address, each with where it comes from."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import click

from gateway.cli.errors import EX_USAGE, CliError
from gateway.cli.http_client import Api, api_options
from gateway.cli.settings import config_options, read_config
from gateway.model.address import check_name
from gateway.model.errors import RefusedError


@click.command()
@click.argument("address")
@api_options
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@config_options
def explain(
    address: str,
    *,
    api: Api,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> None:
    """Show each effective setting of ADDRESS, the match that gave it and where that was written.

    Asks the running gateway; with -c or --set it reads the configuration instead, no gateway
    needed.
    """
    if file is not None or sets or data is not None:
        items = _from_file(address, file, data, sets)
    else:
        path = f"/api/v1/addresses/{quote(address, safe='')}/settings"
        try:
            items = api.get(path)["items"]
        except CliError as error:
            if error.code == "not-connected":
                error.attempt = f"sluicegate explain {address} -c FILE"
            raise
    if as_json:
        click.echo(json.dumps({"address": address, "items": items}, indent=1))
        return
    for line in _table(items):
        click.echo(line)


def _from_file(
    address: str, file: str | None, data: str | None, sets: tuple[str, ...]
) -> list[dict[str, Any]]:
    try:
        check_name(address, "address")
    except RefusedError as error:
        raise CliError("bad-name", error.refusal.text, status=EX_USAGE) from None
    settings = read_config(file, sets, data).address_settings
    return [found.view() for found in settings.explain(address)]


def _table(items: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            str(item["key"]),
            _shown(item["value"]),
            "default" if item["match"] is None else f'address-settings."{item["match"]}"',
            str(item["origin"] or ""),
        )
        for item in items
    ]
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    cells = [[*(f"{row[n]:<{widths[n]}}" for n in range(3)), row[3]] for row in rows]
    return ["  ".join(line).rstrip() for line in cells]


def _shown(value: object) -> str:
    if value is None:
        return "(none)"
    return str(value).lower() if isinstance(value, bool) else str(value)
