"""CONNECT and CONNECTED: version, login, heart-beats and names, judged before anything is shared.

Pure decisions about the headers; who may come in is asked by the session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.model.errors import Code, Refusal
from protocols.stomp.frame import encode, error
from protocols.stomp.heartbeat import Agreement, agree
from protocols.stomp.limits import StompLimits
from protocols.stomp.versions import SUPPORTED, Version, negotiate


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a good CONNECT came to.

    Attributes:
        version: the one to be spoken.
        user: login header, None when absent.
        password: passcode header, "" when absent.
        client_id: client-id header, None when absent.
        agent: user-agent header, as product/version; "" when absent.
        beats: heart-beats and time to live.
        connected: the CONNECTED frame.
    """

    version: Version
    user: str | None
    password: str
    client_id: str | None
    beats: Agreement
    agent: str
    connected: bytes

    def __repr__(self) -> str:
        # The password stays out of logs and tracebacks.
        return f"Greeting({self.version.text}, user={self.user!r}, client_id={self.client_id!r})"


def greet(headers: Mapping[str, str], limits: StompLimits, session: str) -> Greeting | None:
    """Judge the headers of CONNECT or STOMP; None when no version is common.

    Raises:
        RefusedError: bad heart-beat header.
    """
    version = negotiate(headers.get("accept-version"))
    if version is None:
        return None
    beats = agree(headers.get("heart-beat"), limits)
    reply: list[tuple[str, str]] = []
    if "accept-version" in headers:
        reply.append(("version", version.text))
    reply.append(("session", session))
    if limits.server_name is not None and version is not Version.V1_0:
        reply.append(("server", limits.server_name))
    if beats.reply is not None:
        reply.append(("heart-beat", beats.reply))
    if "request-id" in headers:
        reply.append(("response-id", headers["request-id"]))
    if limits.durability is not None:
        reply.append(("x-durability", limits.durability))
    return Greeting(
        version=version,
        user=headers.get("login"),
        password=headers.get("passcode", ""),
        client_id=headers.get("client-id"),
        beats=beats,
        agent=headers.get("user-agent", ""),
        # CONNECTED is never escaped [STOMP 1.2 Value Encoding]: it is written by the rules of 1.0,
        # which leave out what would need it.
        connected=encode("CONNECTED", reply, version=Version.V1_0),
    )


def wrong_login(user: str | None) -> Refusal:
    """Return why a login was not taken; None: there was none."""
    text = f"User name [{user}] or password is invalid."
    if user is None:
        text = "This gateway has users: CONNECT needs the headers login and passcode."
    return Refusal(code=Code.NOT_AUTHORIZED, text=text)


def login_held(user: str, seconds: float) -> Refusal:
    """Return why a login was not looked at; in `seconds` the next one is."""
    text = (
        f"Logins of user name [{user}] from this address are not looked at now, after wrong "
        "passwords or because too many logins are being checked; try again in "
        f"{math.ceil(seconds)} s."
    )
    return Refusal(code=Code.TOO_MANY, text=text, transient=True, wait=seconds)


def login_too_late(limits: StompLimits) -> Refusal:
    """Return why a peer that has not logged in is cut."""
    seconds = limits.login_seconds
    text = f"No complete CONNECT came within {seconds:g} s; send it right after connecting."
    return Refusal(code=Code.NOT_AUTHORIZED, text=text)


def too_much_before_login(size: int, limits: StompLimits) -> Refusal:
    """Return why `size` bytes are too much of a peer that is not known."""
    text = (
        f"{size} bytes came before the login was answered; the limit is "
        f"{limits.login_bytes_max}. Wait for CONNECTED before sending."
    )
    return Refusal(code=Code.TOO_LARGE, text=text)


def no_common_version(receipt: bytes | None) -> bytes:
    """Return the ERROR for a peer that speaks no version of ours [STOMP 1.2 Negotiation]."""
    versions = ", ".join(f"v{version.text}" for version in Version)
    refusal = Refusal(code=Code.BAD_HEADER, text=f"Supported protocol versions are {versions}.")
    return error(refusal, receipt, extra=[("version", SUPPORTED)])
