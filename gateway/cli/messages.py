"""`sluicegate send` and `sluicegate receive`, over AMQP."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from gateway.cli.amqp_client import DEFAULT_URL, Login, Receiving, Sending
from gateway.cli.asking import read_password
from gateway.cli.errors import EX_USAGE, CliError
from gateway.cli.message_form import as_object, as_text, encoded
from gateway.cli.tls_trust import Trust, trust_options

_IDLE_SECONDS: Final = 2.0
Command = Callable[..., Any]


def login_options(command: Command) -> Command:
    """Add `--url`, `--user` and the password's ways in."""
    options: list[Callable[[Command], Command]] = [
        click.option("--url", default=DEFAULT_URL, show_default=True, help="The gateway."),
        click.option("--user", help="Login; none when left out."),
        click.option(
            "--password-stdin", is_flag=True,
            help="Read the password from standard input; else from SLUICEGATE_PASSWORD or asked.",
        ),
    ]  # fmt: skip
    command = trust_options(command)
    for option in reversed(options):
        command = option(command)
    return command


def _login(url: str, user: str | None, trust: Trust, *, from_stdin: bool) -> Login:
    """Return where to connect and as whom; the password of a user in `url` is asked for, too."""
    login = Login(url, user, None, trust)
    if login.user is not None and (login.password is None or from_stdin):
        login.password = read_password(login.user, from_stdin=from_stdin)
    return login


@click.command()
@click.argument("address")
@click.argument("body", required=False)
@click.option("-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="A property.")
@click.option("--count", default=1, type=click.IntRange(1), help="How many; {{n}} is the number.")
@click.option("--rate", default=0.0, type=click.FloatRange(0), help="Messages a second.")
@click.option("--non-durable", is_flag=True, help="Keep them in memory only.")
@click.option("--ttl", "ttl_ms", default=0, type=click.IntRange(0), help="Milliseconds to live.")
@click.option("--priority", default=4, type=click.IntRange(0, 9), help="0 to 9.")
@click.option("--content-type", help="For example application/json.")
@click.option("--json", "as_json", is_flag=True, help="Say how it went as JSON.")
@click.option(
    "--timeout", default=0.0, type=click.FloatRange(0),
    help="Seconds for all, connecting too; then status 124. 0: no end.",
)  # fmt: skip
@login_options
def send(
    address: str,
    body: str | None,
    *,
    headers: tuple[str, ...],
    count: int,
    rate: float,
    as_json: bool,
    timeout: float,
    url: str,
    user: str | None,
    password_stdin: bool,
    trust: Trust,
    **properties: Any,  # noqa: ANN401 - the options of one message
) -> None:
    """Send BODY (`-` or nothing: standard input) to ADDRESS; done when the gateway has it.

    Durable unless told otherwise: done means on disk.
    """
    text = _read_body(body)
    pairs = [_pair(header) for header in headers]
    login = _login(url, user, trust, from_stdin=password_stdin)
    messages = _messages(text, count, dict(pairs), properties)
    sending = Sending(login, address, messages, rate=rate, timeout=timeout, tell=_waits)
    how = {"address": address}
    try:
        sending.run()
    except CliError as error:
        if as_json:
            click.echo(json.dumps(how | {"confirmed": sending.confirmed, "error": error.code}))
        raise
    except KeyboardInterrupt:
        click.echo(f"interrupted: {sending.confirmed} confirmed", err=True)
        raise
    if as_json:
        click.echo(json.dumps(how | {"confirmed": sending.confirmed}))
    else:
        plural = "" if sending.confirmed == 1 else "s"
        click.echo(f"{sending.confirmed} message{plural} sent to {address}")


def _waits(reason: str) -> None:
    click.echo(f"waiting: {reason}", err=True)


def _read_body(body: str | None) -> str:
    if body is not None and body != "-":
        return body
    return sys.stdin.read()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise CliError("bad-header", f"-H {text} is not KEY=VALUE", status=EX_USAGE)
    return key, value


def _messages(
    text: str, count: int, headers: dict[str, str], properties: dict[str, Any]
) -> Iterator[bytes]:
    for number in range(1, count + 1):
        yield encoded(
            text.replace("{{n}}", str(number)),
            durable=not properties["non_durable"],
            priority=properties["priority"],
            ttl_ms=properties["ttl_ms"],
            content_type=properties["content_type"],
            properties=headers,
        )


@click.command()
@click.argument("address")
@click.option("--limit", default=0, type=click.IntRange(0), help="How many at most; 0: all.")
@click.option(
    "--timeout", default=_IDLE_SECONDS, show_default=True, type=click.FloatRange(0),
    help="Seconds without a message after which it is over; 0: never.",
)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Wait for more until Ctrl-C; as --timeout 0.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@login_options
def receive(
    address: str,
    *,
    limit: int,
    timeout: float,
    follow: bool,
    as_json: bool,
    url: str,
    user: str | None,
    password_stdin: bool,
    trust: Trust,
) -> None:
    """Receive messages of ADDRESS, print them and accept them: they leave the queue."""

    def take(message: bytes) -> None:
        click.echo(
            json.dumps(as_object(message), ensure_ascii=False) if as_json else as_text(message)
        )

    login = _login(url, user, trust, from_stdin=password_stdin)
    idle = 0.0 if follow else timeout
    receiving = Receiving(login, address, take, limit=limit, idle_seconds=idle)
    receiving.run()
    if not as_json:
        plural = "" if receiving.count == 1 else "s"
        click.echo(f"{receiving.count} message{plural} received from {address}", err=True)
