"""The HTTP calls of the sink, below `/api/v1/sink`: what Spark's writer asks for, and operators.

    POST   /sink/stages/{producer}/{batch}/{partition}/{attempt} ?offset=    -> {"size"}
                     a piece of a stage, up to 1 MiB of an Arrow IPC stream; it may come again
    POST   /sink/stages/{producer}/{batch}/{partition}/{attempt}:seal    -> {"rows"}
                     {"size", "crc32"}: the stage is whole
    DELETE /sink/stages/{producer}/{batch}/{partition}/{attempt}    204, also when it is gone
    POST   /sink/producers/{producer}:commit    {"batch", "stages", "passing", "waitMs"}
    GET    /sink/producers, /sink/producers/{producer}    what each has committed, and is committing
    DELETE /sink/producers/{producer}    forget it

Bytes of a piece, and rows of a stage when it is sealed, count for the quotas of the user and the
remote; one that has used up its own gets 429 with Retry-After. A commit is never held back for it.

A commit answers 200 when all rows are published and durable; 202 with `messages` of `total` while
it goes on, 503 with Retry-After and the same while it waits: call it again. A batch that is
committed already is answered 200 as well, with `total` 0. It knows no queue and no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.management.answers import Fields
from gateway.management.http import (
    STATUS,
    ProblemError,
    Request,
    Response,
    check_query,
    json_response,
    query_int,
)
from gateway.management.json_body import read_fields
from gateway.management.listing import PAGING, page
from gateway.management.quotas_api import check_quota, count_quota
from gateway.management.router import Router
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.retry import retry_after
from gateway.model.roles import Need
from gateway.quotas.meters import Meters
from gateway.sink.ledger import Known
from gateway.sink.sink import Sink, Standing
from gateway.sink.staging import NUMBER_MAX, StageKey, stage_key

ARROW: Final = "application/vnd.apache.arrow.stream"
#: A commit is held at most this long: whoever asks comes again.
WAIT_MS_MAX: Final = 10_000
STAGES_MAX: Final = 20_000

Answered = TypeVar("Answered")


class Seal(Fields):
    """Body of `:seal`."""

    size: int
    crc32: int


class StageRows(Fields):
    """One stage of a commit."""

    partition: int
    attempt: str
    rows: int


class CommitBatch(Fields):
    """Body of `:commit`; stages are published in this order."""

    batch: int
    stages: list[StageRows]
    passing: bool = False
    wait_ms: int = 5_000


class SinkApi:
    """The functions behind the routes."""

    def __init__(self, sink: Sink, meters: Meters | None = None) -> None:
        self._sink = sink
        self._meters = meters

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        base = "/api/v1/sink"
        stage = base + "/stages/{producer}/{batch}/{partition}/{attempt}"
        router.add(
            "POST", stage, self.write, content_types=(ARROW,), audited=False, need=Need.ADDRESS
        )
        router.add("POST", stage + ":seal", self.seal, audited=False, need=Need.ADDRESS)
        router.add("DELETE", stage, self.abort, audited=False, need=Need.ADDRESS)
        router.add("GET", base + "/producers", self.list, need=Need.VIEW)
        router.add("GET", base + "/producers/{producer}", self.show, need=Need.ADDRESS)
        router.add("DELETE", base + "/producers/{producer}", self.forget, need=Need.MANAGE)
        router.add(
            "POST",
            base + "/producers/{producer}:commit",
            self.commit,
            audited=False,
            need=Need.ADDRESS,
        )

    # ---- the writer

    def write(
        self, request: Request, producer: str, batch: str, partition: str, attempt: str
    ) -> Deferred[Response]:
        """Take a piece of a stage; 200 with its size, 404 when what was before it is lost."""
        check_query(request, ("offset",))
        offset = query_int(request, "offset", 0, high=NUMBER_MAX)
        key = _key(producer, batch, partition, attempt)
        check_quota(self._meters, request, inward=True)

        def written(size: int) -> Response:
            count_quota(self._meters, request, 0, len(request.body), inward=True)
            return json_response(200, {"size": size})

        return _patient(lambda: self._sink.write(key, offset, request.body)).addCallback(written)

    def seal(
        self, request: Request, producer: str, batch: str, partition: str, attempt: str
    ) -> Deferred[Response]:
        """End a stage: 200 with its rows when it is judged and durable."""
        fields = read_fields(request, Seal)
        key = _key(producer, batch, partition, attempt)
        check_quota(self._meters, request, inward=True)

        def sealed(rows: int) -> Response:
            count_quota(self._meters, request, rows, 0, inward=True)
            return json_response(200, {"rows": rows})

        return _patient(lambda: self._sink.seal(key, fields.size, fields.crc32)).addCallback(sealed)

    def abort(
        self, request: Request, producer: str, batch: str, partition: str, attempt: str
    ) -> Response:
        """Delete a stage; one that is being published stays. 204 in any case."""
        check_query(request, ())
        self._sink.abort(_key(producer, batch, partition, attempt))
        return Response(status=204)

    def commit(self, request: Request, producer: str) -> Deferred[Response]:
        """Publish a batch; 200 when all of it is durable, 202 or 503 with how far it is."""
        fields = read_fields(request, CommitBatch)
        if len(fields.stages) > STAGES_MAX:
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"'stages' has {len(fields.stages)} entries; up to {STAGES_MAX} are possible.",
            )
        done = _patient(
            lambda: self._sink.commit(
                producer,
                fields.batch,
                [(one.partition, one.attempt, one.rows) for one in fields.stages],
                passing=fields.passing,
                principal=request.principal,
                seconds=min(max(fields.wait_ms, 0), WAIT_MS_MAX) / 1000,
            )
        )
        return done.addCallback(_standing)

    # ---- operators

    def list(self, request: Request) -> Response:
        """All producers, by name."""
        check_query(request, PAGING)
        known = sorted(self._sink.ledger.producers.items())
        return page(request, known, lambda one: (one[0],), lambda one: self._shown(*one))

    def show(self, request: Request, producer: str) -> Response:
        """One producer; 404."""
        check_query(request, ())
        known = self._sink.ledger.producers.get(producer)
        if known is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no producer {producer!r}.")
        return json_response(200, self._shown(producer, known))

    def forget(self, request: Request, producer: str) -> Deferred[Response]:
        """Forget what a producer has committed; what it is publishing ends where it is."""
        check_query(request, ())
        return self._sink.forget(producer).addCallback(lambda _: Response(status=204))

    def _shown(self, name: str, known: Known) -> dict[str, object]:
        commit, waits = known.commit, self._sink.waits_for(name)
        return {
            "name": name,
            "committed": known.committed if known.committed >= 0 else None,
            "seenMs": known.seen_ms,
            "batch": None if commit is None else commit.batch,
            "messages": 0 if commit is None else commit.published,
            "total": 0 if commit is None else commit.total,
            "waits": None if waits is None else {"code": waits.code.value, "message": waits.text},
        }


def _key(producer: str, batch: str, partition: str, attempt: str) -> StageKey:
    return stage_key(producer, _number("batch", batch), _number("partition", partition), attempt)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= NUMBER_MAX):
        raise RefusedError.of(
            Code.BAD_VALUE, f"The {name} is {text[:40]!a}; it must be a whole number from 0."
        )
    return int(text)


def _standing(found: Standing) -> Response:
    shown: dict[str, object] = {
        "done": found.done,
        "messages": found.messages,
        "total": found.total,
    }
    if found.done or found.refusal is None:
        return json_response(200 if found.done else 202, shown)
    refusal = found.refusal
    told = {"code": refusal.code.value, "message": refusal.text}
    return json_response(503, {**told, **shown}, _retry(refusal))


def _retry(refusal: Refusal) -> dict[str, str]:
    seconds = retry_after(refusal)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def _patient(ask: Callable[[], Deferred[Answered]]) -> Deferred[Answered]:
    """Ask the sink; a refusal says when to come again, or by its status that it is final.

    Raises ProblemError, RefusedError.
    """
    try:
        done = ask()
    except RefusedError as error:
        raise _told(error.refusal) from None

    def refused(failure: Failure) -> Failure:
        error = failure.value
        return Failure(_told(error.refusal)) if isinstance(error, RefusedError) else failure

    return done.addErrback(refused)


def _told(refusal: Refusal) -> Exception:
    seconds, status = retry_after(refusal), STATUS[refusal.code]
    if seconds is not None:
        return ProblemError(503, refusal.code.value, refusal.text, _retry(refusal))
    if status in (503, 507):
        return ProblemError(409, refusal.code.value, refusal.text)
    return RefusedError(refusal)
