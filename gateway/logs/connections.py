"""What the log says of connections: opened, let in, closed with the cause and what went over it.

A client that says nothing a protocol begins with, such as a load balancer's probe, is told of at
debug only. Refused passwords are the gate's to tell (`login.refused`).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gateway.logs.summing import Summed
from gateway.model.audit import SILENT, Auditor
from gateway.model.peers import Cause, Ending, PeerState
from protocols.transport.shell import Wire

_log = structlog.get_logger()


def remote_of(host: str, port: int) -> str:
    """Return a peer's address and port as one text; `local` where it has none."""
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tell_opened(
    acceptor: str,
    name: str,
    wire: Wire,
    known: Callable[[str], None],
    failures: Summed | None = None,
    *,
    auditor: Auditor = SILENT,
    listener: str = "",
) -> None:
    """A protocol's session has begun: say so, and again when its client is let in.

    `known` is called with `name` then. While failed logins are only counted, that a connection has
    opened is told at debug.
    """
    session = wire.session
    if session is None:
        return
    seen, facts = session.seen, wire.peer()
    remote = remote_of(facts.address, facts.port)
    tls = {} if wire.tls is None else {"tls": " ".join(wire.tls)}
    facts_said = {
        "connection": name,
        "acceptor": acceptor,
        "peer": remote,
        "protocol": seen.state().protocol,
        **tls,
    }
    if failures is not None and failures.summing:
        _log.debug("connection.opened", **facts_said)
    else:
        _log.info("connection.opened", **facts_said)

    def let_in() -> None:
        known(name)
        state = seen.state()
        _log.info(
            "login.accepted",
            connection=name,
            peer=remote,
            user=state.user,
            protocol=f"{state.protocol} {state.version}",
            client_id=state.client_id,
            **_client(state),
        )
        auditor.note(
            "login.accepted",
            user=state.user,
            remote=remote,
            listener=listener,
            protocol=f"{state.protocol} {state.version}",
            by=state.by,
            connection=name,
            client_id=state.client_id,
            **tls,
        )

    seen.on_login = let_in


def tell_closed(
    acceptor: str, name: str, wire: Wire, now: float, failures: Summed | None = None
) -> None:
    """A connection is gone; those of refused logins are told while `failures` has it so."""
    facts = wire.peer()
    remote = remote_of(facts.address, facts.port)
    went = {
        "seconds": round(now - wire.since, 3),
        "bytes_in": wire.bytes_in,
        "bytes_out": wire.bytes_out,
    }
    if wire.was is None:
        ending = wire.ending or Ending(cause=Cause.CUT)
        _log.debug(
            "connection.closed",
            connection=name,
            acceptor=acceptor,
            peer=remote,
            cause=ending.cause.value,
            reason=ending.text,
            **went,
        )
        return
    seen = wire.was.seen
    state = seen.state()
    ending = wire.ending or seen.ending or Ending(cause=Cause.CUT)
    tell = _log.info
    if ending.cause is Cause.LOGIN_REFUSED:
        tell = _log.warning if failures is None or failures.whole() else _log.debug
    tell(
        "connection.closed",
        connection=name,
        acceptor=acceptor,
        peer=remote,
        user=state.user,
        protocol=f"{state.protocol} {state.version}".rstrip(),
        cause=ending.cause.value,
        **({"reason": ending.text} if ending.text else {}),
        messages_in=state.messages_in,
        messages_out=state.messages_out,
        **went,
    )


def note_left(auditor: Auditor, listener: str, name: str, wire: Wire, now: float) -> None:
    """Have it on record that a client who was let in has left, and what went over."""
    if wire.was is None:
        return
    facts, seen = wire.peer(), wire.was.seen
    state = seen.state()
    ending = wire.ending or seen.ending or Ending(cause=Cause.CUT)
    auditor.note(
        "connection.closed",
        user=state.user,
        remote=remote_of(facts.address, facts.port),
        listener=listener,
        connection=name,
        cause=ending.cause.value,
        messages_in=state.messages_in,
        messages_out=state.messages_out,
        bytes_in=wire.bytes_in,
        bytes_out=wire.bytes_out,
        seconds=round(now - wire.since, 3),
    )


def _client(state: PeerState) -> dict[str, str]:
    """Return what the client says of itself, where it does."""
    client = f"{state.product} {state.product_version}".strip()
    return {"client": client} if client else {}
