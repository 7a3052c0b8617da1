"""What the API shows of queues, addresses, messages, settings and the store: plain dicts for JSON.

The field names are a promise to scripts and stay. A figure of a feature that this version does not
have is shown with the value that it would have unused, so that a reader of Artemis' names finds all
of them. Counts are read when the view is made; the core changes them in the step that earns them.

Pure: reads the core, changes nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import FullPolicy
from gateway.broker import Gateway
from gateway.broker.directory.address import Address
from gateway.broker.directory.reaper import Rule
from gateway.decoding.columns import BlockReader, headers_map
from gateway.model.address import is_internal
from gateway.model.attributes import ROWS, QueueAttributes
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, SCHEDULED, STOMP, Message
from gateway.model.peers import AcceptorFigures
from gateway.queues.queue import Queue

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

    from gateway.disk.watching import DiskWatch
    from gateway.model.histogram import Histogram
    from gateway.queues.ages import Ages
    from gateway.quotas.meters import Meters
    from gateway.sink.sink import Sink
    from gateway.store.scrubber import Scrubber
    from gateway.streams.registry import StreamRegistry
    from gateway.time.clock import BrokerClock

#: Of each body that a browse shows; whoever needs all of it consumes or reads the stream.
BODY_SHOWN_MAX: Final = 65536


class LiveSegments(Protocol):
    """Which journal files hold something, and how much."""

    live: dict[int, int]
    used: dict[int, int]
    used_bytes: int
    live_bytes: int


class CompactionFigures(Protocol):
    """What was carried forward out of old journal files."""

    copied: int
    copied_bytes: int
    emptied: int
    recalled: int
    lacking: int
    failure: Exception | None


class JournalFigures(Protocol):
    """What is shown of the journal (`storage.journal.Journal`)."""

    batches: int
    stored: int
    cancelled: int
    bytes_written: int
    bytes_cancelled: int
    synced: int
    tasks: int
    syncs: int
    stalled: float
    compaction: CompactionFigures
    index: LiveSegments

    @property
    def congested(self) -> bool: ...

    @property
    def failure(self) -> BaseException | None: ...

    @property
    def segment(self) -> int: ...


class LoginFigures(Protocol):
    """How many were let in, and refused by reason."""

    @property
    def accepted(self) -> int: ...

    @property
    def refusals(self) -> Mapping[str, int]: ...


class AuditFigures(Protocol):
    """Whether the audit trail can be written: `failing` says why not, and is empty where it can."""

    @property
    def kept(self) -> bool: ...

    @property
    def failing(self) -> str: ...

    @property
    def lines(self) -> int: ...

    @property
    def lost(self) -> int: ...


def _no_acceptors() -> Sequence[AcceptorFigures]:
    return ()


def _no_certificates() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that API and metrics read.

    Attributes:
        gateway: the core.
        not_ready: why the gateway is not ready (recovery, listeners, stopping); None when it is.
        journal: None where nothing is stored.
        free_bytes: of the data directory's file system.
        disk: the disk monitor; None where nothing is stored.
        clock: broker time; None where it is not judged.
        acceptors: and their connections.
        certificates: for how many seconds those of each listener hold, by its path.
        logins: None where there is no gate.
        audit: the audit trail; None where there can be none.
        ages: of messages; None where nobody looks.
        python: the version of the interpreter.
        process: what the kernel says of this process: name, kind, text, value.
        histograms: of what is timed.
        streams: None where there are none.
        sink: None where nothing is stored.
        scrubber: what reads all that is stored; None where nothing is.
        meters: of quotas; None where there are none.
        reactor: seconds, for answers that do not wait for ever; None where they do.
    """

    gateway: Gateway
    not_ready: Callable[[], str | None]
    journal: JournalFigures | None = None
    free_bytes: Callable[[], int] | None = None
    disk: DiskWatch | None = None
    clock: BrokerClock | None = None
    acceptors: Callable[[], Sequence[AcceptorFigures]] = _no_acceptors
    certificates: Callable[[], Mapping[str, float]] = _no_certificates
    logins: LoginFigures | None = None
    audit: AuditFigures | None = None
    ages: Ages | None = None
    python: str = ""
    process: Callable[[], Iterable[tuple[str, str, str, float]]] | None = None
    histograms: Sequence[Histogram] = ()
    streams: StreamRegistry | None = None
    sink: Sink | None = None
    scrubber: Scrubber | None = None
    meters: Meters | None = None
    reactor: IReactorTime | None = None


