"""The exchange: host, origin, user, answers now and later, answers in pieces, faults."""

from __future__ import annotations

import base64
import json

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import CancelledError, Deferred

from gateway.management.http import ProblemError, Response, json_response
from gateway.management.router import Router
from gateway.management.wire import WireSettings
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need
from tests.management.harness import Peer, Users, build_site, request_bytes


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Site:
    def __init__(self, users=None, settings=None, address="127.0.0.1"):
        self.requests = []
        self.answer = json_response(200, {"ok": True})
        router = Router()
        for path in ("/livez", "/readyz", "/metrics", "/thing", "/thing/{name}"):
            router.add("GET", path, self.function, need=Need.VIEW)
        router.add("POST", "/thing", self.function, need=Need.VIEW)
        self.site, self.clock = build_site(router, users, settings)
        self.peer = Peer(self.site, self.clock, address=address)

    def function(self, request, **parameters):
        self.requests.append((request, parameters))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def reached(self) -> int:
        return len(self.requests)


def code(reply) -> str:
    return json.loads(reply.body)["code"]


# ---- answers


def test_every_answer_carries_the_security_headers():
    site = Site()
    replies = [
        site.peer.ask("GET", "/thing"),
        site.peer.ask("GET", "/nowhere"),
        site.peer.ask("GET", "/thing", Host="evil.example"),
        *site.peer.send(b"nonsense\r\n\r\n"),
    ]
    assert [r.status for r in replies] == [200, 404, 421, 400]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["server"] == "sluicegate"
        assert "access-control-allow-origin" not in reply.headers


def test_a_request_reaches_its_function_whole():
    site = Site()
    site.peer.ask("POST", "/thing?a=1&b=%2F+x", b'{"c": 1}', X_Odd="y")
    ((request, parameters),) = site.requests
    assert (request.method, request.path, request.body) == ("POST", "/thing", b'{"c": 1}')
    assert request.query == {"a": "1", "b": "/ x"}
    assert request.headers["x-odd"] == "y"
    assert request.user is None
    assert parameters == {}


def test_repeated_headers_are_joined():
    site = Site()
    site.peer.send(b"GET /thing HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\nX-A: 2\r\n\r\n")
    assert site.requests[0][0].headers["x-a"] == "1, 2"


def test_head_has_the_length_and_no_body():
    site = Site()
    site.peer.channel.dataReceived(request_bytes("HEAD", "/thing"))
    raw = site.peer.transport.value()
    assert b"Content-Length: 11\r\n" in raw
    assert raw.endswith(b"\r\n\r\n")


def test_204_has_no_body_and_no_type():
    site = Site()
    site.answer = Response(status=204)
    reply = site.peer.ask("GET", "/thing")
    assert reply.status == 204
    assert "content-type" not in reply.headers
    assert "transfer-encoding" not in reply.headers


def test_options_gets_no_cors():
    site = Site()
    reply = site.peer.ask("OPTIONS", "/thing", Origin="http://evil.example")
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD, POST"
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("target", ["*", "localhost:8161", "thing", "/thing#x", "/th\xe4ng", "//"])
def test_odd_targets_are_refused(target):
    site = Site()
    replies = site.peer.send(request_bytes("GET", target))
    assert [r.status for r in replies] in ([400], [404])
    assert site.reached == 0


def test_range_and_override_headers_change_nothing():
    site = Site()
    reply = site.peer.ask(
        "GET", "/thing", Range="bytes=0-0,1-1,2-2", X_HTTP_Method_Override="DELETE"
    )
    assert reply.status == 200
    assert reply.body == b'{"ok":true}'
    assert site.requests[0][0].method == "GET"


def test_an_HTTP_1_0_client_is_served_and_closed():
    site = Site()
    (reply,) = site.peer.send(b"GET /thing HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert reply.status == 200
    assert site.peer.closed


def test_connection_close_is_honoured():
    site = Site()
    assert site.peer.ask("GET", "/thing", Connection="close").status == 200
    assert site.peer.closed


# ---- host


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8161", "[::1]", "[::1]:9", "localhost."],
)
def test_loopback_names_are_served(host):
    assert Site().peer.ask("GET", "/thing", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil", "[::2]", "xlocalhost"],
)
def test_other_names_are_misdirected(host):
    site = Site()
    reply = site.peer.ask("GET", "/livez", Host=host)
    assert (reply.status, code(reply)) == (421, "misdirected-request")
    assert site.reached == 0


