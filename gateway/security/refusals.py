"""Permissions brought into force, and refusals told to audit and log, which they cannot fill."""

from __future__ import annotations

from typing import Any

import structlog

from gateway.addresses.permissions import PermissionTable
from gateway.logs.summing import Summed
from gateway.model.audit import SILENT, Auditor
from gateway.security.gate import PasswordGate
from gateway.security.permits import Denied, Permits

_log = structlog.get_logger()


def use_permissions(gate: PasswordGate, permits: Permits, table: PermissionTable) -> None:
    """Have all who come, or are here, judged by these settings; by none where there are none."""
    permits.table = table
    gate.judge = permits if table else None
    _log.info("permissions.asked_for", matches=len(table.entries))


class PermissionLog:
    """Tells each refusal to the auditor, and the log of the first ones of a minute.

    Attributes:
        auditor: hears of all of them.
    """

    def __init__(self, clock: Any, auditor: Auditor = SILENT) -> None:  # noqa: ANN401 - zope's
        self.auditor = auditor
        self._told = Summed(clock, self._tell_more)

    def tell(self, denied: Denied) -> None:
        """Tell one."""
        entry, principal = denied.entry, denied.principal
        facts = {
            "user": principal.user,
            "remote": principal.remote,
            "permission": denied.permission.value,
            "address": denied.address,
            "queue": denied.queue,
            "match": entry.match or None,
            "origin": entry.where(denied.permission),
            "roles": sorted(principal.roles),
            "needs": denied.wanted,
        }
        self.auditor.note("permission.refused", **facts)
        if self._told.whole():
            shown = {key: " ".join(v) if isinstance(v, list) else v for key, v in facts.items()}
            _log.warning("permission.refused", **shown, error=denied.full)

    def _tell_more(self, count: int, seconds: float) -> None:
        _log.warning("permission.refused_more", count=count, seconds=seconds)