def persistent_bytes(queue: Queue) -> int:
    """Return the bytes of all bodies that a queue holds, in memory or on pages."""
    return queue.size_bytes + (queue.backlog.size if queue.backlog is not None else 0)


_NAMES: Final = [row.json for row in ROWS.values()]
_TEXTS: Final = [row.json for row in ROWS.values() if row.kind is str]
_values: Final = attrgetter(*ROWS)


def attributes_view(attributes: QueueAttributes) -> dict[str, object]:
    """Return attributes as the API shows them: a text that is not said is null."""
    shown = dict(zip(_NAMES, _values(attributes), strict=True))
    return shown | {name: shown[name] or None for name in _TEXTS}


def queue_view(queue: Queue, reaping: Rule, lag: str | None) -> dict[str, object]:
    """Return a queue as the API shows it; `reaping` says when it goes by itself.

    `lag`: why dispatch waits for the disk, None while it does not.
    """
    return {
        "name": queue.name,
        "address": queue.address,
        "routingType": queue.routing.value,
        "durable": queue.durable,
        "temporary": queue.temporary,
        "autoCreated": queue.auto_created,
        "internal": is_internal(queue.name),
        "paused": queue.paused,
        "consumerCount": queue.consumer_count,
        "maxConsumers": queue.max_consumers,
        "messageCount": queue.message_count,
        "deliveringCount": queue.delivering,
        "scheduledCount": queue.scheduled_count,
        "storingCount": queue.storing_count,
        "messagesAdded": queue.added,
        "messagesAcknowledged": queue.acknowledged,
        "messagesExpired": queue.expired,
        "messagesKilled": queue.killed,
        "messagesReplaced": queue.replaced,
        "persistentSize": persistent_bytes(queue),
        "ringSize": queue.ring_size,
        "filter": queue.filter_text or None,
        **attributes_view(queue.attributes),
        "autoDelete": reaping.applies,
        "autoDeleteDelay": reaping.delay,
        "autoDeleteMessageCount": reaping.message_count,
        "groupCount": queue.group_count,
        "firstMessageAge": None,
        "reason": lag if queue.storing_count and not queue.serialized else None,
    }


def address_view(gateway: Gateway, address: Address) -> dict[str, object]:
    """Return an address as the API shows it; `reason` says why it is full or blocked."""
    refusal = gateway.load.full_because(address)
    # A full address with FAIL gives no credit either, but it is full, not blocked.
    holds = address.settings.address_full_policy in (FullPolicy.BLOCK, FullPolicy.PAGE)
    paging = address.paging
    disk = gateway.pressure.disk.holds(address.settings)
    blocked = address.operator_block or (holds and address.blocked is not None) or disk is not None
    shown = (
        gateway.pressure.room.held_back(address)
        or refusal
        or disk
        or (address.blocked if blocked else None)
    )
    return {
        "name": address.name,
        "routingTypes": sorted(kind.value for kind in address.routing_types),
        "queueNames": sorted(queue.name for queue in address.queues),
        "messageCount": sum(queue.message_count for queue in address.queues),
        "sizeBytes": address.size_bytes,
        "paging": paging is not None,
        "full": refusal is not None and not address.operator_block,
        "blocked": blocked,
        "pageFiles": 0 if paging is None else paging.page_files,
        "pageBytes": 0 if paging is None else paging.page_bytes,
        "routedMessageCount": address.routed,
        "unroutedMessageCount": address.unrouted,
        "droppedMessageCount": address.dropped,
        "duplicateMessageCount": address.duplicates,
        "duplicateIdCount": gateway.routing.duplicates.count(address.name),
        "producerCount": address.sender_count,
        "temporary": address.temporary,
        "autoCreated": address.auto_created,
        "internal": is_internal(address.name),
        "retroactiveMessageCount": 0 if address.retro is None else _kept(address.retro),
        "reason": None if shown is None else shown.text,
    }


