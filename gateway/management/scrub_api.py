"""The HTTP calls on the scrub, below `/api/v1`: all that is stored is read, to find rot.

GET    /scrub    how far it is, what the last one found, what is damaged now and what to do
POST   /scrub    {"fullSpeed": false}: begins now; 202, and where to look. One that is under way
                 goes on, at full speed from now on if that is asked for
"""

from __future__ import annotations

from dataclasses import replace

from gateway.management.answers import Fields
from gateway.management.http import Request, Response, check_query, json_response
from gateway.management.json_body import read_fields
from gateway.management.router import Router
from gateway.management.views import JournalFigures
from gateway.model.roles import Need
from gateway.store.scrubber import Damage, Scrubber, Tour

PATH = "/api/v1/scrub"


class ScrubBody(Fields):
    """Body of POST."""

    full_speed: bool = False


def tour_view(tour: Tour | None) -> dict[str, object] | None:
    """Return one time through all files; `endedMs` is None while it is under way."""
    if tour is None:
        return None
    return {
        "startedMs": tour.started_ms,
        "endedMs": tour.ended_ms or None,
        "fullSpeed": tour.full_speed,
        "files": tour.files,
        "filesRead": tour.files_read,
        "bytes": tour.size,
        "bytesRead": tour.bytes_read,
        "damagedPlaces": tour.damaged,
    }


def damage_view(one: Damage) -> dict[str, object]:
    """Return a place that is, or was, not what was written; `end` None: not known."""
    return {
        "kind": one.item.kind,
        "file": one.place.path,
        "offset": one.place.offset,
        "end": one.place.end or None,
        "what": one.place.what,
        "affected": [{"name": n, "messagesAtMost": c} for n, c in sorted(one.affected.items())],
        "copy": one.copy,
        "foundMs": one.found_ms,
        "goneMs": one.gone_ms or None,
        "advice": one.item.advice,
    }


class ScrubApi:
    """The functions behind the routes."""

    def __init__(self, scrubber: Scrubber, journal: JournalFigures | None) -> None:
        self._scrubber = scrubber
        self._journal = journal

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", PATH, self.show, need=Need.VIEW)
        router.add("POST", PATH, self.start, need=Need.ADMIN)

    def view(self) -> dict[str, object]:
        """Return the scrub as the API shows it."""
        scrubber, journal = self._scrubber, self._journal
        waits = 0 if journal is None else journal.compaction.lacking
        recalled = 0 if journal is None else journal.compaction.recalled
        seconds = scrubber.next_seconds
        return {
            "running": scrubber.running,
            "run": tour_view(scrubber.tour),
            "nextInSeconds": None if seconds is None else round(seconds),
            "rateBytesPerSecond": scrubber.rate,
            "runs": scrubber.tours,
            "bytesRead": scrubber.bytes_read,
            "damage": [damage_view(one) for _, one in sorted(scrubber.damage.items())],
            "gone": [damage_view(one) for one in scrubber.past],
            "messagesTakenFromMemory": recalled,
            "messagesWaitedFor": waits,
        }

    def show(self, request: Request) -> Response:
        """How far it is, and what was found."""
        check_query(request, ())
        return json_response(200, self.view())

    def start(self, request: Request) -> Response:
        """Begin now."""
        check_query(request, ())
        self._scrubber.start(full_speed=read_fields(request, ScrubBody).full_speed)
        return replace(json_response(202, self.view()), headers={"Location": PATH})
