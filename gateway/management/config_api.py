"""The HTTP calls on the configuration, below `/api/v1`.

GET    /config           when it was last taken over and from which file, what of it needs a
                         restart, and what was wrong with a later one
POST   /config:reload    reads file, environment, options and users again and brings them into
                         force; 200 with all that is different, each with its effect:
                             at-once          for all that is there
                             new-connections  those that are open keep what they have
                             new-queues       a default; queues that are there keep theirs
                             restart          named, and the old value stays in force
                             stays            gone from the file; nothing that exists is deleted
                         422 with every mistake when it is wrong: nothing has changed then
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.config.diff import Change
from gateway.config.errors import ConfigError, Problem
from gateway.management.answers import Nothing
from gateway.management.http import Request, Response, check_query, json_response
from gateway.management.json_body import read_fields
from gateway.management.router import Router
from gateway.model.roles import Need
from gateway.model.rows import Reach
from gateway.reload.reloads import Outcome, Reloads


def change_view(change: Change) -> dict[str, object]:
    """Return one difference; null as `old` or `new`: nothing was, or is, written."""
    return {
        "key": change.key,
        "old": change.old,
        "new": change.new,
        "effect": change.reach.value,
        "origin": change.origin or None,
    }


def problem_view(problem: Problem) -> dict[str, object]:
    """Return one mistake."""
    return {
        "where": problem.where or None,
        "key": problem.path or None,
        "message": problem.text,
    }


def outcome_view(outcome: Outcome, file: str | None) -> dict[str, object]:
    """Return what came of a reload."""
    return {
        "file": file,
        "loadedMs": outcome.loaded_ms,
        "changed": len(outcome.changes),
        "needsRestart": restart_keys(outcome),
        "connectionsClosed": outcome.closed,
        "items": [change_view(change) for change in outcome.changes],
    }


def restart_keys(outcome: Outcome) -> list[str]:
    """Return the keys that are not in force before a restart."""
    return [change.key for change in outcome.changes if change.reach is Reach.RESTART]


class ConfigApi:
    """The functions behind the routes."""

    def __init__(self, reloads: Reloads) -> None:
        self._reloads = reloads

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/api/v1/config", self.show, need=Need.VIEW)
        router.add("POST", "/api/v1/config:reload", self.reload, need=Need.ADMIN)

    def show(self, request: Request) -> Response:
        """When the configuration was last taken over, and what is not in force."""
        check_query(request, ())
        reloads = self._reloads
        refused = reloads.refused
        told: dict[str, object] | None = None
        if refused is not None:
            problems = [problem_view(problem) for problem in refused.problems]
            told = {"atMs": refused.at_ms, "problems": problems}
        shown = {
            "file": reloads.file,
            "loadedMs": reloads.last.loaded_ms,
            "reloads": reloads.count,
            "needsRestart": restart_keys(reloads.last),
            "refused": told,
            "usersRefused": [problem_view(problem) for problem in reloads.users.problems],
        }
        return json_response(200, shown)

    def reload(self, request: Request) -> Deferred[Response]:
        """Read it again, and answer with all that is different."""
        check_query(request, ())
        if request.body:
            read_fields(request, Nothing)
        done = self._reloads.reload("API")
        return done.addCallbacks(self._told, _refused)

    def _told(self, outcome: Outcome) -> Response:
        return json_response(200, outcome_view(outcome, self._reloads.file))


def _refused(failure: Failure) -> Response:
    failure.trap(ConfigError)
    error = failure.value
    assert isinstance(error, ConfigError), "trapped"
    return refused_response(error.problems)


def refused_response(problems: Sequence[Problem]) -> Response:
    """Return the answer that tells all mistakes: one line each for people, and apart."""
    count = len(problems)
    head = f"{count} mistake{'s' * (count > 1)}; nothing was changed"
    shown = {
        "code": "bad-configuration",
        "message": "\n".join([head, *map(str, problems)]),
        "problems": [problem_view(problem) for problem in problems],
    }
    return json_response(422, shown)
