"""An AMQP client for one command: sends or receives, pipelined, over TCP or TLS.

`amqp_link` does the protocol; here are the socket, the clock and what the commands want. Every
`run` raises CliError when it went wrong.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from gateway.cli.amqp_link import ClientLink, Delivery, State, refusal
from gateway.cli.amqp_login import PeerError
from gateway.cli.errors import EX_TIMEOUT, EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.http_client import login_hint
from gateway.cli.tls_trust import Trust
from protocols.amqp.performatives import ACCEPTED, RELEASED, Accepted, Rejected

DEFAULT_URL: Final = "amqp://127.0.0.1:5672"
#: Messages under way that are not confirmed yet; what the gateway grants at once.
WINDOW: Final = 1000
#: Seconds until there is a connection, a login and a link.
_OPENING_SECONDS: Final = 10.0
#: A socket's time-out of 0 would mean not to wait at all.
_LEAST_SECONDS: Final = 0.001
#: Seconds for the goodbye: all that matters was confirmed before it.
_CLOSING_SECONDS: Final = 2.0
#: Seconds without progress after which a sender says what it waits for.
WAIT_SECONDS: Final = 1.0
_READ_BYTES: Final = 1 << 16
#: Bytes that wait for the socket from which on no more are made.
_WRITE_BYTES: Final = 1 << 20
#: What is written and read in a moment does not need the poll to wait for longer.
_POLL_SECONDS_MAX: Final = 60.0


class Login:
    """Where to connect and as whom."""

    __slots__ = ("host", "password", "port", "trust", "url", "user")

    def __init__(
        self, url: str, user: str | None, password: str | None, trust: Trust | None = None
    ) -> None:
        """Take `amqp[s]://[user@]host[:port]`; raises CliError for another scheme."""
        parts = urlsplit(url if "//" in url else f"amqp://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname or port == -1:
            text = f"{url} is no AMQP URL"
            raise CliError("bad-url", text, attempt=f"--url {DEFAULT_URL}", status=EX_USAGE)
        secure = parts.scheme == "amqps"
        self.host = parts.hostname
        self.port = port or (5671 if secure else 5672)
        self.trust = (trust or Trust()) if secure else None
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"{parts.scheme}://{host}:{self.port}"
        self.user = user or (unquote(parts.username) if parts.username else None)
        self.password = password or (unquote(parts.password) if parts.password else None)

    def __repr__(self) -> str:
        return f"Login({self.url}, {self.user})"


class _Wire:
    """A socket that is read and written without waiting for longer than was asked."""

    def __init__(self, login: Login, seconds: float) -> None:
        """Connect; raises OSError, CliError for a certificate that is not trusted."""
        deadline = time.monotonic() + seconds
        self._socket = socket.create_connection((login.host, login.port), seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if login.trust is not None:
            try:
                self._socket.settimeout(max(_LEAST_SECONDS, deadline - time.monotonic()))
                self._socket = login.trust.wrap(self._socket, login.host, login.url)
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._unwritten = bytearray()

    @property
    def unwritten(self) -> int:
        """How many bytes the socket has not taken yet."""
        return len(self._unwritten)

    def write(self, data: bytes) -> None:
        """Put bytes behind those that wait."""
        self._unwritten += data

    def exchange(self, seconds: float) -> tuple[bytes, bool]:
        """Write and read what can be within `seconds`; returns what came and whether all is over.

        Raises OSError when the connection broke.
        """
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        self._write_some()
        wanted = [self._socket] if self._unwritten else []
        wait = 0.0 if pending else max(0.0, min(seconds, _POLL_SECONDS_MAX))
        select.select([self._socket], wanted, [], wait)
        self._write_some()
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b"", False
        except ssl.SSLEOFError:
            data = b""
        return data, not data

    def _write_some(self) -> None:
        while self._unwritten:
            try:
                with _uninterrupted():
                    count = self._socket.send(self._unwritten[:_READ_BYTES])
                    del self._unwritten[:count]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


def _container_id(command: str) -> str:
    """Return a name that no other connection has: two with one name could take it for theirs."""
    return f"sluicegate-{command}-{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}"


def _cut(error: OSError) -> PeerError:
    return PeerError("not-connected", error.strerror or str(error) or "the connection was cut")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep Ctrl-C for afterwards: what is printed is accepted, too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Conversation(ABC):
    """What sending and receiving share: connecting, going on, leaving."""

    def __init__(self, login: Login, address: str, *, sends: bool) -> None:
        self.login = login
        self.address = address
        user = login.user
        self.link = ClientLink(
            address,
            sends=sends,
            container_id=_container_id("send" if sends else "receive"),
            hostname=login.host,
            login=None if user is None else (user, login.password or ""),
        )
        self._wire: _Wire | None = None
        self.timeout = 0.0  # seconds for all of it, 0 for ever
        self._ends = math.inf

    @abstractmethod
    def step(self, now: float) -> float | None:
        """Do what can be done at `now`; returns when to call again at the latest, None: done."""

    def run(self) -> None:
        """Run until done; raises CliError when it went wrong."""
        began = time.monotonic()
        if self.timeout:
            self._ends = began + self.timeout
        opening = began + _OPENING_SECONDS
        try:
            self._connect(min(opening, self._ends))
            assert self._wire is not None
            try:
                self._go_on()
                self._leave()
            finally:
                self._wire.close()
        except PeerError as error:
            raise self._explained(error) from None

    def _connect(self, deadline: float) -> None:
        """Connect, log in and attach; raises CliError (timed-out) when all time was spent on it."""
        try:
            try:
                self._wire = _Wire(self.login, max(_LEAST_SECONDS, deadline - time.monotonic()))
            except OSError as error:
                raise _cut(error) from None
            try:
                self._open(deadline)
            except BaseException:
                self._wire.close()
                raise
        except (PeerError, CliError) as error:
            if error.code == "not-connected" and time.monotonic() >= self._ends:
                text = f"after {self.timeout:g} s {self.login.url} had not let us in"
                raise CliError("timed-out", text, status=EX_TIMEOUT) from None
            raise

    def _open(self, deadline: float) -> None:
        while self.link.state in (State.SASL, State.OPENING):
            now = time.monotonic()
            if now >= deadline:
                text = f"it did not answer within {_OPENING_SECONDS:.0f} s"
                raise PeerError("not-connected", text)
            self._exchange(now, deadline)

    def _go_on(self) -> None:
        try:
            while (due := self.step(now := time.monotonic())) is not None:
                self._exchange(now, due)
        except PeerError:
            raise
        except BaseException:
            # What was done before it counts: Ctrl-C brings nothing back that was printed.
            with suppress(PeerError):
                self._leave()
            raise

    def _exchange(self, now: float, due: float) -> None:
        """Write, wait until something comes or it is `due`, and read."""
        if not self._turn(now, due):
            return
        attempt = None
        if self.link.silent and self.login.trust is None:
            attempt = f"--url {self.login.url.replace('amqp:', 'amqps:')} if TLS is spoken there"
        raise PeerError("not-connected", "the connection was cut", attempt=attempt)

    def _turn(self, now: float, due: float) -> bool:
        """Do one turn of writing and reading; returns whether the peer has left."""
        assert self._wire is not None
        due = min(due, self.link.tick(now))
        with _uninterrupted():
            out = self.link.data_to_send()
            if out:
                self._wire.write(out)
                self.link.spoke(now)
        try:
            data, over = self._wire.exchange(due - now)
        except OSError as error:
            raise _cut(error) from None
        if data:
            self.link.heard(time.monotonic())
            self.link.receive_data(data)
        return over

    def _leave(self) -> None:
        """Close in order; an error of the gateway counts, but nothing depends on an answer."""
        self.link.close()
        deadline = time.monotonic() + _CLOSING_SECONDS
        try:
            while self.link.state is State.CLOSING and (now := time.monotonic()) < deadline:
                if self._turn(now, deadline):
                    return
        except PeerError as error:
            if error.code != "not-connected":
                raise

    def _explained(self, error: PeerError) -> CliError:
        if error.code in {"not-connected", "bad-frame"}:
            return self._not_connected(error.text, error.attempt)
        if error.code == "not-authorized" or (
            error.code == "amqp:unauthorized-access" and self.link.state is State.SASL
        ):
            if error.text and self.link.state is not State.SASL:
                # The login was good: what is asked for is not this user's to do.
                attempt = "--user NAME of a user with a role that may"
                return CliError("not-authorized", error.text, attempt=attempt)
            who = f"user {self.login.user}" if self.login.user else "a connection without a user"
            why = f" ({error.text})" if error.text else ""
            text = f"{self.login.url} refused {who}{why}"
            return CliError("not-authorized", text, attempt=login_hint(self.login.user))
        return CliError(error.code, error.text, attempt=error.attempt)

    def _not_connected(self, text: str, attempt: str | None = None) -> CliError:
        scheme = self.login.url.partition(":")[0]
        return CliError(
            "not-connected",
            f"{self.login.url}: {text}",
            attempt=attempt or f"sluicegate run, or --url {scheme}://HOST:PORT",
            status=EX_UNAVAILABLE,
        )


class Patience:
    """How long a sender waits without a word."""

    __slots__ = ("_progress", "_since", "_tell", "_told")

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._since = 0.0
        self._progress: tuple[int, int] | None = None
        self._told = ""

    def look(self, now: float, progress: tuple[int, int], reason: str) -> float:
        """Tell of `reason` ("": nothing is waited for); returns when to look again."""
        if progress != self._progress:
            self._progress, self._since, self._told = progress, now, ""
        due = now + _POLL_SECONDS_MAX
        if reason and reason != self._told:
            due = self._since + WAIT_SECONDS
            if now >= due:
                self._tell(f"for {now - self._since:.0f} s {reason}")
                self._told, due = reason, now + _POLL_SECONDS_MAX
        return due


class Sending(Conversation):
    """Sends all messages, each confirmed by the gateway; `confirmed` counts them."""

    def __init__(
        self,
        login: Login,
        address: str,
        messages: Iterator[bytes],
        *,
        rate: float = 0.0,
        timeout: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare; `rate` is messages a second, 0 as fast as it goes.

        `timeout` is in seconds from before connecting to the last outcome, 0 for ever; `tell` is
        called with what is waited for after WAIT_SECONDS without progress, once for each change.
        """
        super().__init__(login, address, sends=True)
        self.timeout = timeout
        self._patience = Patience(tell)
        self.confirmed = 0
        self._messages = messages
        self._sent = 0
        self._rate = rate
        self._next = 0.0
        self._finished = False

    def step(self, now: float) -> float | None:
        self._take_outcomes()
        if self._rate:
            due = self._send_by_clock(now)
        else:
            due = now + _POLL_SECONDS_MAX
            assert self._wire is not None
            while not self._finished and self.link.sendable and not self._crowded():
                self._send_one()
        if self._finished and self.confirmed == self._sent:
            return None
        return min(due, self._wait(now))

    def _wait(self, now: float) -> float:
        """Say what is waited for; returns when to look again. Raises CliError (timed-out)."""
        waits = self.confirmed < self._sent or not self.link.sendable
        if self.confirmed < self._sent:
            reason = "the gateway has not confirmed what was sent"
        else:
            reason = (
                f"the gateway gives no credit for {self.address}: the address is full or blocked, "
                "or the gateway or its disk is full; its log and /readyz of its API say which"
            )
        progress = (self.confirmed, self._sent)
        due = min(self._patience.look(now, progress, reason if waits else ""), self._ends)
        if due <= now:
            seconds, count = self.timeout, self.confirmed
            text = f"after {seconds:g} s {count} of the messages to {self.address} were confirmed"
            why = f"; {reason}" if waits else ""
            attempt = None
            if waits and self.confirmed == self._sent:
                attempt = f"sluicegate receive {self.address}, or the limits that /readyz names"
            raise CliError("timed-out", text + why, attempt=attempt, status=EX_TIMEOUT)
        return due

    def _crowded(self) -> bool:
        """Hand over what was made once there is much of it."""
        assert self._wire is not None
        if self._sent % 64 == 0:
            self._wire.write(self.link.data_to_send())
        return self._wire.unwritten >= _WRITE_BYTES

    def _send_by_clock(self, now: float) -> float:
        """Send one when its time has come and there is credit; returns the time of the next."""
        if now >= self._next and not self._finished and self.link.sendable:
            self._send_one()
            # The clock of one who was held up begins anew: no burst makes up for it.
            self._next = max(self._next + 1 / self._rate, now)
        return max(self._next, now) if self.link.sendable else now + _POLL_SECONDS_MAX

    def _send_one(self) -> None:
        message = next(self._messages, None)
        if message is None:
            self._finished = True
            return
        self.link.send(message)
        self._sent += 1

    def _take_outcomes(self) -> None:
        outcomes, self.link.outcomes = self.link.outcomes, []
        for _, state in outcomes:
            if isinstance(state, Accepted):
                self.confirmed += 1
            elif isinstance(state, Rejected):
                raise refusal(state)
            else:
                text = f"{self.address} takes no message now; {self.confirmed} were sent"
                raise PeerError("released", text)