@pytest.mark.parametrize("host", ["a b", "localhost:x", "u@localhost", "localhost/", "[::1", ":80"])
def test_malformed_names_are_refused(host):
    site = Site()
    assert site.peer.ask("GET", "/thing", Host=host).status == 400
    assert site.reached == 0


def test_missing_and_doubled_hosts_are_refused():
    for lines in (b"", b"Host: localhost\r\nHost: localhost\r\n", b"Host:\r\n"):
        site = Site()
        (reply,) = site.peer.send(b"GET /thing HTTP/1.1\r\n" + lines + b"\r\n")
        assert reply.status == 400
        assert site.reached == 0


@pytest.mark.parametrize(
    "name", ["Host", "Authorization", "Content-Type", "Content-Encoding", "Origin"]
)
def test_headers_that_decide_come_once(name):
    site = Site()
    lines = f"{name}: localhost\r\n{name}: localhost\r\n"
    lines += "" if name == "Host" else "Host: localhost\r\n"
    (reply,) = site.peer.send(f"GET /thing HTTP/1.1\r\n{lines}\r\n".encode())
    assert reply.status == 400
    assert "comes 2 times" in json.loads(reply.body)["message"]
    assert site.reached == 0


def test_configured_names_and_the_own_address_are_served():
    site = Site(settings=WireSettings(allowed_hosts=frozenset({"broker.example"})))
    site.peer.transport.hostAddr.host = "10.1.2.3"
    assert site.peer.ask("GET", "/thing", Host="broker.example:8161").status == 200
    assert site.peer.ask("GET", "/thing", Host="10.1.2.3").status == 200
    site.peer.transport.hostAddr.host = "fd00::1"
    assert Peer(site.site, site.clock).ask("GET", "/thing", Host="[fd00::1]").status == 421


def test_an_absolute_target_counts_as_the_host():
    site = Site()
    absolute = b"GET http://%s/thing?a=1 HTTP/1.1\r\nHost: %s\r\n\r\n"
    statuses = [
        site.peer.send(absolute % (b"localhost", b"localhost"))[0].status,
        site.peer.send(absolute % (b"evil.example", b"evil.example"))[0].status,
        site.peer.send(absolute % (b"localhost", b"evil.example"))[0].status,
        site.peer.send(absolute % (b"evil.example", b"localhost"))[0].status,
    ]
    assert statuses == [200, 421, 400, 400]
    assert site.requests[0][0].path == "/thing"


