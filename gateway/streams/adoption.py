"""The streams of a gateway that takes over a history: made from what a table says of their ends.

Each begins with an empty log behind the last archived offset, in the same life, so that offsets go
on and readers do not notice. Pure: returns the text of the registry's state file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from gateway.model.address import check_name

VERSION = 1


class Ended(NamedTuple):
    """Where a stream's history ends."""

    address: str
    epoch: int
    end: int


def encode_adopted(identity: str, streams: Mapping[str, Ended]) -> bytes:
    """Return the state file of the gateway `identity` with `streams`, by their names.

    Raises RefusedError for a name that no stream or address can have.
    """
    found = []
    for number, (name, one) in enumerate(sorted(streams.items()), 1):
        check_name(name, "stream")
        check_name(one.address, "address")
        found.append(
            {
                "id": number,
                "name": name,
                "address": one.address,
                "epoch": one.epoch,
                "base": one.end,
            }
        )
    value = {
        "version": VERSION,
        "id": identity,
        "next_id": len(found) + 1,
        "epochs": {name: one.epoch for name, one in streams.items()},
        "streams": found,
    }
    return json.dumps(value, indent=1, sort_keys=True).encode()
