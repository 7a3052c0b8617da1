"""STOMP frames as a client of each version writes and reads them; written for the simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.simulation.model import ViolationError

_ESCAPES = {
    "1.0": {},
    "1.1": {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    "1.2": {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}


class Frame:
    """What came: command, headers (the first of a name counts), body."""

    __slots__ = ("body", "command", "headers")

    def __init__(self, command: str, headers: dict[str, str], body: bytes) -> None:
        self.command = command
        self.headers = headers
        self.body = body


def write(
    command: str, headers: Mapping[str, str], body: bytes = b"", version: str = "1.0"
) -> bytes:
    """Return a frame's bytes."""
    lines = [command]
    lines += [f"{_escaped(n, version)}:{_escaped(v, version)}" for n, v in headers.items()]
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"


class Reader:
    """Cuts bytes into frames, whatever pieces they come in."""

    def __init__(self) -> None:
        self.version = "1.0"
        self._kept = bytearray()
        self._ended = False

    def read(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now."""
        kept = self._kept
        kept += data
        while True:
            if self._ended and kept:
                if kept[0] != 10:
                    raise ViolationError(f"no LF behind NUL, but {bytes(kept[:20])!r}")
                self._ended = False
            start = 0
            while start < len(kept) and kept[start] in b"\r\n":
                start += 1
            del kept[:start]
            head = kept.find(b"\n\n")
            if head < 0:
                return
            command, *lines = kept[:head].decode().split("\n")
            headers: dict[str, str] = {}
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    raise ViolationError(f"a header without colon: {line!r}")
                headers.setdefault(self._plain(name), self._plain(value))
            end = self._end(headers, head + 2)
            if end < 0:
                return
            if kept[end] != 0:
                raise ViolationError(f"no NUL behind {command} of {headers}")
            body = bytes(kept[head + 2 : end])
            del kept[: end + 1]
            self._ended = True
            yield Frame(command, headers, body)

    def _end(self, headers: dict[str, str], start: int) -> int:
        if "content-length" in headers:
            end = start + int(headers["content-length"])
            return end if end < len(self._kept) else -1
        return self._kept.find(b"\0", start)

    def _plain(self, text: str) -> str:
        plain = {escaped: text for text, escaped in _ESCAPES[self.version].items()}
        return re.sub(r"\\.", lambda m: plain[m[0]], text, flags=re.DOTALL) if plain else text


def _escaped(text: str, version: str) -> str:
    for plain, escaped in _ESCAPES[version].items():
        text = text.replace(plain, escaped)
    return text