class Receiving(Conversation):
    """Receives up to `limit` messages; leaves when none has come for `idle_seconds`."""

    def __init__(
        self,
        login: Login,
        address: str,
        take: Callable[[bytes], None],
        *,
        limit: int,
        idle_seconds: float,
    ) -> None:
        """Prepare; `take` is called with each message before it is accepted.

        `limit` 0 is no limit, `idle_seconds` 0 is to wait for ever.
        """
        super().__init__(login, address, sends=False)
        self.count = 0
        self._take = take
        self._limit = limit
        self._idle = idle_seconds
        self._last: float | None = None
        self._waiting: deque[Delivery] = deque()

    def step(self, now: float) -> float | None:
        if self._last is None or self.link.deliveries:
            self._last = now
        self._take_all()
        if self._limit and self.count >= self._limit:
            return None
        self._ask()
        if not self._idle:
            return now + _POLL_SECONDS_MAX
        due = self._last + self._idle
        return None if now >= due else due

    def _take_all(self) -> None:
        self._waiting.extend(self.link.deliveries)
        self.link.deliveries.clear()
        while self._waiting:
            with _uninterrupted():
                self._take_one(self._waiting[0])

    def _take_one(self, delivery: Delivery) -> None:
        try:
            self._take(delivery.body)
        except BrokenPipeError:
            # Nobody reads what we print: give it back, to whoever comes next.
            self._give_back()
            raise
        self._waiting.popleft()
        self.count += 1
        if not delivery.settled:
            self.link.settle(delivery.number, ACCEPTED)

    def _give_back(self) -> None:
        for delivery in self._waiting:
            if not delivery.settled:
                self.link.settle(delivery.number, RELEASED)

    def _ask(self) -> None:
        """Ask for as many as are wanted, and no more: others may want the rest."""
        wanted = min(self._limit - self.count, WINDOW) if self._limit else WINDOW
        if self.link.credit < (wanted + 1) // 2:
            self.link.ask(wanted)