def _kept(retro: Address) -> int:
    """Return how many messages a new queue may begin with."""
    return max((queue.message_count for queue in retro.queues), default=0)


def settings_view(table: SettingsTable, name: str, *, exists: bool) -> dict[str, object]:
    """Return each effective value for `name`, with the match and the line that it is from."""
    items = [found.view() for found in table.explain(name)]
    return {"address": name, "exists": exists, "items": items}


def message_view(
    reader: BlockReader, message: Message, state: str = "ready", *, most: int = -1
) -> dict[str, object]:
    """Return a waiting message: what is known of it, its headers, and the start of its body.

    Of each text that its sender wrote `most` characters are shown, and how many more there are; -1
    shows all.
    """
    flags = message.flags
    read = reader.read(message.body, (0, len(message.body)), (flags,))
    head, body = read.heads[read.indices[0]], read.bodies[0]
    return {
        "sequence": message.seq,
        "state": state,
        "due": message.due if flags & SCHEDULED else None,
        "protocol": "STOMP" if flags & STOMP else "AMQP",
        "durable": bool(flags & DURABLE),
        "priority": message.priority,
        "deliveryCount": message.delivery_count,
        "redelivered": bool(message.delivery_count or flags & MAYBE_SEEN),
        "expires": message.expires if flags & EXPIRES else None,
        "size": len(message.body),
        "messageId": _cut(head.message_id, most),
        "subject": _cut(head.subject, most),
        "contentType": _cut(head.content_type, most),
        "correlationId": _cut(head.correlation_id, most),
        "replyTo": _cut(head.reply_to, most),
        "created": head.created_ms,
        "headers": {n: _cut(v, most) for n, v in reversed(headers_map(head.headers))},
        "annotations": {n: _cut(v, most) for n, v in headers_map(head.annotations)},
        **_body_view(body),
    }


def _cut(text: str | None, most: int) -> str | None:
    """Return a text of at most so many characters, with a mark where there were more."""
    if text is None or not 0 <= most < len(text):
        return text
    return f"{text[:most]}, + {len(text) - most} more"


def _body_view(body: bytes | None) -> dict[str, object]:
    """Return a body as text where it is UTF-8, else in base64."""
    if body is None:
        return {"body": None, "bodyEncoding": None, "bodySize": 0, "bodyTruncated": False}
    shown = body[:BODY_SHOWN_MAX]
    truncated = len(shown) < len(body)
    facts = {"bodySize": len(body), "bodyTruncated": truncated}
    try:
        return {"body": _decode(shown, truncated=truncated), "bodyEncoding": "text", **facts}
    except UnicodeDecodeError:
        return {"body": b64encode(shown).decode("ascii"), "bodyEncoding": "base64", **facts}


def _decode(shown: bytes, *, truncated: bool) -> str:
    """Decode UTF-8; a cut may have split the last character, which then is left out."""
    try:
        return shown.decode("utf-8")
    except UnicodeDecodeError as error:
        if truncated and error.start >= len(shown) - 3 and error.reason == "unexpected end of data":
            return shown[: error.start].decode("utf-8")
        raise


def lag_reason(sources: Sources) -> str | None:
    """Return why dispatch waits for the disk; None: it does not, where it need not always."""
    lag, journal = sources.gateway.pressure.lag, sources.journal
    return lag.reason(0 if journal is None else journal.tasks) if lag.waits else None


