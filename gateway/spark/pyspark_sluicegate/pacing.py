"""Answers that have to come at a pace: a server that drips would hold a task up for ever.

A socket's own timeout begins anew with each byte. Here the time that is spent waiting for bytes is
counted over the whole answer; what the reader does between two reads is not.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, Final

#: An answer has the time that is given, and a second more for each of these that have come.
BYTES_A_SECOND: Final = 8192


class PacedResponse(http.client.HTTPResponse):
    """A response whose reads raise TimeoutError when it has been waited for too long."""

    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
        *,
        seconds: float,
    ) -> None:
        """`seconds`: that may be waited before anything has come."""
        super().__init__(sock, debuglevel, method, url)
        raw: io.RawIOBase = self.fp.detach()
        self.fp = io.BufferedReader(_Paced(raw, seconds))


class _Paced(io.RawIOBase):
    """What a socket gives, with the time that it took."""

    def __init__(self, raw: io.RawIOBase, seconds: float) -> None:
        self._raw = raw
        self._seconds = seconds
        self._left = seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - any buffer
        begun = time.monotonic()
        count = self._raw.readinto(buffer)
        self._left += (count or 0) / BYTES_A_SECOND - (time.monotonic() - begun)
        if self._left < 0:
            raise TimeoutError(
                f"the answer comes slower than {self._seconds:g} s (readTimeout) and a second for "
                f"each {BYTES_A_SECOND} bytes"
            )
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
