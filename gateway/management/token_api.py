"""A connection goes on by the token of a request.

POST  /api/v1/token  200 {"connection", "untilMs", "roles"}
    body {"connection"}: its id, which CONNECTED names as `session`

The request itself comes with the new token, as `Authorization: Bearer` or in the cookie that
`management.ws-token-cookie` names. It renews connections of its own user that came in by a token of
the same issuer, and no other: 403. So a page renews its WebSocket when nothing can be sent on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.listening.connections import Connections
from gateway.management.answers import Fields
from gateway.management.http import Request, Response, check_query, json_response, shorten
from gateway.management.json_body import read_fields
from gateway.management.router import Router
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import By, Principal
from gateway.model.roles import Need
from gateway.tokens.realm import renew_by

#: Where the API takes tokens.
ROUTE: Final = "/api/v1/token"


class Renewal(Fields):
    """The body: which connection is to go on."""

    connection: str


class TokenApi:
    """The function behind the route."""

    def __init__(self, groups: Sequence[Connections], auditor: Auditor = SILENT) -> None:
        self._groups = groups
        self._auditor = auditor

    def add_routes(self, router: Router) -> None:
        """Add the route."""
        router.add("POST", ROUTE, self.renew, need=Need.OPEN)  # whose it is, it judges

    def renew(self, request: Request) -> Response:
        """Have a connection go on by the token of this request."""
        check_query(request, ())
        said = read_fields(request, Renewal)
        name = said.connection
        mine = request.principal
        if mine.by is not By.TOKEN or mine.until_ms is None:
            text = "This request came without a token; send the new one as Authorization: Bearer."
            raise RefusedError.of(Code.NOT_AUTHORIZED, text)
        theirs = self._find(name)
        # Whether another user's connection exists is not for this one to know.
        if theirs is None or (theirs.issuer, theirs.user) != (mine.issuer, mine.user):
            text = f"Your user has no connection {shorten(name)} that came in by a token."
            raise RefusedError.of(Code.NOT_AUTHORIZED, text)
        refusal = renew_by(theirs, mine.roles, mine.until_ms, self._auditor)
        if refusal is not None:
            raise RefusedError(refusal)
        shown = {"connection": name, "untilMs": mine.until_ms, "roles": sorted(mine.roles)}
        return json_response(200, shown)

    def _find(self, name: str) -> Principal | None:
        for group in self._groups:
            wire = group.wires.get(name)
            if wire is not None and wire.session is not None:
                return wire.session.seen.principal
        return None
