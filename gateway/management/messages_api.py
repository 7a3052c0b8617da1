"""The HTTP calls on the messages of a queue, below `/api/v1/queues/{name}`.

    GET    /messages ?filter= &offset= &limit= &cursor=   waiting messages in delivery order;
                     `total`: how many wait, null with a filter (`countMessages` tells)
    GET    /messages/{sequence}                     one of them
    DELETE /messages/{sequence}                     204; 404 when it does not wait any more
    GET    /countMessages ?filter= &groupByProperty=    {"messages", "groups"}
    POST   /removeAllMessages {"filter", "limit"}       {"messages"}: what waited, not what is out
    POST   /trim {"filter", "limit"}                    {"messages"}: down to the ring size
    POST   /moveMessages {"target", "filter", "limit", "flushLimit"}
    POST   /retryMessages {"filter", "limit"}           dead letters go back to where they died
    POST   /expireMessages, /sendMessagesToDeadLetterAddress {"filter", "limit"}

A filter is a selector. What waits for its time counts as waiting; a browse shows it behind the
rest, with its `state`, and nothing that has expired or still has to get to the disk: for that it
waits a little, and then goes without. Calls on many
messages answer `{"messages": n}` once that is durable; `stopped` says why it was not more.
What came after the call is left alone, what is in delivery stays with its consumers. What is on
page files waits as well, and is looked at block by block. A browse shows of properties as many
characters as the address' settings say, one message all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, succeed

from gateway.addresses.settings import BROWSE_MAX
from gateway.broker.operations.errand import (
    Act,
    Errand,
    counting,
    passing,
    removing,
)
from gateway.broker.operations.move import Move
from gateway.decoding.columns import BlockReader
from gateway.management import browsing, views
from gateway.management.answers import (
    Fields,
    Nothing,
    answer_later,
    list_response,
)
from gateway.management.durable import check_store, when_durable
from gateway.management.http import Request, Response, check_query, json_response, query_int
from gateway.management.json_body import read_fields
from gateway.management.listing import at_offset, place_of
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.roles import Need
from gateway.queues.queue import Gone, Queue
from gateway.selectors import Selector, compile_selector
from gateway.selectors.fields import reader

#: Walking to a place costs 0.2 s for each million messages before it (measured); nobody else is
#: served meanwhile.
OFFSET_MAX: Final = 1_000_000
#: Groups that a count tells apart; the others are counted together.
GROUPS_MAX: Final = 1000
#: How long a browse waits for a disk that stands: what it has not by then is not shown.
DISK_SECONDS: Final = 2.0
_OTHERS: Final = "(others)"
_SEQUENCE_DIGITS: Final = 18


class Selection(Fields, kw_only=True):
    """Body of the calls on many messages."""

    filter: str | None = None
    limit: int | None = None


class Moving(Selection, kw_only=True):
    """Body of `moveMessages`; `flush_limit` messages are one batch of the journal."""

    target: str
    flush_limit: int | None = None


Chosen = TypeVar("Chosen", bound=Selection)


class MessagesApi:
    """The functions behind the routes."""

    def __init__(self, sources: Sources) -> None:
        self._gateway = sources.gateway
        self._directory = sources.gateway.directory
        self._clock = sources.reactor

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        queue = "/api/v1/queues/{name}"
        router.add("GET", queue + "/messages", self.browse, need=Need.EDIT)
        router.add("GET", queue + "/messages/{sequence}", self.show, need=Need.EDIT)
        router.add("DELETE", queue + "/messages/{sequence}", self.remove, need=Need.EDIT)
        router.add("GET", queue + "/countMessages", self.count, need=Need.EDIT)
        router.add("POST", queue + "/removeAllMessages", self.remove_all, need=Need.EDIT)
        router.add("POST", queue + "/trim", self.trim, need=Need.EDIT)
        router.add("POST", queue + "/moveMessages", self.move, need=Need.EDIT)
        router.add("POST", queue + "/retryMessages", self.retry, need=Need.EDIT)
        router.add("POST", queue + "/expireMessages", self.expire, need=Need.EDIT)
        router.add("POST", queue + "/sendMessagesToDeadLetterAddress", self.kill, need=Need.EDIT)

    # ---- looking

    def browse(self, request: Request, name: str) -> Response | Deferred[Response]:
        """Waiting messages in delivery order, untouched."""
        query = check_query(request, ("offset", "limit", "filter", "cursor"))
        queue = self._directory.find_queue(name)
        offset = place_of(request, "offset", OFFSET_MAX)
        settings = self._gateway.settings.for_address(queue.address)
        page = settings.management_browse_page_size
        most = settings.management_message_attribute_size_limit
        limit = query_int(request, "limit", page, low=1, high=BROWSE_MAX)
        selector = _selector(query.get("filter"), queue)
        now_ms = self._gateway.now_ms()
        done: Deferred[list[Message]]
        if selector is None:
            window = browsing.Window(queue, offset, limit, now_ms)
            done = Deferred(lambda _: window.cancel())
            window.read(done.callback)
        else:
            found = _Places(offset)
            errand = Errand(
                self._gateway,
                queue,
                counting(found.take),
                looks=True,
                selects=selector.matches,
                limit=offset + limit,
                among=list(islice(browsing.waiting(queue, now_ms), OFFSET_MAX)),
            )
            done = Deferred(lambda _: errand.cancel())
            errand.start(lambda *_: done.callback(found.messages))
        return self._shown(queue, done, most, _Part(offset, limit, filtered=selector is not None))

    def _shown(
        self, queue: Queue, found: Deferred[list[Message]], most: int, part: _Part
    ) -> Response | Deferred[Response]:
        """Answer with those messages that still wait when all of them are on disk.

        When the disk stands, with those that are there after a while.
        """
        gateway = self._gateway
        at_once = found.called

        def durable(messages: list[Message]) -> Deferred[list[Message]]:
            nonlocal at_once
            if all(map(browsing.on_disk(gateway, queue), messages)):
                return succeed(messages)
            at_once = False
            ticket = gateway.store.unsynced
            stored = when_durable(gateway, ticket).addCallback(lambda _: messages)
            if self._clock is None:
                return stored

            def stands(_: object, __: float) -> list[Message]:
                return list(filter(browsing.on_disk(gateway, queue), messages))

            return stored.addTimeout(DISK_SECONDS, self._clock, stands)

        def answer(messages: list[Message]) -> Response:
            now_ms = gateway.now_ms()
            shown = browsing.shown(queue, messages, now_ms, at_once=at_once)
            return _list(shown, most, part.following(queue, len(messages)))

        return found.addCallback(durable).addCallback(answer)

    def show(self, request: Request, name: str, sequence: str) -> Deferred[Response]:
        """One waiting message, once it is on disk."""
        check_query(request, ())
        queue = self._directory.find_queue(name)
        found: list[Message] = []
        errand = Errand(
            self._gateway,
            queue,
            counting(found.append),
            looks=True,
            among=list(browsing.waiting(queue, self._gateway.now_ms())),
            only=_sequence(sequence),
        )
        done: Deferred[None] = Deferred(lambda _: errand.cancel())
        errand.start(lambda *_: done.callback(None))
        shown = all(map(browsing.on_disk(self._gateway, queue), found))
        ticket = 0 if shown else self._gateway.store.unsynced
        done.addCallback(lambda _: when_durable(self._gateway, ticket))

        def answer(_: None) -> Response:
            for message, state in browsing.shown(queue, found, self._gateway.now_ms()):
                return json_response(200, views.message_view(BlockReader(), message, state))
            raise _not_waiting(queue, sequence)

        return done.addCallback(answer)

    def count(self, request: Request, name: str) -> Deferred[Response]:
        """How many messages a filter selects, by the values of a property where one is named."""
        query = check_query(request, ("filter", "groupByProperty"))
        queue = self._directory.find_queue(name)
        selector = _selector(query.get("filter"), queue)
        named = query.get("groupByProperty")
        groups: Counter[str] = Counter()
        if selector is None and named is None:
            count = queue.ready_count + queue.scheduled_count + queue.paged_count
            return succeed(json_response(200, {"messages": count}))
        errand = Errand(
            self._gateway,
            queue,
            counting(_into(groups, named, queue)),
            looks=True,
            selects=None if selector is None else selector.matches,
        )
        done: Deferred[int] = Deferred(lambda _: errand.cancel())
        errand.start(lambda count, _: done.callback(count))

        def answer(count: int) -> Response:
            shown: dict[str, object] = {"messages": count}
            return json_response(200, shown if named is None else {**shown, "groups": groups})

        return done.addCallback(answer)

    # ---- one message

    def remove(self, request: Request, name: str, sequence: str) -> Deferred[Response]:
        """Remove one waiting message for good."""
        check_query(request, ())
        read_fields(request, Nothing)
        queue = self._directory.find_queue(name)
        check_store(self._gateway)
        errand = Errand(
            self._gateway,
            queue,
            removing(queue, Gone.REMOVED),
            among=[*queue.holdings(), *queue.storing()],
            only=_sequence(sequence),
        )
        done: Deferred[Response] = Deferred(lambda _: errand.cancel())

        def removed(count: int, refusal: Refusal | None) -> None:
            if refusal is not None:
                done.errback(RefusedError(refusal))
            elif not count:
                done.errback(_not_waiting(queue, sequence))
            else:
                done.callback(Response(status=204))

        errand.start(removed)
        return done

    # ---- many

    def remove_all(self, request: Request, name: str) -> Deferred[Response]:
        """Remove what waits in the queue; what is in delivery stays with its consumers."""
        queue, fields = self._read(request, name, Selection)
        if fields.filter or fields.limit is not None:
            return self._run(queue, fields, removing(queue, Gone.REMOVED))
        count = queue.purge()
        ticket = self._gateway.store.unsynced  # 0 where nothing waits for the disk
        return answer_later(self._gateway, ticket, 200, lambda: {"messages": count})

    def trim(self, request: Request, name: str) -> Deferred[Response]:
        """Evict what a lowered ring size leaves over; with a filter only what that selects."""
        queue, fields = self._read(request, name, Selection)
        if fields.filter or fields.limit is not None:
            act = removing(queue, Gone.REPLACED)
            excess = queue.ready_count - queue.ring_size if queue.ring_size >= 0 else 0
            victims = list(queue.victims())
            return self._run(queue, fields, act, among=victims, most=max(0, excess))
        count = queue.trim()
        ticket = self._gateway.store.unsynced  # as above
        return answer_later(self._gateway, ticket, 200, lambda: {"messages": count})

    def expire(self, request: Request, name: str) -> Deferred[Response]:
        """Expire messages now: they go to the expiry address."""
        queue, fields = self._read(request, name, Selection)
        return self._run(queue, fields, removing(queue, Gone.EXPIRED))

    def kill(self, request: Request, name: str) -> Deferred[Response]:
        """Give messages up: they go to the dead-letter address."""
        queue, fields = self._read(request, name, Selection)
        return self._run(queue, fields, removing(queue, Gone.KILLED))

    def move(self, request: Request, name: str) -> Deferred[Response]:
        """Move messages to another address or `address::queue`, which must be there."""
        queue, fields = self._read(request, name, Moving)
        act = Move(self._gateway.directory, self._gateway.routing.shared, queue, fields.target).act
        return self._run(queue, fields, act, step=_positive("flushLimit", fields.flush_limit))

    def retry(self, request: Request, name: str) -> Deferred[Response]:
        """Send back what came from other queues; what has nowhere to go back to stays."""
        queue, fields = self._read(request, name, Selection)
        act = passing(queue, lambda messages: self._gateway.retry_messages(queue, messages))
        return self._run(queue, fields, act)

    def _read(self, request: Request, name: str, kind: type[Chosen]) -> tuple[Queue, Chosen]:
        check_query(request, ())
        queue = self._directory.find_queue(name)
        fields = read_fields(request, kind)
        check_store(self._gateway)
        return queue, fields

    def _run(
        self,
        queue: Queue,
        fields: Selection,
        act: Act,
        *,
        step: int | None = None,
        among: list[Message] | None = None,
        most: int | None = None,
    ) -> Deferred[Response]:
        """Do it to what the filter selects, `most` of it; answers once that is durable."""
        selector = _selector(fields.filter, queue)
        limit = _positive("limit", fields.limit)
        if most is not None:
            limit = most if limit is None else min(limit, most)
        errand = Errand(
            self._gateway,
            queue,
            act,
            selects=None if selector is None else selector.matches,
            limit=limit,
            step=step,
            among=among,
        )
        waiting: Deferred[Response] = Deferred(lambda _: errand.cancel())

        def done(count: int, refusal: Refusal | None) -> None:
            if refusal is not None and not count:
                waiting.errback(RefusedError(refusal))
                return
            shown: dict[str, object] = {"messages": count}
            if refusal is not None:
                shown["stopped"] = {"code": refusal.code.value, "message": refusal.text}
            waiting.callback(json_response(200, shown))

        errand.start(done)
        return waiting


class _Places:
    """Keeps what comes behind the first so many."""

    __slots__ = ("_before", "messages")

    def __init__(self, before: int) -> None:
        self._before = before
        self.messages: list[Message] = []

    def take(self, message: Message) -> None:
        if self._before:
            self._before -= 1
        else:
            self.messages.append(message)


class _Part:
    """Which part of a queue a browse was asked for."""

    __slots__ = ("_end", "_limit", "filtered")

    def __init__(self, offset: int, limit: int, *, filtered: bool) -> None:
        self._end = offset + limit
        self._limit = limit
        self.filtered = filtered

    def following(self, queue: Queue, found: int) -> tuple[int | None, str | None]:
        """Return how many wait, as far as that is known, and where the next page begins."""
        total = None if self.filtered else browsing.waiting_count(queue)
        more = found == self._limit if total is None else self._end < total
        return total, at_offset(self._end) if more else None


def _list(
    found: list[browsing.Shown], most: int, following: tuple[int | None, str | None]
) -> Response:
    block_reader = BlockReader()
    shown = (views.message_view(block_reader, m, state, most=most) for m, state in found)
    # One in each piece: a body may be 64 KiB, and the next request should not wait for all.
    total, cursor = following
    return list_response(shown, len(found), total=total, cursor=cursor, piece=1)


def _selector(text: str | None, queue: Queue) -> Selector | None:
    """Return the compiled filter, None where there is none. Raises RefusedError (bad-selector)."""
    return compile_selector(text, queue.address) if text else None


def _into(groups: Counter[str], named: str | None, queue: Queue) -> Callable[[Message], None]:
    """Return what counts a message in its group."""
    if named is None:
        return lambda _: None
    read = reader(named, queue.address)

    def count(message: Message) -> None:
        value = read(message)
        key = "null" if value is None else str(value)
        groups[key if key in groups or len(groups) < GROUPS_MAX else _OTHERS] += 1

    return count


def _sequence(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _SEQUENCE_DIGITS):
        message = f"{text[:40]!r} is no sequence; it is the whole number that a browse shows."
        raise RefusedError.of(Code.BAD_VALUE, message)
    return int(text)


def _positive(key: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise RefusedError.of(Code.BAD_VALUE, f"{key} cannot be {value}; give at least 1.")
    return value


def _not_waiting(queue: Queue, sequence: str) -> RefusedError:
    return RefusedError.of(
        Code.NOT_FOUND,
        f"No message {sequence} waits in queue {queue.name!r}; it is with a consumer, or gone.",
    )
