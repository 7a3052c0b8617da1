"""A TLS connection for load: the record layer over a blocking socket, driven by hand.

It reads what the kernel has in one call and decrypts all of it, where a TLS socket of the standard
library reads one record at a time; so the client costs the machine as little as can be, and what is
measured is the broker. Standard library only.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final

READ_BYTES: Final = 1 << 18
#: How much is encrypted at once: some sixteen records.
SEAL_BYTES: Final = 1 << 18
_BUFFER: Final = memoryview(bytearray(READ_BYTES))
_AT_ONCE: Final = socket.MSG_DONTWAIT


class TlsSocket:
    """A connected socket that speaks TLS; certificates are not judged, since this is a load.

    Attributes:
        version: what was agreed on, `TLSv1.3`.
    """

    __slots__ = ("_incoming", "_left", "_outgoing", "_tls", "socket", "version")

    def __init__(self, connected: socket.socket, host: str) -> None:
        """Shake hands; raises OSError (also ssl.SSLError) when the peer does not."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._left: memoryview | bytes = b""
        self._shake_hands()
        self.version = self._tls.version() or ""

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._receive()
            else:
                self.socket.sendall(self._outgoing.read())
                return

    def _receive(self) -> int:
        count = self.socket.recv_into(_BUFFER)
        if not count:
            raise ConnectionError("the peer closed the connection during the TLS handshake")
        self._incoming.write(_BUFFER[:count])
        return count

    def recv(self) -> bytes | None:
        """Read once; returns what is decrypted: None for a part of a record, empty at the end."""
        count = self.socket.recv_into(_BUFFER)
        if not count:
            return b""
        self._incoming.write(_BUFFER[:count])
        return self._opened()

    def _opened(self) -> bytes | None:
        found: list[bytes] = []
        read = self._tls.read
        try:
            while data := read(READ_BYTES):
                found.append(data)
        except ssl.SSLWantReadError:
            # A TLS 1.3 peer may ask for new keys, and is answered.
            if self._outgoing.pending:
                self._seal_more()
            return b"".join(found) or None
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(found)

    def _seal_more(self) -> None:
        self._left = bytes(self._left) + self._outgoing.read()
        self.flush()

    def send(self, data: bytes | memoryview) -> int:
        """Take up to SEAL_BYTES of `data`; nothing while earlier bytes wait for the socket."""
        if self._left and not self.flush():
            return 0
        part = data[:SEAL_BYTES]
        self._tls.write(part)
        self._left = self._outgoing.read()
        self.flush()
        return len(part)

    def flush(self) -> bool:
        """Write what waits, without waiting; returns whether nothing is left."""
        left = memoryview(self._left)
        while left:
            try:
                left = left[self.socket.send(left, _AT_ONCE) :]
            except BlockingIOError:
                break
        self._left = left
        return not left

    def sendall(self, data: bytes) -> None:
        """Write all of `data`, waiting for the socket."""
        self._tls.write(data)
        self.socket.sendall(bytes(self._left) + self._outgoing.read())
        self._left = b""

    def end(self) -> None:
        """Say that nothing follows [RFC 8446 6.1]."""
        # The peer's answer is not waited for.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self.socket.sendall(bytes(self._left) + self._outgoing.read())
        self._left = b""
