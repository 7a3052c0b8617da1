"""An AMQP client for one command: sends or receives, pipelined, and says how it went.

python-qpid-proton does the protocol. Its reactor calls back; what happened is left in the object
that was run (`error`, `confirmed`, `count`), and nothing is raised through Proton's C code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError

DEFAULT_URL: Final = "amqp://127.0.0.1:5672"
#: Messages under way that are not confirmed yet; what the gateway grants at once.
WINDOW: Final = 1000

try:
    from proton import Endpoint, Message, symbol
    from proton.handlers import MessagingHandler
    from proton.reactor import Container
except ImportError:
    raise CliError(
        "client-missing",
        "this command needs python-qpid-proton, which is not installed (extra [client])",
        attempt="pip install 'sluicegate[client]'   (builds from source, needs a C compiler)",
        status=EX_UNAVAILABLE,
    ) from None


class Login:
    """Where to connect and as whom."""

    __slots__ = ("password", "url", "user")

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        """Take `amqp://[user@]host[:port]`; raises CliError for another scheme."""
        parts = urlsplit(url if "//" in url else f"amqp://{url}")
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            text = f"{url} is no AMQP URL"
            raise CliError("bad-url", text, attempt=f"--url {DEFAULT_URL}", status=EX_USAGE)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
        self.url = f"{parts.scheme}://{host}:{port}"
        self.user = user or parts.username
        self.password = password or parts.password

    def __repr__(self) -> str:
        return f"Login({self.url}, {self.user})"


class Conversation(MessagingHandler):
    """What sending and receiving share: connecting, and noticing that it went wrong."""

    def __init__(self, login: Login, address: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.login = login
        self.address = address
        self.error: CliError | None = None
        self._connection: Any = None

    def run(self) -> None:
        """Run until done; raises CliError when it went wrong."""
        Container(self).run()
        if self.error is not None:
            raise self.error

    def connect(self, event: Any) -> Any:  # noqa: ANN401 - Proton ships no types
        """Open the connection, once."""
        self._connection = event.container.connect(
            self.login.url,
            user=self.login.user,
            password=self.login.password,
            reconnect=False,
            allow_insecure_mechs=True,
            allowed_mechs=None if self.login.user else "ANONYMOUS",
        )
        return self._connection

    def fail(self, code: str, text: str, attempt: str | None = None, status: int = 1) -> None:
        """Remember the first thing that went wrong, and leave."""
        if self.error is None:
            self.error = CliError(code, text, attempt=attempt, status=status)
        if self._connection is not None:
            self._connection.close()

    def leave(self) -> None:
        """Close in order."""
        self._connection.close()

    def on_transport_error(self, event: Any) -> None:  # noqa: ANN401
        """No connection, or it broke."""
        self._broken(event.transport.condition)

    def _broken(self, condition: Any) -> None:  # noqa: ANN401
        name = condition.name if condition else ""
        text = (condition.description if condition else "") or "the connection was cut"
        if "unauthorized" in name or "SASL" in text or "mechanism" in text.lower():
            who = f"user {self.login.user}" if self.login.user else "a connection without a user"
            self.fail("not-authorized", f"{self.login.url} refused {who}", "--user NAME")
        else:
            text = text.removeprefix("proton.pythonio: ")
            attempt = "sluicegate run, or --url amqp://HOST:PORT"
            self.fail("not-connected", f"{self.login.url}: {text}", attempt, EX_UNAVAILABLE)

    def on_connection_error(self, event: Any) -> None:  # noqa: ANN401
        """The gateway closed the connection with an error."""
        self.fail(*_remote(event.connection))

    def on_session_error(self, event: Any) -> None:  # noqa: ANN401
        """The gateway ended the session with an error."""
        self.fail(*_remote(event.session))

    def on_link_error(self, event: Any) -> None:  # noqa: ANN401
        """The gateway refused the link."""
        self.fail(*_remote(event.link))

    def on_disconnected(self, event: Any) -> None:  # noqa: ANN401
        """The connection is gone without a word."""
        if self._connection is not None and self._connection.state & Endpoint.LOCAL_ACTIVE:
            self._broken(event.transport.condition if event.transport else None)


def _remote(endpoint: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return code and text of an error that the gateway told."""
    condition = endpoint.remote_condition
    return _told(condition)


def _told(condition: Any) -> tuple[str, str]:  # noqa: ANN401
    if condition is None:
        return "refused", "the gateway gave no reason"
    code = (condition.info or {}).get(symbol("x-reason")) or condition.name
    return str(code), str(condition.description or condition.name)