# ---- origin


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8162"},
        {"Origin": "http://localhost:8161.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://localhost:8161", "Sec_Fetch_Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_change_nothing(headers):
    site = Site()
    reply = site.peer.ask("POST", "/thing", b"{}", **headers)
    assert (reply.status, code(reply)) == (403, "cross-site")
    assert site.reached == 0


def test_a_cross_site_form_changes_nothing():
    site = Site()
    for kind in (
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
    ):
        for body in (b"", b'{"name":"x"}'):
            assert site.peer.ask("POST", "/thing", body, Content_Type=kind).status == 415
    assert site.reached == 0


def test_our_own_pages_and_programs_pass():
    site = Site()
    for headers in ({}, {"Origin": "http://localhost:8161", "Sec_Fetch_Site": "same-origin"}):
        assert site.peer.ask("POST", "/thing", b"{}", **headers).status == 200


# ---- users


def test_with_users_every_path_but_the_two_probes_wants_one():
    site = Site(Users(ann="secret"))
    for path in ("/thing", "/metrics", "/thing/x", "/nowhere", "/livez/", "/readyz/../thing"):
        reply = site.peer.ask("GET", path)
        assert (reply.status, code(reply)) == (401, "not-authorized")
        assert reply.headers["www-authenticate"].startswith("Basic ")
    assert site.reached == 0
    assert site.peer.ask("GET", "/livez").status == 200
    assert site.peer.ask("GET", "/readyz").status == 200


def test_a_good_password_is_waited_for():
    users = Users(ann="se:cr\u00e4t")
    site = Site(users)
    assert (
        site.peer.send(request_bytes("GET", "/thing", Authorization=basic("ann", "se:cr\u00e4t")))
        == []
    )
    assert site.reached == 0
    users.answer()
    (reply,) = site.peer.replies()
    assert reply.status == 200
    assert site.requests[0][0].user == "ann"
    assert users.peers == ["127.0.0.1"]


def test_a_wrong_password_and_an_unknown_user_are_told_the_same():
    users = Users(ann="secret")
    site = Site(users)
    bodies = set()
    for user, password in (("ann", "wrong"), ("bob", "secret")):
        site.peer.send(request_bytes("GET", "/thing", Authorization=basic(user, password)))
        users.answer()
        (reply,) = site.peer.replies()
        assert reply.status == 401
        bodies.add(reply.body)
    assert len(bodies) == 1
    assert site.reached == 0


@pytest.mark.parametrize(
    "value",
    [
        "Bearer abc",
        "Basic",
        "Basic !!!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b":empty user").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Basic " + "QUFB" * 1000,
    ],
)
def test_malformed_credentials_never_reach_the_verifier(value):
    users = Users(ann="secret")
    site = Site(users)
    assert site.peer.ask("GET", "/thing", Authorization=value).status == 401
    assert users.waiting == []


def test_a_client_that_leaves_before_its_password_is_checked_has_no_effect():
    users = Users(ann="secret")
    site = Site(users)
    site.peer.send(request_bytes("POST", "/thing", b"{}", Authorization=basic("ann", "secret")))
    site.peer.leave()
    users.answer()
    assert site.reached == 0


def test_passwords_from_afar_need_tls():
    users = Users(ann="secret")
    site = Site(users, address="10.9.9.9")
    reply = site.peer.ask("GET", "/thing", Authorization=basic("ann", "secret"))
    assert reply.status == 403
    assert "TLS" in json.loads(reply.body)["message"]
    assert users.waiting == []


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 401),
        ("127.8.8.8", 401),
        ("::1", 401),
        ("::ffff:127.0.0.1", 401),
        ("::ffff:10.0.0.1", 403),
        ("10.0.0.1", 403),
        ("localhost", 403),
        ("", 403),
    ],
)
def test_only_loopback_peers_count_as_near(address, status):
    assert Site(Users(ann="secret"), address=address).peer.ask("GET", "/thing").status == status


def test_passwords_from_afar_are_taken_where_that_is_allowed():
    users = Users(ann="secret")
    site = Site(users, WireSettings(allow_insecure=True), address="10.9.9.9")
    site.peer.send(request_bytes("GET", "/thing", Authorization=basic("ann", "secret")))
    users.answer()
    assert site.peer.replies()[0].status == 200


# ---- later answers


