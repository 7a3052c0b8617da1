"""Which addresses are full, blocked or paging now, and which limits of the gateway are reached.

    room ──a limit is reached, or an operator blocks──> full / blocked / paging ──> room again

`look` is called about once a second and returns what is different from the last time, and how often
it changed in between without being seen. An address that is paging takes what is sent, so it is
full only at its page limits; a limit of the gateway is told once, and not for each address that has
to wait for it. Addresses that drop what is beyond their limit hold nobody back: of these only a
look tells. A user who may have no more addresses, queues, consumers or links is told of as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from gateway.broker.directory.address import Address
from gateway.broker.directory.directory import Directory
from gateway.broker.pressure.load import Load
from gateway.broker.pressure.room import pages_full
from gateway.broker.pressure.store_gate import StoreGate
from gateway.model.objects import Kind, Reached
from gateway.paging.paging import Paging

GATEWAY: Final = ""
FULL: Final = "full"
BLOCKED: Final = "blocked"
PAGING: Final = "paging"
OBJECTS: Final = "objects"

#: Address name and kind, or GATEWAY and the key of the limit.
Which = tuple[str, str]
_Limit = tuple[str, int, int]  # key, limit, value


@dataclass(frozen=True, slots=True)
class Full:
    """Why nothing is taken, or why it goes to pages. `limit` and `value`: None without a number.

    Attributes:
        address: its name; GATEWAY for a limit of the gateway.
        kind: FULL, BLOCKED by an operator, PAGING, or OBJECTS, of which no more can be made.
        key: the setting that is reached; "" for an operator.
        value: what was held when it was found.
        user: whose limit it is; None: nobody's in particular.
    """

    address: str
    kind: str
    key: str
    limit: int | None
    value: int | None
    policy: str
    text: str
    user: str | None = None

    @property
    def which(self) -> Which:
        """What it is known by."""
        if self.user is not None:
            return self.address, f"{self.key} {self.user}"
        return self.address, self.kind if self.address != GATEWAY else self.key


class Fullness:
    """See the module text.

    Attributes:
        full: what was found by the last look.
        missed: how often each became full, or began to page, and was not seen by the last look.
    """

    __slots__ = ("_busy", "_directory", "_load", "full", "missed")

    def __init__(self, directory: Directory, load: Load, busy: StoreGate) -> None:
        self._directory = directory
        self._load = load
        self._busy = busy
        self.full: dict[Which, Full] = {}
        self.missed: Counter[Which] = Counter()

    def look(self) -> list[tuple[Full, bool]]:
        """Return (what, whether it began) for each edge since the last look."""
        before = self.full
        self.missed.clear()
        now, unseen = self._now()
        self.full = now
        edges = [(self.current(was), False) for which, was in before.items() if which not in now]
        edges += [(found, True) for which, found in now.items() if which not in before]
        for full in unseen:
            self.missed[full.which] -= 1
            edges += [(full, True), (self.current(full), False)]
        self.missed = +self.missed
        return edges

    def _now(self) -> tuple[dict[Which, Full], list[Full]]:
        """Return what is full, and what was in between and is no more."""
        found = {full.which: full for full in self._limits_reached()}
        unseen = []
        for address in self._directory.addresses.values():
            if not address.fillings and _cannot_be_full(address):
                continue
            fillings, address.fillings = address.fillings, 0
            here = self._states_of(address)
            found.update((full.which, full) for full in here)
            if not fillings:
                continue
            which = address.name, PAGING if address.uses_pages else FULL
            if which in found and which not in self.full:
                fillings -= 1
            self.missed[which] = fillings
            if fillings and which not in found and which not in self.full:
                unseen.append(self._passed(address, which[1]))
        return found, unseen

    def _states_of(self, address: Address) -> list[Full]:
        found = []
        if address.paging is not None:
            before = self.full.get((address.name, PAGING))
            limit = self._reached(address)
            if limit is not None or before is None:
                before = self._state(address, PAGING, limit or self._nearest(address))
            found.append(before)
        if address.operator_block:
            text = f"Address {address.name!r} was blocked by an operator."
            policy = address.settings.address_full_policy.value
            found.append(Full(address.name, BLOCKED, "", None, None, policy, text))
        elif address.guarded and (address.size_bytes or address.messages or address.paging):
            full = self._full(address)
            found += [] if full is None else [full]
        return found

    def _full(self, address: Address) -> Full | None:
        if address.uses_pages:
            refusal = pages_full(address)
            if refusal is None or address.paging is None:
                return None
            limits = _page_limits(address, address.paging)
            at = next((at for at in limits if 0 <= at[1] <= at[2]), limits[0])
            return replace(self._state(address, FULL, at), text=refusal.text)
        for at in _own_limits(address):
            if 0 <= at[1] <= at[2]:
                return self._state(address, FULL, at)
        # Its senders are let go a little below the limit: until then it is full.
        return self.full.get((address.name, FULL)) if address.blocked is not None else None

    def _state(self, address: Address, kind: str, at: _Limit) -> Full:
        key, limit, value = at
        text = f"Address {address.name!r} is full: it holds {value} and {key} is {limit}."
        if key.startswith("global-"):
            text = f"The gateway holds {value} and {key} is {limit}."
        policy = address.settings.address_full_policy.value
        return Full(address.name, kind, key, limit, value, policy, text)

    def _passed(self, address: Address, kind: str) -> Full:
        """Return what was and is no more when it was looked for."""
        found = self._state(address, kind, self._nearest(address))
        text = f"Address {address.name!r} was full for a moment: {found.key} is {found.limit}."
        return replace(found, value=None, text=text)

    # ---- limits

    def _reached(self, address: Address) -> _Limit | None:
        """Return the limit that has an address page, None where there is room."""
        limits = (*_own_limits(address), *self._gateway_limits())
        return next((at for at in limits if 0 <= at[1] <= at[2]), None)

    def _nearest(self, address: Address) -> _Limit:
        """Return the limit that was reached, as far as can be told when there is room again."""
        own = [at for at in _own_limits(address) if at[1] >= 0]
        limits = own or self._gateway_limits()
        return max(limits, key=lambda at: at[2] / max(1, at[1]))

    def _gateway_limits(self) -> tuple[_Limit, _Limit]:
        load = self._load
        return (
            ("global-max-size", load.memory_max, load.memory),
            ("global-max-messages", load.messages_max, load.messages),
        )

    def _limits_reached(self) -> list[Full]:
        """Return the limits of the gateway's own that are reached."""
        found = []
        for key, limit, value in self._gateway_limits():
            if 0 <= limit <= value:
                text = f"The gateway holds {value} and {key} is {limit}."
                found.append(Full(GATEWAY, FULL, key, limit, value, "", text))
        busy = self._busy
        if busy.refusal is not None:
            text = busy.refusal.text
            found.append(Full(GATEWAY, FULL, "store-task-limit", busy.limit, None, "", text))
        return found + [_no_more(one) for one in self._directory.objects.reached()]

    def current(self, full: Full) -> Full:
        """Return it with the limit and the value of now: a reload may have changed both."""
        if full.key == "store-task-limit":
            return replace(full, limit=self._busy.limit)
        if full.kind == OBJECTS:
            kind = Kind(full.key.rpartition("-")[2])
            return _no_more(self._directory.objects.look(kind, full.user))
        limits = list(self._gateway_limits())
        address = self._directory.addresses.get(full.address)
        if address is not None:
            limits += _own_limits(address)
            full = replace(full, policy=address.settings.address_full_policy.value)
            if address.paging is not None:
                limits += _page_limits(address, address.paging)
        for key, limit, value in limits:
            if key == full.key:
                return replace(full, limit=limit, value=value)
        return full


def _cannot_be_full(address: Address) -> bool:
    """Tell those apart at a glance that need no look: there may be very many."""
    if address.operator_block or address.paging is not None:
        return False
    return not (address.guarded and (address.size_bytes or address.messages))


def _no_more(reached: Reached) -> Full:
    limit, value = reached.limit, reached.value
    return Full(GATEWAY, OBJECTS, reached.key, limit, value, "", reached.text, reached.user)


def _own_limits(address: Address) -> tuple[_Limit, _Limit]:
    settings = address.settings
    return (
        ("max-size-bytes", settings.max_size_bytes, address.size_bytes),
        ("max-size-messages", settings.max_size_messages, address.messages),
    )


def _page_limits(address: Address, paging: Paging) -> tuple[_Limit, _Limit]:
    settings = address.settings
    size = len(paging.pages) * settings.page_size_bytes
    return (
        ("page-limit-bytes", settings.page_limit_bytes, size),
        ("page-limit-messages", settings.page_limit_messages, paging.most_messages),
    )