class Sending(Conversation):
    """Sends all messages, each confirmed by the gateway; `confirmed` counts them."""

    def __init__(
        self, login: Login, address: str, messages: Iterator[Message], *, rate: float = 0.0
    ) -> None:
        """Prepare; `rate` is messages a second, 0 as fast as it goes."""
        super().__init__(login, address)
        self.confirmed = 0
        self._messages = messages
        self._sent = 0
        self._rate = rate
        self._sender: Any = None
        self._finished = False

    def on_start(self, event: Any) -> None:  # noqa: ANN401
        """Open connection and link."""
        self._sender = event.container.create_sender(self.connect(event), self.address)
        if self._rate:
            event.container.schedule(0, self)

    def on_sendable(self, event: Any) -> None:  # noqa: ANN401
        """There is credit: send on, unless a clock says when."""
        if not self._rate:
            while not self._finished and self._sender.credit:
                self._send_one()

    def on_timer_task(self, event: Any) -> None:  # noqa: ANN401
        """The clock says: one more, when there is credit."""
        if not self._finished and self.error is None:
            if self._sender.credit:
                self._send_one()
            event.container.schedule(1 / self._rate, self)

    def _send_one(self) -> None:
        message = next(self._messages, None)
        if message is None:
            self._finished = True
            self._leave_when_confirmed()
            return
        self._sender.send(message)
        self._sent += 1

    def on_accepted(self, event: Any) -> None:  # noqa: ANN401
        """One more is safe."""
        self.confirmed += 1
        self._leave_when_confirmed()

    def _leave_when_confirmed(self) -> None:
        if self._finished and self.confirmed == self._sent:
            self.leave()

    def on_rejected(self, event: Any) -> None:  # noqa: ANN401
        """The gateway does not take a message."""
        self.fail(*_told(event.delivery.remote.condition))

    def on_released(self, event: Any) -> None:  # noqa: ANN401
        """The gateway cannot take a message now."""
        self.fail("released", f"{self.address} takes no message now; {self.confirmed} were sent")


class Receiving(Conversation):
    """Receives up to `limit` messages; leaves when none has come for `idle_seconds`."""

    def __init__(
        self,
        login: Login,
        address: str,
        take: Callable[[Message], None],
        *,
        limit: int,
        idle_seconds: float,
    ) -> None:
        """Prepare; `take` is called with each message before it is accepted.

        `limit` 0 is no limit, `idle_seconds` 0 is to wait for ever.
        """
        super().__init__(login, address, prefetch=0, auto_accept=False)
        self.count = 0
        self._take = take
        self._limit = limit
        self._idle = idle_seconds
        self._receiver: Any = None
        self._task: Any = None

    def on_start(self, event: Any) -> None:  # noqa: ANN401
        """Open connection and link."""
        self._receiver = event.container.create_receiver(self.connect(event), self.address)
        self._wait(event)

    def on_link_opened(self, event: Any) -> None:  # noqa: ANN401
        """Ask for as many as are wanted, and no more: others may want the rest."""
        self._receiver.flow(min(self._limit, WINDOW) if self._limit else WINDOW)
        self._wait(event)

    def on_message(self, event: Any) -> None:  # noqa: ANN401
        """Take one."""
        if self._limit and self.count >= self._limit:
            self.release(event.delivery)
            return
        try:
            self._take(event.message)
        except BrokenPipeError:
            # Nobody reads what we print: give it back, to whoever comes next.
            self.release(event.delivery)
            self.fail("broken-pipe", "nobody reads the output")
            return
        self.accept(event.delivery)
        self.count += 1
        if self._limit and self.count >= self._limit:
            self.leave()
            return
        if self._receiver.credit < WINDOW // 2 and not self._limit:
            self._receiver.flow(WINDOW - self._receiver.credit)
        elif self._limit and not self._receiver.credit:
            self._receiver.flow(min(self._limit - self.count, WINDOW))
        self._wait(event)

    def _wait(self, event: Any) -> None:  # noqa: ANN401
        """Begin the idle time anew."""
        if self._task is not None:
            self._task.cancel()
        if self._idle:
            self._task = event.container.schedule(self._idle, self)

    def on_timer_task(self, event: Any) -> None:  # noqa: ANN401
        """Nothing has come for long enough."""
        self.leave()

    def on_connection_closed(self, event: Any) -> None:  # noqa: ANN401
        """Nothing is to be waited for any more."""
        if self._task is not None:
            self._task.cancel()

    on_connection_closing = on_connection_closed
