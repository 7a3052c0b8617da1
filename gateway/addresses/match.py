"""Which settings hold for an address: wildcard matches, their order, and the merge field by field.

A match is words separated by `.`; `*` stands for one non-empty word, `#` (last word only) for zero
or more words: `news.europe.#` matches `news.europe`. For one address all matches that fit are
merged: each field comes from the first match, in this order, that sets it.

    1  the address itself, written out without a wildcard
       then between literal-match-markers: `(a.#)` is the one address named `a.#`
    2  matches without `#`: at the first word that differs the written word goes before `*`
    3  matches with `#`: the longer text first; equally long ones as in 2

Knows no file and no clock. Results are remembered for a bounded number of addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.addresses.settings import (
    CONTRADICTORY,
    DEFAULTS,
    INTERNAL,
    ROWS,
    AddressSettings,
    contradiction,
)
from gateway.model.address import is_internal

ANY_WORDS: Final = "#"
ONE_WORD: Final = "*"
DELIMITER: Final = "."
#: Settings are asked for when an address is made or attached to, not per message; 4,096 keeps the
#: working set of a large installation below 2 MiB.
CACHE_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsEntry:
    """What one match of the configuration sets.

    Attributes:
        match: the pattern as written.
        values: field name of AddressSettings -> value; only what was written.
        origins: field name -> where it was written (`sluicegate.toml:12`).
    """

    match: str
    values: Mapping[str, object]
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One effective value: `match` and `origin` are None for a default."""

    key: str
    value: object
    match: str | None
    origin: str | None

    def view(self) -> dict[str, object]:
        """Return it as JSON has it."""
        value = self.value.value if isinstance(self.value, Enum) else self.value
        return {"key": self.key, "value": value, "match": self.match, "origin": self.origin}


def match_problem(match: str) -> str | None:
    """Say why `match` is no pattern, or None."""
    if not match:
        return 'the match is empty; "#" matches every address'
    words = match.split(DELIMITER)
    if ANY_WORDS in words[:-1]:
        return f"{match!r} has '#' before its last word; '#' is the rest of a name and comes last"
    for word in words:
        if word not in (ANY_WORDS, ONE_WORD) and (ANY_WORDS in word or ONE_WORD in word):
            return f"{match!r}: '*' and '#' stand for whole words, not for a part of {word!r}"
    return None


def markers_problem(markers: str) -> str | None:
    """Say why these cannot be the two literal-match-markers ("" is none), or None."""
    if markers and (len(markers) != 2 or len(set(markers)) != 2):
        return f"{markers!r} is not two different characters, one before a match and one behind it"
    if not {ANY_WORDS, ONE_WORD, DELIMITER}.isdisjoint(markers):
        return f"{markers!r} holds a character that has a meaning of its own in a match"
    return None


def matches(match: str, address: str) -> bool:
    """Return whether `address` fits the pattern `match`."""
    words = match.split(DELIMITER)
    names = address.split(DELIMITER)
    if words[-1] == ANY_WORDS:
        words.pop()
        names_fit = len(names) >= len(words)
    else:
        names_fit = len(names) == len(words)
    if not names_fit:
        return False
    return all(
        word == name or (word == ONE_WORD and name != "")
        for word, name in zip(words, names, strict=False)
    )


def precedence(match: str, address: str) -> tuple[object, ...]:
    """Return a sort key: of two matches that fit `address`, the smaller one wins."""
    words = match.split(DELIMITER)
    if match == address and {ANY_WORDS, ONE_WORD}.isdisjoint(words):
        return (0,)
    starred = tuple(word == ONE_WORD for word in words)
    if words[-1] == ANY_WORDS:
        return (2, -len(match), starred)
    return (1, 0, starred)


class SettingsTable:
    """All matches of the configuration, and what they come to for an address."""

    __slots__ = ("_cache", "_entries", "_literals")

    def __init__(self, entries: Iterable[SettingsEntry] = (), *, markers: str = "") -> None:
        """Keep the entries; of two with the same match the later one wins field by field.

        `markers`: two characters around a match whose wildcards have no meaning; "" is none.
        """
        self._entries = tuple(entries)
        names = {entry.match: literal(entry.match, markers) for entry in self._entries}
        self._literals = {match: name for match, name in names.items() if name is not None}
        self._cache: dict[str, AddressSettings] = {}

    @property
    def entries(self) -> tuple[SettingsEntry, ...]:
        return self._entries

    def for_address(self, name: str) -> AddressSettings:
        """Return the effective settings of the address `name`."""
        found = self._cache.get(name)
        if found is None and is_internal(name):
            return INTERNAL
        if found is None:
            merged = self._merge(name)
            values = {field: entry.values[field] for field, entry in merged.items()}
            found = AddressSettings(**values) if values else DEFAULTS  # type: ignore[arg-type]
            if len(self._cache) >= CACHE_MAX:
                self._cache.clear()
            self._cache[name] = found
        return found

    def explain(self, name: str) -> list[Explained]:
        """Return every effective value of `name` with the match and the place that gave it."""
        settings = self.for_address(name)
        merged = self._merge(name)
        result = []
        for field_name, row in ROWS.items():
            entry = merged.get(field_name)
            result.append(
                Explained(
                    key=row.key,
                    value=getattr(settings, field_name),
                    match=None if entry is None else entry.match,
                    origin=None if entry is None else entry.origins.get(field_name),
                )
            )
        return result

    def contradictions(self) -> list[tuple[SettingsEntry, str, str]]:
        """Return (entry, field, why) for each match whose merged values contradict one another."""
        result = []
        for entry in self._entries:
            merged = self._merge(self._literals.get(entry.match) or _sample(entry.match))
            values = {field: source.values[field] for field, source in merged.items()}
            problem = contradiction(values)
            if problem is not None and not CONTRADICTORY.isdisjoint(entry.values):
                result.append((entry, *problem))
        return result

    def _merge(self, name: str) -> dict[str, SettingsEntry]:
        """Return, for each field that some match sets, the entry that wins."""
        fitting = [entry for entry in reversed(self._entries) if self._fits(entry.match, name)]
        fitting.sort(key=lambda entry: self._precedence(entry.match, name))
        merged: dict[str, SettingsEntry] = {}
        for entry in fitting:
            for field_name in entry.values:
                merged.setdefault(field_name, entry)
        return merged

    def _fits(self, match: str, name: str) -> bool:
        written = self._literals.get(match)
        return matches(match, name) if written is None else written == name

    def _precedence(self, match: str, name: str) -> tuple[object, ...]:
        return (0, 1) if match in self._literals else precedence(match, name)


def literal(match: str, markers: str) -> str | None:
    """Return the name between two markers, None where the match is a pattern."""
    marked = len(markers) == 2 and len(match) > 2 and match[0] + match[-1] == markers
    return match[1:-1] if marked else None


def _sample(match: str) -> str:
    """Return a name that `match` fits and that no other written-out word equals by chance."""
    unlikely = "\x00"
    words = match.split(DELIMITER)
    return DELIMITER.join(unlikely if word in (ANY_WORDS, ONE_WORD) else word for word in words)
