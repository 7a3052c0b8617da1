"""What was changed over the API, for the log: by whom, from where, what, how many."""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from gateway.management.http import Response
from gateway.management.router import Change
from gateway.model.audit import SILENT, Auditor

#: Fields of an answer that say how many of something were changed.
_COUNTS: Final = ("messages", "closed")
#: No answer that counts is longer than this.
_COUNTED_BYTES: Final = 4096

_log = structlog.get_logger()


def tell_change(change: Change, auditor: Auditor = SILENT) -> None:
    """Write one line; what was refused or failed is told as well, with its code."""
    request, answer = change.request, change.answer
    status = 500 if answer is None else answer.status
    facts = {
        "user": request.user,
        "peer": request.peer,
        "method": request.method,
        "route": change.template,
        **{f"of_{name}": value for name, value in change.parameters.items()},
        **({"query": dict(request.query)} if request.query else {}),
        **({"body": request.body.decode("utf-8", "replace")} if request.body else {}),
        "status": status,
        **_told(answer),
    }
    recorded = {**facts, "remote": request.peer, "peer": None, "body": _fields(request.body)}
    recorded = {name: value for name, value in recorded.items() if value is not None}
    if status >= 400:
        _log.info("api.change_refused", **facts)
        auditor.note("api.change_refused", **recorded)
    else:
        _log.info("api.changed", **facts)
        auditor.note("api.changed", **recorded)


def _fields(body: bytes) -> object:
    """Return what a body says, whose secrets a record can then leave out by name."""
    try:
        fields = msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return fields if isinstance(fields, dict) else None


def _told(answer: Response | None) -> dict[str, object]:
    """Return how many, or the code of a refusal."""
    if answer is None or not isinstance(answer.body, bytes) or len(answer.body) > _COUNTED_BYTES:
        return {}
    try:
        body = msgspec.json.decode(answer.body) if answer.body else None
    except msgspec.DecodeError:
        return {}
    if not isinstance(body, dict):
        return {}
    found = {name: body[name] for name in _COUNTS if isinstance(body.get(name), int)}
    if answer.status >= 400:
        found["code"] = body.get("code")
    elif answer.status == 201 and "name" in body:
        found["made"] = body["name"]
    return found
