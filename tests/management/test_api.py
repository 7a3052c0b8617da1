"""The probes, the store, and the whole table of routes through the real listener."""

from __future__ import annotations

import json
import queue as queues
import re

import pytest
from twisted.internet.task import Clock

from gateway.management.api import add_routes
from gateway.management.http import json_response
from gateway.management.metrics import exposition
from gateway.management.router import Router
from gateway.management.wire import OPEN_PATHS, ApiSite, WireSettings
from gateway.model.roles import Need
from gateway.model.turn import Turn
from gateway.store.persistence import JournalStore, open_journal
from gateway.time.clock import BrokerClock
from protocols.websocket.limits import MANAGEMENT_PATHS
from storage.files import RealFiles
from storage.segments import Segments
from storage.writer import ThreadWriter
from tests.management.core import Core, Journal
from tests.management.harness import Peer, Users, request_bytes

API_ROUTES = Core().router.routes()


def concrete(template: str) -> str:
    return re.sub(r"\{[a-z_]+\}", "q", template)


def serve(core: Core, users: Users | None = None) -> Peer:
    clock = Clock()
    site = ApiSite(clock, core.router, (users or Users()).for_peer, WireSettings())
    return Peer(site, clock)


def test_the_table_of_routes_is_what_was_promised():
    promised = {
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/store"),
        ("GET", "/api/v1/queues"),
        ("POST", "/api/v1/queues"),
        ("GET", "/api/v1/queues/{name}"),
        ("PATCH", "/api/v1/queues/{name}"),
        ("DELETE", "/api/v1/queues/{name}"),
        ("GET", "/api/v1/queues/{name}/messages"),
        ("GET", "/api/v1/queues/{name}/messages/{sequence}"),
        ("DELETE", "/api/v1/queues/{name}/messages/{sequence}"),
        ("GET", "/api/v1/queues/{name}/countMessages"),
        ("POST", "/api/v1/queues/{name}/moveMessages"),
        ("POST", "/api/v1/queues/{name}/expireMessages"),
        ("POST", "/api/v1/queues/{name}/sendMessagesToDeadLetterAddress"),
        ("POST", "/api/v1/queues/{name}/pause"),
        ("POST", "/api/v1/queues/{name}/resume"),
        ("POST", "/api/v1/queues/{name}/removeAllMessages"),
        ("POST", "/api/v1/queues/{name}/enable"),
        ("POST", "/api/v1/queues/{name}/disable"),
        ("POST", "/api/v1/queues/{name}/trim"),
        ("POST", "/api/v1/queues/{name}/retryMessages"),
        ("GET", "/api/v1/addresses"),
        ("POST", "/api/v1/addresses"),
        ("GET", "/api/v1/addresses/{name}"),
        ("DELETE", "/api/v1/addresses/{name}"),
        ("GET", "/api/v1/addresses/{name}/settings"),
        ("POST", "/api/v1/addresses/{name}/block"),
        ("POST", "/api/v1/addresses/{name}/unblock"),
        ("POST", "/api/v1/addresses/{name}/clearDuplicateIdCache"),
        ("GET", "/api/v1/clock"),
        ("POST", "/api/v1/clock/trust"),
        ("GET", "/stomp"),
        ("GET", "/amqp"),
        ("GET", "/api/v1/producers"),
        ("GET", "/api/v1/diverts"),
        ("POST", "/api/v1/diverts"),
        ("GET", "/api/v1/diverts/{name}"),
        ("DELETE", "/api/v1/diverts/{name}"),
    }
    assert set(API_ROUTES) == promised


@pytest.mark.parametrize(("method", "template"), API_ROUTES)
def test_with_users_every_route_but_the_probes_is_closed(method, template):
    core = Core()
    core.send("q", b"x")
    told = list(core.store.told)
    peer = serve(core, Users(ann="secret"))
    reply = peer.ask(method, concrete(template))
    if template in OPEN_PATHS:
        assert reply.status == (426 if template in MANAGEMENT_PATHS else 200)
    else:
        assert reply.status == 401
        assert b"queue" not in reply.body
    assert core.store.told == told


