"""What the tests of the clauses of STOMP 1.2 share."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from tests.broker.core import Core
from tests.conformance.clients import VERSIONS, Stomp
from tests.protocols.scripted_broker import ScriptedAuthenticator
from tests.protocols.stomp.peer import frames

every_version = pytest.mark.parametrize("version", VERSIONS)
from_1_1 = pytest.mark.parametrize("version", ["1.1", "1.2"])


class Stranger:
    """A connection that has said nothing yet."""

    def __init__(
        self, core: Core, *, users: ScriptedAuthenticator | None = None, **limits: Any
    ) -> None:
        self.core = core
        self.users = users or ScriptedAuthenticator()
        self.session = StompSession(
            core.gateway, self.users, StompLimits(**limits), "stranger", amqp_to_stomp
        )
        self.now = 100.0

    def says(self, data: str | bytes) -> list[tuple[str, dict[str, str], bytes]]:
        raw = data.encode() if isinstance(data, str) else data
        self.session.receive_data(raw, self.now)
        return self.hears()

    def hears(self) -> list[tuple[str, dict[str, str], bytes]]:
        out = self.session.data_to_send()
        self.core.sync()
        return frames(out + self.session.data_to_send())

    @property
    def gone(self) -> bool:
        return self.session.closing


def refused(came: list[Any], code: str) -> dict[str, str]:
    """Return the headers of the one ERROR that came."""
    ((command, headers, body),) = came
    assert (command, headers["error-code"]) == ("ERROR", code)
    assert body
    return headers


def ends(client: Stomp) -> bool:
    """Whether a refusal ended the connection, which it does in 1.2 and does not before."""
    assert client.session.closing == (client.version == "1.2")
    return True


def taken(core: Core, name: str = "q") -> list[str]:
    """Return the bodies of what waits in a queue."""
    return [body.decode() for body in core.waiting(name)] if name in core.gateway.queues else []
