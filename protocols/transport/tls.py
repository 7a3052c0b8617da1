"""TLS without a socket: ciphertext in, plain text out, and back; the standard library's OpenSSL.

    handshaking ──feed──> ready ──close_notify came──> ended
         └──────what is no TLS, or breaks its rules─────> failed

Whoever drives it sends what `take` returns after each `feed`, before anything else: an alert, the
next flight of the handshake, or the answer to a KeyUpdate may wait there, and the peer for it.
Nothing is raised: what went wrong stands in `failure`, in one word, and nothing more is decrypted.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from typing import Any, Final

#: The plain text of one record at most [RFC 8446 5.1].
RECORD_BYTES: Final = 16384
#: What may be said before the handshake is done; it waits here.
HELD_BYTES_MAX: Final = 1 << 16
#: The first byte of a ClientHello's record [RFC 8446 5.1].
_HANDSHAKE: Final = 22
#: More certificates stand above a client's than are allowed.
TOO_DEEP: Final = "certificate-chain-too-long"
_NOT_WORD: Final = re.compile(r"[^a-z0-9]+")
#: The peer speaks something else.
NOT_TLS: Final = "not-tls"


class ServerContext(ssl.SSLContext):
    """What a server's connections are made of.

    Attributes:
        depth_max: certificates that may stand between a client's and its authority's; None: any.
    """

    depth_max: int | None = None


class Tls:
    """One end of a connection; see the module text.

    Attributes (read only):
        ready: the handshake is done.
        ended: the peer has said that nothing follows.
        failure: why there is nothing to be read any more; empty while there is.
    """

    __slots__ = (
        "_begun",
        "_closed",
        "_held",
        "_incoming",
        "_outgoing",
        "_tls",
        "ended",
        "failure",
        "ready",
    )

    def __init__(
        self, context: ssl.SSLContext, *, server: bool = True, name: str | None = None
    ) -> None:
        """Begin; a client (not `server`) tells the `name` that it looks for."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=name
        )
        self._held = b""
        # A client speaks first, and is judged by OpenSSL alone.
        self._begun = not server
        self._closed = False
        self.ready = self.ended = False
        self.failure = ""

    @property
    def version(self) -> str:
        """What was agreed on, `TLSv1.3`; empty before."""
        return self._tls.version() or ""

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the other end has proved to have, in DER; None: it was not asked.

        Whoever signed it was found among those that are trusted.
        """
        if not self.ready or self._tls.context.verify_mode is ssl.CERT_NONE:
            return None
        return self._tls.getpeercert(binary_form=True)

    @property
    def cipher(self) -> str:
        """The cipher suite that was agreed on; empty before."""
        found = self._tls.cipher()
        return found[0] if found else ""

    def feed(self, data: bytes | memoryview) -> bytes:
        """Take what came and return its plain text; what is to be answered is in `take`."""
        if self.failure or self.ended or not data:
            return b""
        if not self._begun:
            self._begun = True
            if data[0] != _HANDSHAKE:
                self.failure = NOT_TLS
                return b""
        self._incoming.write(data)
        if not self.ready:
            self.shake()
            if not self.ready:
                return b""
        return self._opened()

    def _opened(self) -> bytes:
        incoming, pending, read = self._incoming, self._tls.pending, self._tls.read
        plain: list[bytes] = []
        try:
            # Asking first spares an exception, which costs more than a small record.
            while incoming.pending or pending():
                part = read(RECORD_BYTES)
                if not part:
                    self.ended = True
                    break
                plain.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self._fail(error)
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def shake(self) -> None:
        """Go on with the handshake: `feed` does; a client begins with this."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._too_deep():
            self.failure = TOO_DEEP
            return
        self.ready = True
        if self._held:
            held, self._held = self._held, b""
            self._encrypt(held)

    def _too_deep(self) -> bool:
        """Whether more certificates stand above that of a client than its server allows."""
        context = self._tls.context
        most = context.depth_max if isinstance(context, ServerContext) else None
        if most is None or context.verify_mode is ssl.CERT_NONE:
            return False
        # Python has this from 3.13 on; before, it lies one object below.
        holder: Any = self._tls
        holder = holder if hasattr(holder, "get_verified_chain") else holder._sslobj  # noqa: SLF001
        chain = holder.get_verified_chain()
        return len(chain or ()) > most + 2

    def take(self) -> bytes:
        """Return what TLS itself has to say."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def seal(self, data: bytes) -> bytes:
        """Return the records of `data`, behind what `take` has; none before the handshake."""
        if self.ready:
            self._encrypt(data)
        elif len(self._held) + len(data) <= HELD_BYTES_MAX:
            self._held += data
        else:
            self.failure = self.failure or "too-much-before-the-handshake"
        return self._outgoing.read()

    def _encrypt(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            at = self._tls.write(data)
            while at < len(data):
                at += self._tls.write(memoryview(data)[at:])
        except ssl.SSLError as error:
            self._fail(error)

    def close(self) -> bytes:
        """Return what ends our side: a close_notify, behind all that was sealed [RFC 8446 6.1]."""
        if self.ready and not self._closed and (not self.failure or self.ended):
            # The peer's own is not waited for.
            with contextlib.suppress(ssl.SSLError, OSError):
                self._tls.unwrap()
        self._closed = True
        return self.take()

    def _fail(self, error: ssl.SSLError) -> None:
        self._held = b""
        if isinstance(error, ssl.SSLCertVerificationError) and self._tls.server_side:
            # Why a client's certificate is refused; without an article: `certificate-has-expired`.
            self.failure = _NOT_WORD.sub("-", error.verify_message.lower()).strip("-")
        else:
            self.failure = (error.reason or "broken").lower().replace("_", "-")
