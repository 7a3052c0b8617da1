"""A STOMP 1.2 client of a few lines, for tests that look at each frame."""

from __future__ import annotations

import socket
import ssl

from gateway.trial.scratch import HOST


class StompPeer:
    """One connection, over TLS with a context; `read` returns (command, headers, body)."""

    def __init__(
        self,
        port: int,
        login: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=15)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=HOST)
        self._data = b""
        user = "" if login is None else f"login:{login[0]}\npasscode:{login[1]}\n"
        self.write(f"CONNECT\naccept-version:1.2\nhost:x\n{user}\n")
        self.greeting = self.read()

    def write(self, text: str, body: bytes = b"") -> None:
        self._socket.sendall(text.encode() + body + b"\0")

    def send(self, where: str, body: bytes, receipt: str = "") -> None:
        asked = f"receipt:{receipt}\n" if receipt else ""
        self.write(f"SEND\ndestination:{where}\ncontent-length:{len(body)}\n{asked}\n", body)

    def read(self) -> tuple[str, dict[str, str], bytes]:
        """Return the next frame; raises EOFError at the end, TimeoutError."""
        while b"\0" not in (frame := self._data.lstrip(b"\n")):
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self._data += data
        head, _, rest = frame.partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        headers = dict(line.partition(":")[::2] for line in reversed(lines))
        size = int(headers.get("content-length", rest.index(b"\0")))
        while len(rest) <= size:
            rest += self._socket.recv(65536)
        self._data = rest[size + 1 :]
        return command, headers, rest[:size]

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        self._socket.settimeout(seconds)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(15)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