def lag_view(sources: Sources) -> dict[str, object]:
    """Return how far the disk is behind, and what that does to dispatch."""
    lag = sources.gateway.pressure.lag
    return {
        "limitMs": round(lag.limit * 1000) if lag.limit >= 0 else -1,
        "oldestMs": round(lag.age * 1000),
        "dispatchWaits": lag.waits,
        "times": lag.times,
        "reason": lag_reason(sources),
    }


def store_view(sources: Sources) -> dict[str, object]:
    """Return the figures of journal and disk."""
    journal = sources.journal
    return {
        "journal": None if journal is None else journal_view(journal),
        "lag": lag_view(sources),
        "disk": disk_view(sources),
        "memory": {
            "usedBytes": sources.gateway.load.memory,
            "limitBytes": sources.gateway.load.memory_max,
            "messageCount": sources.gateway.load.messages,
        },
    }


def clock_view(sources: Sources) -> dict[str, object]:
    """Return broker time, and how far the wall clock is ahead while it is not followed."""
    clock = sources.clock
    return {
        "brokerTimeMs": sources.gateway.now_ms(),
        "distrusted": clock is not None and clock.step_seconds != 0,
        "aheadSeconds": 0 if clock is None else round(clock.step_seconds),
        "trustedInSeconds": 0 if clock is None else round(clock.trusted_in),
    }


def disk_view(sources: Sources) -> dict[str, object]:
    """Return the disk's figures, of the last look of the monitor but for what is free now."""
    free = None if sources.free_bytes is None else sources.free_bytes()
    if sources.disk is None:
        return {"freeBytes": free}
    monitor, ballast, worst = sources.disk.monitor, sources.disk.ballast, sources.disk.monitor.worst
    seconds = monitor.seconds_left
    return {
        "freeBytes": free,
        "totalBytes": None if worst is None else worst.total,
        "path": None if worst is None else worst.path,
        "limit": None if worst is None else monitor.limit.in_words(worst.total),
        "limitFreeBytes": monitor.floor,
        "full": monitor.full,
        "reason": None if monitor.refusal is None else monitor.refusal.text,
        "timesFull": monitor.raised,
        "heldSenders": sources.disk.gate.held,
        "secondsToFull": None if seconds is None else round(seconds),
        "ballastBytes": 0 if ballast is None else ballast.size,
        "ballastMissingBytes": 0 if ballast is None else ballast.missing,
    }


def compaction_view(compaction: CompactionFigures) -> dict[str, object]:
    """Return what was carried forward; `failure` says why no more is."""
    return {
        "copiedMessages": compaction.copied,
        "copiedBytes": compaction.copied_bytes,
        "emptiedFiles": compaction.emptied,
        "messagesTakenFromMemory": compaction.recalled,
        "failure": None if compaction.failure is None else str(compaction.failure),
    }


def journal_view(journal: JournalFigures) -> dict[str, object]:
    """Return the journal's figures; `cancelledMessages` were consumed before they were written."""
    return {
        "files": [
            {"number": number, "liveMessages": live, "bytes": journal.index.used.get(number, 0)}
            for number, live in sorted(journal.index.live.items())
        ],
        "currentFile": journal.segment,
        "batches": journal.batches,
        "bytesWritten": journal.bytes_written,
        "storedMessages": journal.stored,
        "cancelledMessages": journal.cancelled,
        "cancelledBytes": journal.bytes_cancelled,
        "usedBytes": journal.index.used_bytes,
        "liveBytes": journal.index.live_bytes,
        "compaction": compaction_view(journal.compaction),
        "syncedTicket": journal.synced,
        "waitingMessages": journal.tasks,
        "syncs": journal.syncs,
        "stalledSeconds": round(journal.stalled, 1),
        "congested": journal.congested,
        "failure": None if journal.failure is None else str(journal.failure),
    }
