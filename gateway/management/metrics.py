r"""`GET /metrics`: the Prometheus text exposition, written by ourselves.

Counters end in `_total`. Families of the gateway, of addresses, queues and streams have different
names, so that a sum never counts twice.

The figures are plain counters on the core's objects, read here and nowhere summed on the hot path.
Each family leaves in a turn of its own; no more than `OBJECTS_MAX` objects of a kind are listed,
and how many were left out is a metric itself. Pure: reads the core, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from gateway import __version__
from gateway.broker.directory.address import Address
from gateway.disk.watching import DiskWatch
from gateway.management.client_figures import Family, object_figures, quota_figures
from gateway.management.families import (
    Number,
    Sample,
    family,
    histogram_lines,
    label_text,
    labelled,
)
from gateway.management.http import Request, Response, check_query
from gateway.management.router import Router
from gateway.management.views import AuditFigures, JournalFigures, Sources, persistent_bytes
from gateway.model.roles import Need
from gateway.queues.ages import Ages
from gateway.queues.queue import Queue
from gateway.sink.sink import Sink
from gateway.store.scrubber import Scrubber
from gateway.streams.tap import Tap

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Of one kind. Prometheus itself advises against more series from one target than this makes.
OBJECTS_MAX: Final = 10_000

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure(Generic[Thing]):
    """One family over all objects of a kind."""

    name: str
    kind: str
    text: str
    read: Callable[[Thing], Number]


def _gauge(name: str, text: str, read: Callable[[Thing], Number]) -> _Figure[Thing]:
    return _Figure(name=name, kind="gauge", text=text, read=read)


def _counter(name: str, text: str, read: Callable[[Thing], Number]) -> _Figure[Thing]:
    return _Figure(name=name, kind="counter", text=text, read=read)


def _lag(tap: Tap) -> int:
    """Return how far the slowest subscription is behind; 0 without any."""
    floor = tap.floor()
    return 0 if floor is None else max(0, tap.stream.durable_offset - floor)


def _unarchived(tap: Tap) -> int:
    """Return how far an archive is behind; 0 without one."""
    archived = tap.archived()
    return 0 if archived is None else max(0, tap.stream.durable_offset - archived)


_GATEWAY: Final[Sequence[_Figure[Sources]]] = (
    _gauge(
        "clock_distrusted",
        "1 while a large step of the wall clock is not followed",
        lambda s: s.clock is not None and s.clock.step_seconds != 0,
    ),
    _gauge("ready", "1 when messages can be sent and received", lambda s: s.not_ready() is None),
    _gauge("store_failed", "1 when the disk refused", lambda s: s.gateway.failure is not None),
    _gauge("addresses", "Addresses that exist", lambda s: len(s.gateway.addresses)),
    _gauge("queues", "Queues that exist", lambda s: len(s.gateway.queues)),
    _gauge("messages", "Messages held in all queues", lambda s: s.gateway.load.messages),
    _gauge("memory_used_bytes", "Memory charged for messages", lambda s: s.gateway.load.memory),
    _gauge("memory_limit_bytes", "global-max-size", lambda s: s.gateway.load.memory_max),
    _gauge(
        "store_oldest_waiting_seconds",
        "How long the oldest of what waits for the disk has waited; 0 with store-lag-limit off",
        lambda s: round(s.gateway.pressure.lag.age, 3),
    ),
    _gauge(
        "store_dispatch_waits",
        "1 while dispatch waits for a disk that lags",
        lambda s: s.gateway.pressure.lag.waits,
    ),
    _counter(
        "store_lags_total", "How often the disk came to lag", lambda s: s.gateway.pressure.lag.times
    ),
    _gauge(
        "store_held_messages",
        "Messages that are handed out once they are on disk",
        lambda s: sum(queue.storing_count for queue in s.gateway.queues.values()),
    ),
    _counter(
        "store_first_messages_total",
        "Messages that were handed out only when they were on disk",
        lambda s: s.gateway.pressure.holds.held,
    ),
    _counter(
        "messages_in_total",
        "Messages taken from senders",
        lambda s: s.gateway.load.received,
    ),
    _counter(
        "messages_out_total", "Messages handed to consumers", lambda s: s.gateway.figures.delivered
    ),
    _counter(
        "slow_consumers_found_total",
        "Consumers below slow-consumer-threshold, once for each period",
        lambda s: s.gateway.pressure.slow.found,
    ),
    _counter(
        "slow_consumers_killed_total",
        "Connections closed for slow-consumer-policy KILL",
        lambda s: s.gateway.pressure.slow.killed,
    ),
    _counter(
        "page_messages_lost_total",
        "Messages on pages that could not be read back",
        lambda s: s.gateway.operations.pager.lost,
    ),
    _counter(
        "dead_letters_lost_total",
        "Dead or expired messages that nothing took",
        lambda s: s.gateway.figures.lost_dead_letters,
    ),
)

_SINK: Final[Sequence[_Figure[Sink]]] = (
    _gauge("sink_stages", "Stages of batches that are here", lambda s: len(s.staging)),
    _gauge("sink_staged_bytes", "Bytes of these stages", lambda s: s.staging.bytes),
    _gauge("sink_publishing", "Batches that are being published", lambda s: s.publishing),
    _counter("sink_committed_total", "Batches committed", lambda s: s.committed),
)

_AUDIT: Final[Sequence[_Figure[AuditFigures]]] = (
    _gauge("audit_kept", "1 where an audit trail is kept", lambda a: a.kept),
    _gauge("audit_failing", "1 while it cannot be written", lambda a: bool(a.failing)),
    _counter("audit_lines_total", "Lines handed to it", lambda a: a.lines),
    _counter("audit_lost_total", "Events that could not be kept", lambda a: a.lost),
)

_JOURNAL: Final[Sequence[_Figure[JournalFigures]]] = (
    _counter("journal_batches_total", "Batches written", lambda j: j.batches),
    _counter("journal_written_bytes_total", "Bytes written", lambda j: j.bytes_written),
    _counter("journal_stored_messages_total", "Messages written", lambda j: j.stored),
    _counter(
        "journal_cancelled_messages_total",
        "Messages consumed before they had to be written",
        lambda j: j.cancelled,
    ),
    _counter(
        "journal_cancelled_bytes_total",
        "Bytes never written, since what they hold was consumed before",
        lambda j: j.bytes_cancelled,
    ),
    _gauge("journal_used_bytes", "Bytes in journal files", lambda j: j.index.used_bytes),
    _gauge("journal_live_bytes", "About how many of them live", lambda j: j.index.live_bytes),
    _counter(
        "journal_copied_messages_total",
        "Messages carried forward out of old journal files",
        lambda j: j.compaction.copied,
    ),
    _counter("journal_copied_bytes_total", "Their bytes", lambda j: j.compaction.copied_bytes),
    _counter(
        "journal_emptied_files_total",
        "Journal files emptied by carrying forward",
        lambda j: j.compaction.emptied,
    ),
    _gauge(
        "journal_compaction_failed",
        "1 when a journal file could not be read",
        lambda j: j.compaction.failure is not None,
    ),
    _gauge("journal_files", "Journal files in use", lambda j: len(j.index.live)),
    _gauge("journal_stalled_seconds", "How long one batch hangs so far", lambda j: j.stalled),
    _gauge("journal_waiting_messages", "Messages that wait for the disk", lambda j: j.tasks),
    _counter("journal_syncs_total", "Syncs of the journal", lambda j: j.syncs),
    _gauge("journal_congested", "1 while senders wait for the disk", lambda j: j.congested),
)

_DISK: Final[Sequence[_Figure[DiskWatch]]] = (
    _gauge("disk_full", "1 while senders wait for the disk", lambda d: d.monitor.full),
    _gauge(
        "disk_limit_free_bytes",
        "Free bytes at which it is full; -1: never",
        lambda d: d.monitor.floor,
    ),
    _gauge(
        "disk_total_bytes",
        "Size of the file system that is nearest to its limit",
        lambda d: 0 if d.monitor.worst is None else d.monitor.worst.total,
    ),
    _gauge("disk_held_senders", "Senders that wait for the disk", lambda d: d.gate.held),
    _gauge(
        "disk_ballast_bytes",
        "Kept back for what goes on while it is full",
        lambda d: 0 if d.ballast is None else d.ballast.size,
    ),
    _counter("disk_filled_total", "How often it became full", lambda d: d.monitor.raised),
    _counter("disk_scans_total", "How often it was looked at", lambda d: d.monitor.scans),
)

_SCRUB: Final[Sequence[_Figure[Scrubber]]] = (
    _gauge("scrub_running", "1 while what is stored is read for rot", lambda s: s.running),
    _gauge("scrub_damaged_places", "Places on disk that are damaged", lambda s: len(s.damage)),
    _counter(
        "scrub_damage_found_total", "Places found damaged", lambda s: len(s.damage) + s.repaired
    ),
    _counter(
        "scrub_damage_gone_total", "Of these, repaired or not needed any more", lambda s: s.repaired
    ),
    _counter("scrub_read_bytes_total", "Bytes read for it", lambda s: s.bytes_read),
    _counter("scrub_runs_total", "How often all was read", lambda s: s.tours),
)

_ADDRESS: Final[Sequence[_Figure[Address]]] = (
    _counter("address_routed_messages_total", "Messages that met a queue", lambda a: a.routed),
    _counter("address_unrouted_messages_total", "Messages that met none", lambda a: a.unrouted),
    _counter("address_dropped_messages_total", "Messages dropped when full", lambda a: a.dropped),
    _gauge("address_size_bytes", "Memory charged to the address", lambda a: a.size_bytes),
    _gauge("address_paging", "1 in page mode", lambda a: a.paging is not None),
    _gauge(
        "address_page_files",
        "Page files",
        lambda a: 0 if a.paging is None else a.paging.page_files,
    ),
    _gauge(
        "address_page_bytes",
        "Bytes of page files",
        lambda a: 0 if a.paging is None else a.paging.page_bytes,
    ),
    _gauge("address_producers", "Producers attached", lambda a: a.sender_count),
    _gauge(
        "address_blocked",
        "1 while senders are held back",
        lambda a: a.operator_block or a.blocked is not None,
    ),
)

_QUEUE: Final[Sequence[_Figure[Queue]]] = (
    _gauge("queue_message_count", "Messages held, also in delivery", lambda q: q.message_count),
    _gauge("queue_delivering_count", "Messages in delivery", lambda q: q.delivering),
    _gauge(
        "queue_scheduled_count", "Messages that wait for their time", lambda q: q.scheduled_count
    ),
    _gauge("queue_paged_count", "Messages on page files, not read back", lambda q: q.paged_count),
    _gauge("queue_consumer_count", "Consumers attached", lambda q: q.consumer_count),
    _gauge(
        "queue_persistent_size_bytes",
        "Bytes of the messages held",
        persistent_bytes,
    ),
    _gauge("queue_paused", "1 while the queue is paused", lambda q: q.paused),
    _counter("queue_messages_added_total", "Messages added", lambda q: q.added),
    _counter("queue_messages_acknowledged_total", "Messages consumed", lambda q: q.acknowledged),
    _counter("queue_messages_expired_total", "Messages expired", lambda q: q.expired),
    _counter(
        "queue_messages_killed_total", "Messages given up as undeliverable", lambda q: q.killed
    ),
    _counter("queue_messages_replaced_total", "Messages evicted by the ring", lambda q: q.replaced),
)

_STREAM: Final[Sequence[_Figure[Tap]]] = (
    _gauge("stream_head", "Next offset, as far as durable", lambda t: t.stream.durable_offset),
    _gauge("stream_first_offset", "Oldest offset kept", lambda t: t.stream.first_offset),
    _gauge("stream_floor_lag", "Messages between the lowest floor and the head", _lag),
    _gauge("stream_subscriptions", "Subscriptions", lambda t: len(t.subscriptions)),
    _gauge(
        "stream_archive_lags",
        "1 while an archive is so far behind that messages will be lost",
        lambda t: t.lagging is not None,
    ),
    _gauge("stream_unarchived_messages", "Messages that an archive has still to take", _unarchived),
    _counter(
        "stream_lost_messages_total",
        "Messages that retention dropped before all had read them",
        lambda t: t.stream.lost_messages,
    ),
    _gauge("stream_replays", "Consumers that replay it", lambda t: t.replays),
    _counter("stream_replayed_messages_total", "Messages shown to them", lambda t: t.replayed),
    _counter(
        "stream_skipped_messages_total",
        "Messages that retention dropped before a replay had come to them",
        lambda t: t.stream.skipped_messages,
    ),
)


def add_routes(router: Router, sources: Sources) -> None:
    """Serve the metrics of `sources`."""

    def metrics(request: Request) -> Response:
        check_query(request, ())
        return Response(status=200, body=exposition(sources), content_type=CONTENT_TYPE)

    router.add("GET", "/metrics", metrics, need=Need.VIEW)


def exposition(sources: Sources, *, objects_max: int = OBJECTS_MAX) -> Iterator[bytes]:
    """Yield the text, a few families at a time; `objects_max` of each kind are listed."""
    gateway = sources.gateway
    yield "".join(_whole_gateway(sources)).encode()
    if sources.journal is not None:
        yield "".join(_single(_JOURNAL, sources.journal)).encode()
    left_out: list[Sample] = []
    wanted = {n: a for n, a in gateway.addresses.items() if a.settings.enable_metrics}
    addresses = labelled(wanted.items(), "address", objects_max)
    left_out.append((label_text(kind="address"), len(gateway.addresses) - len(addresses)))
    yield from _families(_ADDRESS, addresses)
    queues = [
        (label_text(address=queue.address, queue=queue.name), queue)
        for queue in islice(
            (q for q in gateway.queues.values() if q.address in wanted), objects_max
        )
    ]
    left_out.append((label_text(kind="queue"), len(gateway.queues) - len(queues)))
    yield from _families(_QUEUE, queues)
    if sources.ages is not None:
        yield from _ages(sources.ages, addresses, queues)
    if sources.streams is not None:
        taps = sources.streams.all()
        streams = [
            (label_text(stream=tap.stream.name, address=tap.stream.address), tap)
            for tap in taps[:objects_max]
        ]
        left_out.append((label_text(kind="stream"), len(taps) - len(streams)))
        yield from _families(_STREAM, streams)
    text = "Objects that exist and are not listed here"
    yield family("metrics_left_out", "gauge", text, left_out).encode()


def _whole_gateway(sources: Sources) -> Iterator[str]:
    built = label_text(version=__version__, python=sources.python)
    yield family("build_info", "gauge", "Always 1; the version is in its labels", [(built, 1)])
    if sources.process is not None:
        for name, kind, text, value in sources.process():
            yield family(name, kind, text, [("", value)], prefix="")
    yield from _single(_GATEWAY, sources)
    yield from _connections(sources)
    for histogram in sources.histograms:
        yield histogram_lines(histogram)
    refused = [
        (label_text(code=code.value), count)
        for code, count in sorted(
            sources.gateway.figures.refused.items(), key=lambda item: item[0].value
        )
    ]
    yield family("refusals_total", "counter", "Messages refused, by reason", refused)
    yield from _told(object_figures(sources.gateway.directory.objects, OBJECTS_MAX))
    if sources.meters is not None:
        yield from _told(quota_figures(sources.meters))
    if sources.free_bytes is not None:
        free = [("", sources.free_bytes())]
        yield family("disk_free_bytes", "gauge", "Free on the data directory's disk", free)
    if sources.sink is not None:
        yield from _single(_SINK, sources.sink)
    if sources.audit is not None:
        yield from _single(_AUDIT, sources.audit)
    if sources.scrubber is not None:
        yield from _single(_SCRUB, sources.scrubber)
    if sources.disk is not None:
        yield from _single(_DISK, sources.disk)
        seconds = sources.disk.monitor.seconds_left
        text = "Until the disk is full at its rate; absent while it does not fill"
        left = [] if seconds is None else [("", seconds)]
        yield family("disk_seconds_to_full", "gauge", text, left)


def _told(families: Iterable[Family]) -> Iterator[str]:
    for name, kind, text, told in families:
        yield family(name, kind, text, [(label_text(**labels), number) for labels, number in told])


def _connections(sources: Sources) -> Iterator[str]:
    acceptors = sources.acceptors()
    count = [
        (label_text(acceptor=one.name, protocol=protocol), number)
        for one in acceptors
        for protocol, number in sorted(one.protocols.items())
    ]
    yield family("connections", "gauge", "Open connections that told their protocol", count)
    opened = [(label_text(acceptor=one.name), one.opened) for one in acceptors]
    yield family("connections_opened_total", "counter", "Connections taken", opened)
    refused = [(label_text(acceptor=one.name), one.refused) for one in acceptors]
    text = "Connections not taken because too many were open"
    yield family("connections_refused_total", "counter", text, refused)
    left = [(label_text(listener=path), round(s)) for path, s in sources.certificates().items()]
    text = "Until the first certificate of a listener ends; less than 0 when it has"
    yield family("tls_certificate_expires_seconds", "gauge", text, left)
    logins = sources.logins
    if logins is not None:
        yield family("logins_total", "counter", "Logins let in", [("", logins.accepted)])
        failed = [
            (label_text(reason=why), number) for why, number in sorted(logins.refusals.items())
        ]
        yield family("login_failures_total", "counter", "Logins refused, by reason", failed)


def _ages(
    ages: Ages, addresses: Sequence[tuple[str, Address]], queues: Sequence[tuple[str, Queue]]
) -> Iterator[bytes]:
    """Yield how long the oldest messages have waited."""
    oldest: dict[str, float] = {}
    samples = []
    for labels, queue in queues:
        age = round(ages.of(queue), 3)
        samples.append((labels, age))
        oldest[queue.address] = max(age, oldest.get(queue.address, 0.0))
    text = "How long the oldest message has waited, or since the start; about a second short"
    yield family("queue_oldest_message_age_seconds", "gauge", text, samples).encode(
        "utf-8", "replace"
    )
    of_addresses = [(labels, oldest.get(one.name, 0.0)) for labels, one in addresses]
    text = "The same over the queues of an address"
    yield family("address_oldest_message_age_seconds", "gauge", text, of_addresses).encode(
        "utf-8", "replace"
    )


def _single(figures: Sequence[_Figure[Thing]], thing: Thing) -> Iterator[str]:
    for figure in figures:
        yield family(figure.name, figure.kind, figure.text, [("", figure.read(thing))])


def _families(
    figures: Sequence[_Figure[Thing]], things: Sequence[tuple[str, Thing]]
) -> Iterator[bytes]:
    """Yield one family in one piece; the labels were written once for all families."""
    for figure in figures:
        read = figure.read
        samples = [(labels, read(thing)) for labels, thing in things]
        yield family(figure.name, figure.kind, figure.text, samples).encode("utf-8", "replace")
