"""Which addresses take nothing now, and which limits of the gateway are reached: edges and a list.

    room ──a limit is reached, or an operator blocks──> full / blocked ──room again──> room

`look` is called about once a second and returns what is different from the last time. That bounds
what is told: an address that flaps at its limit is told of at most once a look. An address that is
paging takes what is sent, so it is full only at its page limits; a limit of the gateway is told
once, and not for each address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.broker.pager import uses_pages

if TYPE_CHECKING:
    from gateway.broker.address import Address
    from gateway.broker.gateway import Gateway

GATEWAY: Final = ""


@dataclass(frozen=True, slots=True)
class Full:
    """Why nothing is taken. `limit` and `value`: None where there is no number.

    Attributes:
        address: its name; GATEWAY for a limit of the gateway.
        kind: "full", or "blocked" by an operator.
        key: the setting that is reached; "" for an operator, or for limits on pages.
        value: what was held when it was found.
    """

    address: str
    kind: str
    key: str
    limit: int | None
    value: int | None
    policy: str
    text: str


class Fullness:
    """See the module text. `full`: by address name and kind, or GATEWAY and key, as last looked."""

    __slots__ = ("_gateway", "full")

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.full: dict[tuple[str, str], Full] = {}

    def look(self) -> list[tuple[Full, bool]]:
        """Return (what, whether it began) for each edge since the last look."""
        before, now = self.full, self._now()
        self.full = now
        ended = [(was, False) for which, was in before.items() if which not in now]
        return ended + [(found, True) for which, found in now.items() if which not in before]

    def _now(self) -> dict[tuple[str, str], Full]:
        found = {(GATEWAY, full.key): full for full in _limits_reached(self._gateway)}
        for address in self._gateway.addresses.values():
            if address.operator_block:
                text = f"Address {address.name!r} was blocked by an operator."
                policy = address.settings.address_full_policy.value
                blocked = Full(address.name, "blocked", "", None, None, policy, text)
                found[address.name, "blocked"] = blocked
            elif address.guarded and (address.size_bytes or address.messages or address.paging):
                full = self._full(address)
                if full is not None:
                    found[address.name, "full"] = full
        return found

    def _full(self, address: Address) -> Full | None:
        settings = address.settings
        policy = settings.address_full_policy.value
        if uses_pages(address):
            refusal = self._gateway.pager.held_back(address)
            if refusal is None:
                return None
            return Full(address.name, "full", "", None, None, policy, refusal.text)
        for key, limit, value in (
            ("max-size-bytes", settings.max_size_bytes, address.size_bytes),
            ("max-size-messages", settings.max_size_messages, address.messages),
        ):
            if 0 <= limit <= value:
                text = f"Address {address.name!r} is full: it holds {value} and {key} is {limit}."
                return Full(address.name, "full", key, limit, value, policy, text)
        # Its senders are let go a little below the limit: until then it is full.
        return self.full.get((address.name, "full")) if address.blocked is not None else None


def _limits_reached(gateway: Gateway) -> list[Full]:
    """Return the limits of the gateway's own that are reached."""
    found = []
    for key, limit, value in (
        ("global-max-size", gateway.memory_max, gateway.memory),
        ("global-max-messages", gateway.messages_max, gateway.messages),
    ):
        if 0 <= limit <= value:
            text = f"The gateway holds {value} and {key} is {limit}."
            found.append(Full(GATEWAY, "full", key, limit, value, "", text))
    busy = gateway.busy
    if busy.refusal is not None:
        text = busy.refusal.text
        found.append(Full(GATEWAY, "full", "store-task-limit", busy.limit, None, "", text))
    return found


def facts(full: Full, origins: Mapping[str, str]) -> dict[str, object]:
    """Return what is told of it, without what does not apply."""
    told = {
        "address": full.address,
        "key": full.key,
        "limit": full.limit,
        "value": full.value,
        "origin": origins.get(full.key, "default") if full.key else "",
        "policy": full.policy,
    }
    return {key: value for key, value in told.items() if value not in ("", None)}
