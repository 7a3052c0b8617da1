"""Implements `gateway.model.audit.Auditor`: from an event and its facts to the body of a line.

A fact is a number, a text or a small collection; everything else becomes text here, before its
object changes. Secrets are not expected, and what stands under a name such as `password` is
blotted out all the same. Texts and lines are bounded. Nothing is raised, and nothing waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gateway.audit.events import PERSONAL, SUMMED, WHOLE
from gateway.audit.sums import PERIOD_MS, Sums
from gateway.audit.trail import time_text

TEXT_CHARS_MAX: Final = 1000
ITEMS_MAX: Final = 50
LINE_BYTES_MAX: Final = 8192
#: Fields of a line that no fact may take the place of.
_OWN: Final = frozenset({"seq", "prev", "time", "event", "hash"})
_SECRET: Final = re.compile(
    r"passw|passcode|passphrase|secret|token|credential|authorization|cookie|api_?key|private",
    re.IGNORECASE,
)

#: Takes the body of a line; `tell` runs after a time in seconds.
Post = Callable[[bytes], None]
Later = Callable[[float, Callable[[], None]], object]


class Recorder:
    """See the module text.

    Attributes:
        post: takes the body of each line; None: nothing is recorded.
        echo: takes event and facts as well, for the log; None: nobody does.
        personal: facts that say who somebody is are kept.
    """

    def __init__(self, now_ms: Callable[[], int], later: Later) -> None:
        self.post: Post | None = None
        self.echo: Callable[[str, Mapping[str, Any]], None] | None = None
        self.personal = True
        self._now_ms = now_ms
        self._later = later
        self._sums = Sums(WHOLE)
        self._waiting = False

    def note(self, event: str, **facts: object) -> None:
        """See Auditor."""
        if self.post is None and self.echo is None:
            return
        if self._sums.takes(event, facts, self._now_ms()):
            self._record(event, facts)
        if self._sums.running and not self._waiting:
            self._waiting = True
            self._later(PERIOD_MS / 1000, self._look)

    def _look(self) -> None:
        """A minute is over."""
        self._waiting = False
        for facts in self._sums.over(self._now_ms()):
            self._record(SUMMED, facts)
        if self._sums.running:
            self._waiting = True
            self._later(PERIOD_MS / 1000, self._look)

    def end(self) -> None:
        """Tell what was summed up so far."""
        for facts in self._sums.over(None):
            self._record(SUMMED, facts)

    def _record(self, event: str, facts: Mapping[str, object]) -> None:
        kept = {
            name: _plain(name, value)
            for name, value in facts.items()
            if name not in _OWN and (self.personal or name not in PERSONAL)
        }
        if not self.personal and str(kept.get("key", "")).startswith("users."):
            kept["key"] = "users"  # the rest of it is somebody's name
        if self.post is not None:
            self.post(body_of(event, kept, self._now_ms()))
        if self.echo is not None:
            self.echo(event, kept)


def body_of(event: str, facts: Mapping[str, Any], now_ms: int) -> bytes:
    """Return the JSON object of a line that is not sealed yet."""
    whole = {"time": time_text(now_ms), "event": event, **facts}
    body = msgspec.json.encode(whole)
    if len(body) <= LINE_BYTES_MAX:
        return body
    short = {name: value for name, value in whole.items() if not isinstance(value, list | dict)}
    short = {n: v[:100] if isinstance(v, str) and n != "event" else v for n, v in short.items()}
    body = msgspec.json.encode({**short, "shortened": True})
    if len(body) <= LINE_BYTES_MAX:
        return body
    return msgspec.json.encode({"time": whole["time"], "event": event[:200], "shortened": True})


def _plain(name: str, value: object, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Return a fact as JSON has it."""
    if _SECRET.search(name) and not isinstance(value, bool | int | float | None):
        return "***"
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _text(value)
        case Mapping() if depth < 2:
            items = list(value.items())[:ITEMS_MAX]
            return {_text(str(k)): _plain(str(k), v, depth + 1) for k, v in items}
        case list() | tuple() | set() | frozenset() if depth < 2:
            found = list(value) if isinstance(value, list | tuple) else sorted(map(str, value))
            return [_plain(name, one, depth + 1) for one in found[:ITEMS_MAX]]
    return _text(str(value))


def _text(text: str) -> str:
    """Return a text that JSON can have, not too long."""
    cut = len(text) - TEXT_CHARS_MAX
    if cut > 0:
        text = f"{text[:TEXT_CHARS_MAX]}...[{cut} characters]"
    return text.encode("utf-8", "backslashreplace").decode()
