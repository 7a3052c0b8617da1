"""Which roles may do what at which address: `[security-settings]`, matched as Artemis does. Pure.

For a place, the one match that fits it best has the whole say, in the order of
`gateway.addresses.match`. Nothing is merged with wider matches, so that what a narrower one leaves
out is denied [Artemis manual, security: settings are not inherited]. What no match fits is denied.

    1  `address::queue`, written out, for what concerns that queue; no wildcards in it
    2  the matches of the address

An address whose name is a pattern hands out what is sent to other addresses. To read from it is
allowed where the best match that has all of those says so, and each match of only some of them too.

Knows no file and no clock. What was found is remembered for a bounded number of places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.addresses.match import literal, match_problem, matches, precedence
from gateway.addresses.wildcards import covers, fits, is_wildcard, overlap
from gateway.model.address import FQQN_SEPARATOR
from gateway.model.principal import Permission

#: Places whose settings are remembered. They are asked for when something is opened or made.
CACHE_MAX: Final = 4096

_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionEntry:
    """What one match of the configuration allows.

    Attributes:
        match: the pattern, or `address::queue`, as written.
        roles: permission -> who has it; only what was written.
        origins: where each permission was written (`sluicegate.toml:12`).
        origin: where the match was written.
    """

    match: str
    roles: Mapping[Permission, frozenset[str]]
    origins: Mapping[Permission, str] = field(default_factory=dict)
    origin: str = ""

    def roles_for(self, permission: Permission) -> frozenset[str]:
        """Return who has a permission here."""
        return self.roles.get(permission, _NOBODY)

    def where(self, permission: Permission) -> str:
        """Return where this is written: the permission, or else the match that leaves it out."""
        return self.origins.get(permission, self.origin)


#: Stands for the place that no match fits.
UNMATCHED: Final = PermissionEntry(match="", roles={})


def permission_match_problem(match: str) -> str | None:
    """Say why `match` is neither a pattern nor `address::queue`, or None."""
    address, separator, queue = match.partition(FQQN_SEPARATOR)
    if not separator:
        return match_problem(match)
    if not address or not queue or FQQN_SEPARATOR in queue:
        return f"{match!r} is no queue of an address; that is written address::queue"
    if is_wildcard(address) or is_wildcard(queue):
        return (
            f"{match!r} has a wildcard, and a match for one queue of an address is that queue "
            "alone; write it out, or give the address the setting"
        )
    return None


class PermissionTable:
    """All matches of the configuration, and what they come to for a place."""

    __slots__ = ("_cache", "_entries", "_literals", "_patterns", "_queues")

    def __init__(self, entries: Iterable[PermissionEntry] = (), *, markers: str = "") -> None:
        """Keep the entries; of two with the same match the later one counts.

        `markers`: two characters around a match whose wildcards have no meaning; "" is none.
        """
        by_match = {entry.match: entry for entry in entries}
        self._entries = tuple(by_match.values())
        self._literals: dict[str, PermissionEntry] = {}
        self._queues: dict[str, PermissionEntry] = {}
        patterns = []
        for match, entry in by_match.items():
            name = literal(match, markers)
            if name is not None:
                self._literals[name] = entry
            elif FQQN_SEPARATOR in match:
                self._queues[match] = entry
            else:
                patterns.append(entry)
        self._patterns = tuple(patterns)
        self._cache: dict[tuple[str, bool], tuple[PermissionEntry, ...]] = {}

    @property
    def entries(self) -> tuple[PermissionEntry, ...]:
        return self._entries

    def __bool__(self) -> bool:
        """Whether anything is written, so that permissions are asked for at all."""
        return bool(self._entries)

    def entries_for(
        self, address: str, queue: str | None, *, reads: bool = False
    ) -> tuple[PermissionEntry, ...]:
        """Return the entries that all have to allow what is done at an address, or its queue.

        `reads`: messages are taken or looked at, so that the name of a wildcard address counts for
        all that it hands out. There always is one: `UNMATCHED` where no match fits.
        """
        if queue is not None and self._queues:
            found = self._queues.get(f"{address}{FQQN_SEPARATOR}{queue}")
            if found is not None and not reads:
                return (found,)
            if found is not None:
                return (found, *self._parts(address)) if is_wildcard(address) else (found,)
        reads = reads and is_wildcard(address)
        known = self._cache.get((address, reads))
        if known is None:
            known = self._pattern(address) if reads else (self._best(address),)
            if len(self._cache) >= CACHE_MAX:
                self._cache.clear()
            self._cache[address, reads] = known
        return known

    def _best(self, address: str) -> PermissionEntry:
        """Return the entry that has the say at one address."""
        # What is written out comes first, also before a match between markers.
        fitting = [one for one in self._patterns if matches(one.match, address)]
        best = min(fitting, key=lambda one: precedence(one.match, address), default=None)
        marked = self._literals.get(address)
        if marked is not None and (best is None or precedence(best.match, address) > (0,)):
            return marked
        return UNMATCHED if best is None else best

    def _pattern(self, name: str) -> tuple[PermissionEntry, ...]:
        """Return the entries for all addresses that fit a wildcard address."""
        whole = [one for one in self._patterns if covers(one.match, name)]
        best = min(whole, key=lambda one: precedence(one.match, name), default=UNMATCHED)
        return (self._literals.get(name, best), *self._parts(name))

    def _parts(self, name: str) -> tuple[PermissionEntry, ...]:
        """Return the entries that hold for some of the addresses that fit a wildcard address."""
        some = [
            one
            for one in self._patterns
            if overlap(one.match, name) and not covers(one.match, name)
        ]
        marked = [one for at, one in self._literals.items() if at != name and fits(name, at)]
        return (*some, *marked)
