"""The keys of one issuer over time: fetched, kept, and fetched again when they have rolled.

    empty ──asked for──> fetching ──keys──> there ──an unknown kid, or old──> fetching
                             └──none──> as before; asked again when a while has passed

Keys that are there go on while their issuer cannot be reached. A name of a key that nobody knows
has them fetched once a minute at most, whoever invents such names. Pure: the fetch and the time are
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.security.gate import Why
from gateway.tokens.keys import SigningKey, find_key

#: For a name that is not known.
REFETCH_SECONDS: Final = 60.0
#: After which keys are fetched again while they are used: what an issuer has taken back goes then.
OLD_SECONDS: Final = 600.0
#: After a fetch that failed.
RETRY_SECONDS: Final = 5.0

Found = Callable[[SigningKey | Why], None]


class Fetch(Protocol):
    """Gets the keys of an issuer: `done` is told them, or why not, later."""

    def __call__(self, done: Callable[[Sequence[SigningKey] | str], None]) -> None: ...


class Keys(Protocol):
    """Where a key is asked for; `found` may be called at once."""

    def ask(self, kid: str | None, algorithm: str, found: Found) -> None: ...


class FixedKeys:
    """Those of a file."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self._keys = keys

    def ask(self, kid: str | None, algorithm: str, found: Found) -> None:
        """See Keys."""
        found(find_key(self._keys, kid, algorithm) or Why.UNTRUSTED)


class RollingKeys:
    """See the module text."""

    def __init__(
        self, fetch: Fetch, seconds: Callable[[], float], failed: Callable[[str, int], None]
    ) -> None:
        """`failed` is told why keys could not be fetched, and how many of before go on."""
        self._fetch = fetch
        self._seconds = seconds
        self._failed = failed
        self._keys: Sequence[SigningKey] = ()
        self._fetching = False
        self._began: float | None = None  # the last fetch
        self._missed: float | None = None  # the last one for a name that nobody knew
        self._came: float | None = None  # the keys
        self._waiting: list[tuple[str | None, str, Found]] = []

    def ask(self, kid: str | None, algorithm: str, found: Found) -> None:
        """See Keys."""
        key = find_key(self._keys, kid, algorithm)
        if key is not None:
            found(key)
            if self._is_old():
                self._begin()
        elif self._fetching or self._may_fetch():
            if self._keys and not self._fetching:
                self._missed = self._seconds()
            self._waiting.append((kid, algorithm, found))
            self._begin()
        else:
            found(Why.UNTRUSTED if self._keys else Why.UNREACHABLE)

    def _is_old(self) -> bool:
        now = self._seconds()
        old = self._came is not None and now - self._came >= OLD_SECONDS
        return old and (self._began is None or now - self._began >= REFETCH_SECONDS)

    def _may_fetch(self) -> bool:
        last, wait = (self._missed, REFETCH_SECONDS) if self._keys else (self._began, RETRY_SECONDS)
        return last is None or self._seconds() - last >= wait

    def _begin(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._began = self._seconds()
            self._fetch(self._done)

    def _done(self, answer: Sequence[SigningKey] | str) -> None:
        self._fetching = False
        if isinstance(answer, str):
            self._failed(answer, len(self._keys))
        else:
            self._keys, self._came = answer, self._seconds()
        waiting, self._waiting = self._waiting, []
        # Where none could be had it is not known whether the token is good.
        otherwise = Why.UNREACHABLE if isinstance(answer, str) else Why.UNTRUSTED
        for kid, algorithm, found in waiting:
            found(find_key(self._keys, kid, algorithm) or otherwise)