@pytest.mark.parametrize(("method", "template"), [r for r in API_ROUTES if r[0] == "GET"])
def test_no_get_changes_anything(method, template):
    core = Core()
    core.send("q", b"x")
    told = list(core.store.told)
    peer = serve(core)
    for verb in ("GET", "HEAD"):
        peer.channel.dataReceived(request_bytes(verb, concrete(template)))
    assert core.store.told == told
    assert core.queue("q")["messageCount"] == 1


@pytest.mark.parametrize(("method", "template"), [r for r in API_ROUTES if r[0] != "GET"])
def test_no_page_of_another_site_changes_anything(method, template):
    core = Core()
    core.send("q", b"x")
    told = list(core.store.told)
    peer = serve(core)
    path = concrete(template)
    assert peer.ask(method, path, b"{}", Origin="http://evil.example").status == 403
    assert peer.ask(method, path, b"{}", Sec_Fetch_Site="cross-site").status == 403
    assert peer.ask(method, path, b"{}", Host="evil.example").status == 421
    assert peer.ask(method, path, b"a=b", Content_Type="text/plain").status == 415
    assert core.store.told == told


def test_alive_and_ready():
    core = Core()
    assert core.ask("GET", "/livez") == (200, {"status": "alive"})
    assert core.ask("GET", "/readyz") == (200, {"status": "ready"})
    core.not_ready = "recovery is not done"
    status, error = core.ask("GET", "/readyz")
    assert status == 503
    assert error == {"code": "not-ready", "message": "recovery is not done"}
    assert core.ask("GET", "/livez")[0] == 200
    core.not_ready = None
    core.gateway.store_failed("the disk said no")
    assert core.ask("GET", "/readyz")[1]["message"] == "the disk said no"


def test_the_store_without_a_journal():
    core = Core(free_bytes=lambda: 123)
    status, shown = core.ask("GET", "/api/v1/store")
    assert status == 200
    assert shown["journal"] is None
    assert shown["disk"] == {"freeBytes": 123}
    assert shown["memory"]["limitBytes"] == 512 << 20
    assert core.ask("GET", "/api/v1/store?x=1")[0] == 422


def test_the_store_shows_files_counters_and_why_it_failed():
    journal = Journal()
    journal.failure = OSError("no room")
    shown = Core(journal=journal).ask("GET", "/api/v1/store")[1]
    assert shown["disk"] == {"freeBytes": None}
    assert shown["journal"] == {
        "files": [
            {"number": 1, "liveMessages": 0, "bytes": 50},
            {"number": 2, "liveMessages": 4, "bytes": 50},
        ],
        "currentFile": 2,
        "batches": 3,
        "bytesWritten": 11,
        "storedMessages": 5,
        "cancelledMessages": 7,
        "cancelledBytes": 17,
        "usedBytes": 100,
        "liveBytes": 40,
        "compaction": {
            "copiedMessages": 19,
            "copiedBytes": 23,
            "emptiedFiles": 29,
            "messagesTakenFromMemory": 31,
            "failure": None,
        },
        "syncedTicket": 13,
        "waitingMessages": 31,
        "syncs": 37,
        "stalledSeconds": 4.1,
        "congested": True,
        "failure": "no room",
    }


def test_a_disk_that_lags_is_told_with_the_queues_that_wait():
    core = Core(journal=Journal())
    seconds = [0.0]
    lag = core.gateway.pressure.lag
    calls = []
    lag.watch(2.0, now=lambda: seconds[0], later=lambda _, call: calls.append(call))
    assert core.ask("GET", "/api/v1/store")[1]["lag"] == {
        "limitMs": 2000,
        "oldestMs": 0,
        "dispatchWaits": False,
        "times": 0,
        "reason": None,
    }
    core.take("q", 5)
    core.send("q", b"1")
    core.turn()
    seconds[0] = 2.25
    calls.pop(0)()
    core.send("q", b"2")
    core.turn()
    why = (
        "Dispatch waits for the disk: the oldest write has waited for 2.2 s, 31 messages wait, and "
        "store-lag-limit is 2000 ms. It changes back by itself once the disk keeps up."
    )
    shown = core.ask("GET", "/api/v1/store")[1]["lag"]
    assert shown == {
        "limitMs": 2000,
        "oldestMs": 2250,
        "dispatchWaits": True,
        "times": 1,
        "reason": why,
    }
    queue = core.queue("q")
    assert (queue["deliveringCount"], queue["storingCount"], queue["reason"]) == (1, 1, why)
    assert core.ask("GET", "/readyz")[1] == {
        "status": "ready",
        "code": "store-lags",
        "message": why,
    }
    core.sync()
    assert (core.queue("q")["storingCount"], core.queue("q")["reason"]) == (0, None)