def test_a_deferred_answer_is_sent_when_it_comes():
    site = Site()
    site.answer = Deferred()
    assert site.peer.send(request_bytes("GET", "/thing")) == []
    site.answer.callback(json_response(201, {"late": 1}))
    (reply,) = site.peer.replies()
    assert (reply.status, reply.body) == (201, b'{"late":1}')


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (RefusedError.of(Code.ALREADY_EXISTS, "x"), 409, "already-exists"),
        (ProblemError(418, "teapot", "y"), 418, "teapot"),
        (ZeroDivisionError("secret detail"), 500, "internal-error"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_errors_become_answers(error, status, expected, later):
    site = Site()
    if later:
        site.answer = Deferred()
    else:
        site.answer = error
    with capture_logs() as logs:
        site.peer.channel.dataReceived(request_bytes("GET", "/thing"))
        if later:
            site.answer.errback(error)
        (reply,) = site.peer.replies()
    assert (reply.status, code(reply)) == (status, expected)
    assert b"secret detail" not in reply.body
    failed = [entry for entry in logs if entry["event"] == "http.request_failed"]
    assert len(failed) == (1 if status == 500 else 0)
    assert all("secret detail" in entry["error"] for entry in failed)


def test_an_answer_that_never_comes_is_given_up():
    cancelled = []
    site = Site()
    site.answer = Deferred(cancelled.append)
    assert site.peer.send(request_bytes("GET", "/thing")) == []
    site.clock.advance(120)
    (reply,) = site.peer.replies()
    assert (reply.status, code(reply)) == (503, "timed-out")
    assert cancelled == [site.answer]


def test_what_was_asked_to_be_done_goes_on_when_its_answer_is_late():
    cancelled = []
    site = Site()
    site.answer = Deferred(cancelled.append)
    assert site.peer.send(request_bytes("POST", "/thing")) == []
    site.clock.advance(120)
    (reply,) = site.peer.replies()
    assert (reply.status, code(reply)) == (503, "timed-out")
    site.peer.leave()
    assert cancelled == []
    site.answer.callback(json_response(200, {}))
    assert site.peer.replies() == []
    assert site.clock.getDelayedCalls() == []


def test_what_was_asked_to_be_done_ends_with_its_client():
    cancelled = []
    site = Site()
    site.answer = Deferred(cancelled.append)
    site.peer.send(request_bytes("POST", "/thing"))
    site.peer.leave()
    assert cancelled == [site.answer]
    assert site.clock.getDelayedCalls() == []


def test_a_client_that_leaves_cancels_what_it_waited_for():
    ends = []
    site = Site()
    site.answer = Deferred()
    site.answer.addErrback(lambda failure: ends.append(failure.type) or failure)
    site.peer.send(request_bytes("GET", "/thing"))
    site.peer.leave()
    assert ends == [CancelledError]
    assert site.clock.getDelayedCalls() == []


def test_chunks_that_come_for_a_client_that_left_are_closed():
    closed = []

    class Chunks:
        def __iter__(self):
            return self

        def __next__(self):
            raise AssertionError("nobody reads them")

        def close(self):
            closed.append(True)

    site = Site()
    site.answer = Deferred(lambda d: d.callback(Response(status=200, body=Chunks())))
    site.peer.send(request_bytes("GET", "/thing"))
    site.peer.leave()
    assert closed == [True]


# ---- connections


def test_a_connection_that_does_nothing_makes_room_for_a_new_one():
    site, clock = build_site(settings=WireSettings(connections_max=2))
    first, second = Peer(site, clock), Peer(site, clock)
    first.ask("GET", "/nowhere")  # so that it is the second one that has done nothing for longest
    third = Peer(site, clock)
    assert third.ask("GET", "/nowhere").status == 404
    assert [second.transport.disconnected, first.transport.disconnected] == [True, False]
    assert site.dismissed == 1


def test_a_request_that_does_not_come_whole_makes_room():
    site, clock = build_site(settings=WireSettings(connections_max=1))
    drip = Peer(site, clock)
    drip.send(b"GET /liv")
    assert Peer(site, clock).ask("GET", "/nowhere").status == 404
    assert drip.transport.disconnected


def test_whoever_is_being_answered_is_not_cut_for_another():
    site = Site(settings=WireSettings(connections_max=1))
    site.answer = Deferred()
    site.peer.send(request_bytes("GET", "/thing"))
    assert Peer(site.site, site.clock).channel is None
    assert not site.peer.transport.disconnected


def test_descriptors_leave_management_its_share():
    site, clock = build_site(settings=WireSettings(connections_max=100))
    site.share = 2
    peers = [Peer(site, clock) for _ in range(3)]
    assert [one.transport.disconnected for one in peers] == [True, False, False]


def test_idle_connections_are_closed_first_and_the_others_by_force():
    site = Site()
    site.answer = Deferred(lambda _: None)
    idle = Peer(site.site, site.clock)
    site.peer.send(request_bytes("GET", "/thing"))
    site.site.close_connections()
    assert idle.closed
    assert not site.peer.closed
    site.site.close_connections(force=True)
    assert site.peer.transport.disconnected


def test_a_request_is_told_once_in_the_log_without_its_query():
    site = Site()
    with capture_logs() as logs:
        site.peer.ask("GET", "/thing?key=secret")
    (entry,) = logs
    assert entry["event"] == "http.request_answered"
    assert entry["log_level"] == "debug"
    assert (entry["path"], entry["status"], entry["method"]) == ("/thing", 200, "GET")
    assert "secret" not in str(entry)
