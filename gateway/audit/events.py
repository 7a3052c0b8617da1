"""What the audit trail may say: every event with its meaning; which a stranger can cause at will.

A test compares the catalogue with the calls in the code, and `docs/security.md` has it as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What the trail says of itself; the verification knows these.
OPENED: Final = "audit.opened"
RESUMED: Final = "audit.resumed"
DROPPED: Final = "audit.dropped"
LOST: Final = "audit.lost"
SUMMED: Final = "audit.summed"

EVENTS: Final[Mapping[str, str]] = {
    "api.change_refused": "a call of the API that would change something was refused; `code`",
    "api.changed": "something was changed over the API: `route`, `of_name`, and how many",
    DROPPED: "the oldest file goes, since `files-kept` are there: its number and its last line",
    LOST: "`count` events could not be kept: too many waited while the disk took nothing",
    OPENED: "a file begins: its number, the key it is sealed with, `fault` where one was found",
    RESUMED: "a start goes on in the file that was there; `torn` bytes were left by a crash",
    SUMMED: "`count` more `of` an event within `seconds`, by `users` and `remotes`",
    "certificate.refused": "a client certificate was not let in; `reason` says why",
    "config.changed": "a key has another value since a reload; `effect` says what it reaches",
    "config.refused": "a configuration that was read again is wrong; nothing was changed",
    "config.reloaded": "the configuration was read again; `why` says who asked",
    "connection.closed": "a client that was let in has left: what went over its connection",
    "gateway.started": "the gateway has opened its data directory",
    "gateway.stopped": "the gateway has stopped; `clean` when everything is on disk",
    "login.accepted": "a client was let in: user, remote, listener, and how it proved who it is",
    "login.refused": "a client was not let in; `reason` says why",
    "permission.refused": "a user may not do this there: permission, address, queue",
    "quota.reached": "a limit of a user, address or remote is reached, or is not any more",
    "role.refused": "a route of the API needs a role that the user has not",
    "token.ended": "the token of a connection has ended, and with it what it allowed",
    "token.refused": "a token was not taken; `reason` says why",
    "token.renewed": "a connection goes on with another token, roles or end",
    "user.changed": "a user came, went, or has other roles or another password",
}

#: Events that may be caused at will from outside -> how many of them are told whole in a minute.
#: The rest is summed up, so that nobody can fill the disk or push others' lines out of it.
WHOLE: Final[Mapping[str, int]] = {
    "login.refused": 100,
    "permission.refused": 100,
    "role.refused": 100,
    "certificate.refused": 100,
    "token.refused": 100,
    "quota.reached": 100,
    "api.change_refused": 100,
    # These need a login, and still are many where clients come and go.
    "login.accepted": 1000,
    "connection.closed": 1000,
    "token.ended": 1000,
    "token.renewed": 1000,
}

#: Facts that say who somebody is; left out with `personal-data = false`.
PERSONAL: Final = frozenset(
    [
        "user",
        "account",
        "remote",
        "names",
        "peer",
        "client",
        "client_id",
        "serial",
        "subject",
        "users",
        "remotes",
        "body",
        "query",
    ]
)