def test_metrics_can_be_left_out():
    router = Router()
    add_routes(router, Core().sources, with_metrics=False)
    assert set(API_ROUTES) - set(router.routes()) == {("GET", "/metrics")}


def test_a_queue_made_over_http_is_in_the_journal_when_the_answer_comes(tmp_path):
    """Through the real listener, broker, journal, writer thread and disk."""
    posted = queues.SimpleQueue()
    files, folder = RealFiles(), str(tmp_path)
    journal, _ = open_journal(files, folder, 1 << 20)
    store = JournalStore(journal)
    core = Core(store=store)
    store.snapshot = core.gateway.directory.snapshot
    journal.on_durable = core.gateway.durable_up_to
    segments = Segments(files, folder, lambda: bytes(16))
    journal.start(ThreadWriter(journal, segments, posted.put, 1 << 20))
    assert isinstance(core.gateway.turn, Turn)
    peer = serve(core)

    body = json.dumps({"name": "q", "ringSize": 5}).encode()
    assert peer.send(request_bytes("POST", "/api/v1/queues", body)) == []
    core.turn()
    posted.get(timeout=10)()
    (reply,) = peer.replies()
    assert reply.status == 201
    # What a crash would find now, from the bytes on disk alone.
    _, found = open_journal(files, folder, 1 << 20)
    assert [(d.name, d.ring_size) for d in found.queues] == [("q", 5)]

    peer.send(request_bytes("DELETE", "/api/v1/queues/q"))
    core.turn()
    posted.get(timeout=10)()
    assert [r.status for r in peer.replies()] == [204]
    _, found = open_journal(files, folder, 1 << 20)
    assert found.queues == []
    done = queues.SimpleQueue()
    journal.close(lambda: done.put(None))
    while done.empty():
        posted.get(timeout=10)()


def test_routes_of_others_fit_beside_ours():
    core = Core()
    core.router.add(
        "GET", "/api/v1/streams/{name}", lambda _, name: json_response(200, name), need=Need.VIEW
    )
    assert core.ask("GET", "/api/v1/streams/x") == (200, "x")
    assert core.ask("GET", "/api/v1/queues") == (200, {"items": [], "total": 0, "cursor": None})


def test_the_clock_is_shown_and_trusted():
    passed, ahead = [10**9], [10**18]
    clock = BrokerClock(wall=lambda: passed[0] + ahead[0], monotonic=lambda: passed[0])
    core = Core(clock=clock)
    assert core.ask("GET", "/api/v1/clock")[1]["distrusted"] is False
    assert "sluicegate_clock_distrusted 0" in b"".join(exposition(core.sources)).decode()
    ahead[0] += 7200 * 10**9
    clock.now_ms()
    shown = core.ask("GET", "/api/v1/clock")[1]
    assert (shown["distrusted"], shown["aheadSeconds"], shown["trustedInSeconds"]) == (
        True,
        7200,
        600,
    )
    assert "sluicegate_clock_distrusted 1" in b"".join(exposition(core.sources)).decode()
    assert core.ask("POST", "/api/v1/clock/trust")[1]["distrusted"] is False
    assert core.ask("POST", "/api/v1/clock/trust")[0] == 200
    assert core.ask("GET", "/api/v1/clock?x=1")[0] == 422
    assert Core().ask("POST", "/api/v1/clock/trust")[1]["distrusted"] is False
