"""The exposition: judged by Prometheus' own parser, against the core's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy
from gateway.management.metrics import CONTENT_TYPE, exposition
from gateway.model.address import RoutingType
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.histogram import Histogram
from gateway.model.message import DURABLE, STOMP
from gateway.model.objects import GATEWAY_DEFAULTS, NOBODY, USER_DEFAULTS, Kind, ObjectLimits
from gateway.model.peers import AcceptorFigures
from gateway.queues.ages import Ages
from tests.management.core import Core, Journal, limited


class Subscription:
    floor = 4


class Stream:
    name, address, epoch = "s", "a", 1
    durable_offset, first_offset, lost_messages, skipped_messages = 10, 2, 3, 4


class Tap:
    replays, replayed = 5, 6

    def __init__(self, floor):
        self.stream = Stream()
        self.subscriptions = {"x": Subscription()}
        self._floor = floor

    def floor(self):
        return self._floor

    lagging = None

    def archived(self):
        return self._floor


class Streams:
    def __init__(self, *taps):
        self.taps = list(taps)

    def all(self):
        return self.taps


def acceptor(name: str, **protocols: int) -> AcceptorFigures:
    return AcceptorFigures(name=name, opened=9, refused=1, protocols=protocols)


def read(core: Core, **options) -> dict:
    """Return {(name, labels): value} as Prometheus understands it."""
    text = b"".join(exposition(core.sources, **options)).decode()
    found = {}
    names = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in names, f"{family.name} comes twice"
        names.add(family.name)
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram")
        for sample in family.samples:
            assert sample.name.startswith(("sluicegate_", "process_"))
            assert sample.name.endswith("_total") == (family.type == "counter")
            key = (sample.name.removeprefix("sluicegate_"), frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: dict, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_what_clients_have_made_and_their_limits():
    core = Core()
    objects = core.gateway.directory.objects
    objects.limits = ObjectLimits(
        user={**USER_DEFAULTS, Kind.LINKS: 2}, gateway={**GATEWAY_DEFAULTS, Kind.LINKS: -1}
    )
    objects.add(Kind.LINKS, "ann", 2)
    objects.add(Kind.LINKS, NOBODY)
    with pytest.raises(RefusedError):
        objects.check(Kind.LINKS, "ann")
    found = read(core)
    assert value(found, "client_objects", kind="links") == 3
    assert value(found, "client_objects_limit", kind="links", each="user") == 2
    assert value(found, "client_objects_limit", kind="links", each="gateway") == -1
    assert value(found, "user_objects", user="ann", kind="links") == 2
    assert value(found, "user_objects", user="", kind="links") == 1
    assert value(found, "client_objects_refused_total", key="user-max-links") == 1


def test_the_gateways_own_figures():
    core = Core(
        limited("full", FullPolicy.FAIL, max_size_messages=1),
        acceptors=lambda: [acceptor("all", amqp=2, stomp=1), acceptor("edge", amqp=4)],
        python="3.11.9",
        free_bytes=lambda: 1 << 40,
    )
    core.send("q", b"1", b"2", b"3")
    core.send("full", b"1", b"2", b"3")
    core.take("q", 2)
    found = read(core)
    assert value(found, "build_info", version=__version__, python="3.11.9") == 1
    assert value(found, "ready") == 1
    assert value(found, "store_failed") == 0
    assert value(found, "addresses") == value(found, "queues") == 2
    assert value(found, "messages") == 4
    assert value(found, "messages_in_total") == core.gateway.load.received
    assert value(found, "messages_out_total") == 2
    assert value(found, "memory_used_bytes") == core.gateway.load.memory > 0
    assert value(found, "memory_limit_bytes") == 512 << 20
    assert value(found, "refusals_total", code="address-full") == 2
    assert value(found, "connections", acceptor="all", protocol="amqp") == 2
    assert value(found, "connections", acceptor="all", protocol="stomp") == 1
    assert value(found, "connections", acceptor="edge", protocol="amqp") == 4
    assert value(found, "connections_opened_total", acceptor="all") == 9
    assert value(found, "connections_refused_total", acceptor="edge") == 1
    assert value(found, "disk_free_bytes") == 1 << 40


def test_a_gateway_that_cannot_serve_says_so():
    core = Core()
    core.not_ready = "starting"
    assert value(read(core), "ready") == 0
    core.gateway.store_failed("the disk said no")
    assert value(read(core), "store_failed") == 1


def test_the_journals_figures():
    found = read(Core(journal=Journal()))
    assert value(found, "journal_batches_total") == 3
    assert value(found, "journal_stored_messages_total") == 5
    assert value(found, "journal_cancelled_messages_total") == 7
    assert value(found, "journal_cancelled_bytes_total") == 17
    assert value(found, "journal_copied_messages_total") == 19
    assert value(found, "journal_compaction_failed") == 0
    assert value(found, "journal_written_bytes_total") == 11
    assert value(found, "journal_files") == 2
    assert value(found, "journal_congested") == 1


def test_a_disk_that_lags():
    core = Core()
    seconds = [0.0]
    calls = []
    core.gateway.pressure.lag.watch(
        2.0, now=lambda: seconds[0], later=lambda _, call: calls.append(call)
    )
    core.send("q", b"1")
    core.turn()
    seconds[0] = 2.5
    calls.pop(0)()
    core.send("q", b"2", b"3")
    found = read(core)
    assert value(found, "store_oldest_waiting_seconds") == 2.5
    assert value(found, "store_dispatch_waits") == 1
    assert value(found, "store_lags_total") == 1
    assert value(found, "store_held_messages") == 2
    core.sync()
    found = read(core)
    assert value(found, "store_oldest_waiting_seconds") == 0
    assert value(found, "store_held_messages") == 0
    assert value(found, "store_first_messages_total") == 2


def test_queues_and_addresses():
    core = Core(limited("a", FullPolicy.DROP, max_size_messages=5))
    core.send("a", b"1", b"2", b"3", b"4", b"5", b"6")
    core.send("a", b"7")
    taker = core.take("a", 3)
    taker.hold.acknowledge([taker.got.pop()])
    taker.hold.reject([taker.got.pop()])
    core.ask("PATCH", "/api/v1/queues/a", {"ringSize": 1})
    core.ask("POST", "/api/v1/queues/a/trim")
    core.ask("POST", "/api/v1/queues/a/pause")
    found = read(core)
    queue = core.queue("a")
    names = {
        "message_count": "messageCount",
        "delivering_count": "deliveringCount",
        "scheduled_count": "scheduledCount",
        "consumer_count": "consumerCount",
        "persistent_size_bytes": "persistentSize",
        "messages_added_total": "messagesAdded",
        "messages_acknowledged_total": "messagesAcknowledged",
        "messages_expired_total": "messagesExpired",
        "messages_killed_total": "messagesKilled",
        "messages_replaced_total": "messagesReplaced",
        "paused": "paused",
    }
    for name, field in names.items():
        assert value(found, f"queue_{name}", address="a", queue="a") == queue[field], name
    assert [queue[f] for f in ("messagesKilled", "messagesReplaced", "messagesAcknowledged")] == [
        1,
        1,
        1,
    ]
    address = core.address("a")
    assert value(found, "address_routed_messages_total", address="a") == 5
    assert value(found, "address_dropped_messages_total", address="a") == 2
    assert value(found, "address_unrouted_messages_total", address="a") == 0
    assert value(found, "address_size_bytes", address="a") == address["sizeBytes"]
    assert value(found, "address_producers", address="a") == 0
    core.ask("POST", "/api/v1/addresses/a/block")
    assert value(read(core), "address_blocked", address="a") == 1


@pytest.mark.parametrize(("floor", "lag"), [(4, 6), (None, 0), (12, 0)])
def test_streams(floor, lag):
    found = read(Core(streams=Streams(Tap(floor))))
    labels = {"stream": "s", "address": "a"}
    assert value(found, "stream_head", **labels) == 10
    assert value(found, "stream_first_offset", **labels) == 2
    assert value(found, "stream_floor_lag", **labels) == lag
    assert value(found, "stream_unarchived_messages", **labels) == lag
    assert value(found, "stream_archive_lags", **labels) == 0
    assert value(found, "stream_subscriptions", **labels) == 1
    assert value(found, "stream_lost_messages_total", **labels) == 3
    assert value(found, "stream_skipped_messages_total", **labels) == 4
    assert value(found, "stream_replays", **labels) == 5
    assert value(found, "stream_replayed_messages_total", **labels) == 6


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\b", "a\\", '\\"', "a\\nb", "a b", "{x}", "}", "a,b", "=", "#", "\u00fc\U0001f407"],
)
def test_labels_survive_any_name(name):
    core = Core()
    core.gateway.directory.make_queue(name, "a" + name, RoutingType.ANYCAST)
    found = read(core)
    assert value(found, "queue_message_count", address="a" + name, queue=name) == 0
    assert value(found, "address_size_bytes", address="a" + name) == 0


def test_a_line_feed_in_a_label_is_escaped():
    core = Core(acceptors=lambda: [acceptor("a\nb", amqp=1)])
    assert value(read(core), "connections", acceptor="a\nb", protocol="amqp") == 1


def test_nothing_is_listed_beyond_the_limit_and_what_is_left_out_is_told():
    core = Core(streams=Streams(Tap(1), Tap(1), Tap(1)))
    for number in range(5):
        core.gateway.directory.make_queue(f"q{number}", f"a{number % 3}", RoutingType.ANYCAST)
    text = b"".join(exposition(core.sources, objects_max=1)).decode()
    assert text.count("sluicegate_queue_message_count{") == 1
    found = {k: v for k, v in read(core, objects_max=1).items() if k[0] == "metrics_left_out"}
    assert {next(iter(labels))[1]: left for (_, labels), left in found.items()} == {
        "address": 2,
        "queue": 4,
        "stream": 2,
    }


def test_the_route_streams_text():
    core = Core()
    answer = core.start("GET", "/metrics")
    assert (answer.status, answer.content_type) == (200, CONTENT_TYPE)
    pieces = list(answer.body)
    assert len(pieces) > 5
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert core.start("GET", "/metrics?name=x").status == 422


def test_refusals_of_several_kinds():
    core = Core()
    for code, count in ((Code.DISK_FULL, 2), (Code.ADDRESS_FULL, 1)):
        core.gateway.load.refuse(Refusal(code=code, text="x"), count)
    found = read(core)
    assert value(found, "refusals_total", code="disk-full") == 2
    assert value(found, "refusals_total", code="address-full") == 1


def test_figures_do_not_touch_the_core():
    core = Core()
    core.send("q", b"x", flags=DURABLE | STOMP | 4)
    told = list(core.store.told)
    read(core)
    assert core.store.told == told


def test_an_address_may_be_left_out_with_its_queues():
    core = Core(
        SettingsEntry(match="quiet.#", values={"enable_metrics": False}),
    )
    core.send("quiet.a", b"x")
    core.send("loud", b"x")
    found = read(core)
    listed = {dict(labels).get("address") for _, labels in found} - {None}
    assert listed == {"loud"}
    assert value(found, "messages") == 2
    # It is known how many are not listed.
    assert value(found, "metrics_left_out", kind="address") == 1
    assert value(found, "metrics_left_out", kind="queue") == 1


def test_histograms_count_up_to_each_bound():
    took = Histogram("took_seconds", "How long it took", (0.01, 0.5, 1))
    for seconds in (0.01, 0.02, 0.5, 7.0):
        took.observe(seconds)
    found = read(Core(histograms=(took,)))
    counts = [value(found, "took_seconds_bucket", le=le) for le in ("0.01", "0.5", "1", "+Inf")]
    assert counts == [1, 3, 3, 4]
    assert value(found, "took_seconds_count") == 4
    assert value(found, "took_seconds_sum") == pytest.approx(7.53)


def test_the_oldest_message_of_a_queue_and_of_an_address():
    now = [100.0]
    core = Core()
    ages = Ages(lambda: core.gateway.queues, lambda: now[0])
    core.sources = replace(core.sources, ages=ages)
    core.send("q", b"1", b"2")
    ages.look()
    now[0] += 50
    core.send("q", b"3")
    ages.look()
    now[0] += 7
    assert value(read(core), "queue_oldest_message_age_seconds", address="q", queue="q") == 57
    assert value(read(core), "address_oldest_message_age_seconds", address="q") == 57
    core.take("q", 2)
    assert value(read(core), "queue_oldest_message_age_seconds", address="q", queue="q") == 7
    core.take("q", 1)
    assert value(read(core), "queue_oldest_message_age_seconds", address="q", queue="q") == 0


def test_many_notes_of_a_queue_are_thinned_and_ages_stay_about_right():
    now = [0.0]
    core = Core()
    ages = Ages(lambda: core.gateway.queues, lambda: now[0])
    for _ in range(1000):
        core.send("q", b"x")
        ages.look()
        now[0] += 1
    (queue,) = core.gateway.queues.values()
    assert ages.of(queue) == 1000
    assert max(map(len, ages._notes.values())) <= 129
