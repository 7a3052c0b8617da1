"""Whether who asks has the role that a route needs."""

from __future__ import annotations

from collections.abc import Callable

from gateway.management.http import Request
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import ApiRoles, Need


class Allowing:
    """Implements `router.Allow`: everything is allowed while permissions are not `judged` at all.

    Attributes:
        roles: which roles of users stand for which step.
        auditor: is told of each refusal.
    """

    def __init__(self, judged: Callable[[], bool]) -> None:
        self.roles = ApiRoles()
        self.auditor: Auditor = SILENT
        self._judged = judged

    def __call__(self, request: Request, template: str, need: Need) -> None:
        """Raise RefusedError (not-authorized) unless the route may be called."""
        held = request.principal.roles
        if not self._judged() or self.roles.allow(need, held):
            return
        self.auditor.note(
            "role.refused",
            user=request.user,
            peer=request.peer,
            method=request.method,
            route=template,
            need=need.value,
        )
        raise RefusedError.of(Code.NOT_AUTHORIZED, self._text(request, template, need))

    def _text(self, request: Request, template: str, need: Need) -> str:
        who = "Who gave no user" if request.user is None else f"The user {request.user!r}"
        roles = ", ".join(sorted(request.principal.roles)) or "none"
        what = f"{request.method} {template}"
        least = need.role
        if least is None:
            return f"{what} needs a role. {who} has none; `sluicegate user roles` gives some."
        names = ", ".join(sorted(self.roles.names[least])) or "(none)"
        return (
            f"{what} needs {least.value!r} or more of [api-roles], which is the role {names}. {who}"
            f" has the roles: {roles}."
        )
