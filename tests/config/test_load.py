"""Whole configurations: defaults, merging, and every mistake told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.config.check import HostFacts, default_memory
from gateway.config.errors import ConfigError, show_path
from gateway.config.exposure import exposure_problems
from gateway.config.load import default_data_directory, host_facts, load
from gateway.config.tree import Config, LogFormat, Wire
from gateway.model.address import RoutingType
from gateway.model.definitions import DivertRouting

HOST = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")


def read(
    tmp_path: Path,
    text: str | None = None,
    sets: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    file = None
    if text is not None:
        path = tmp_path / "f.toml"
        path.write_text(text)
        file = str(path)
    return load(file, sets, environment=environment or {}, host=HOST)


def problems(tmp_path: Path, text: str, sets: Sequence[str] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, sets)
    return [str(p).replace(str(tmp_path) + "/", "") for p in caught.value.problems]


def test_nothing_written_gives_two_loopback_acceptors(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert [(a.name, a.endpoint.text, a.protocols) for a in config.acceptors] == [
        ("all", "tcp:5672:interface=127.0.0.1", frozenset(Wire)),
        ("stomp", "tcp:61613:interface=127.0.0.1", frozenset({Wire.STOMP})),
    ]
    assert config.management.endpoint.text == "tcp:8161:interface=127.0.0.1"
    assert config.data_directory == "/d"
    assert config.journal_directory == "/d/journal"
    assert config.users_file == "/d/users.toml"
    assert config.users_file_required is False
    assert config.global_max_size == 512 << 20
    assert config.journal_file_size == 32 << 20
    assert config.store_lag_limit == 5000
    assert config.stomp_default_persistent is True
    assert config.concurrent_store_and_dispatch_queues is True
    assert config.message_expiry_scan_period == 30_000
    assert config.transaction_timeout == 300_000
    acceptor = config.acceptors[0]
    assert (acceptor.amqp_credits, acceptor.amqp_low_credits) == (1000, 300)
    assert acceptor.max_frame_size == 131072
    assert (acceptor.prefixes("/q", "/t"), acceptor.prefixes()) == (("/q", "/t"), ("", ""))
    assert exposure_problems(config, has_users=False) == []


@pytest.mark.parametrize(
    ("written", "low"),
    [
        ("amqp-credits=1", 0),
        ("amqp-credits=100", 30),
        ("amqp-credits=1000", 300),
        ("amqp-credits=50000", 300),
        ("amqp-credits=1\namqp-low-credits=1", 1),
    ],
)
def test_low_credits_are_what_fits_where_only_credits_are_written(
    tmp_path: Path, written: str, low: int
) -> None:
    config = read(tmp_path, f"[acceptors.a]\nendpoint='tcp:0:interface=127.0.0.1'\n{written}")
    assert config.acceptors[0].amqp_low_credits == low


STRIP = DivertRouting.STRIP
WHOLE = """
name = "edge-1"
data-directory = "data"
journal-directory = "/fast/journal"
global-max-size = "64MiB"
global-max-messages = 1000
journal-file-size = "16MiB"
store-task-limit = 500
store-lag-limit = "3s"
concurrent-store-and-dispatch-queues = false
message-expiry-scan-period = "5s"
transaction-timeout = "90s"
stomp-default-persistent = false

[acceptors.one]
endpoint = "tcp:0:interface=127.0.0.1"
protocols = ["amqp"]
allow-anonymous = true
amqp-credits = 100
amqp-low-credits = 30
heart-beat-to-connection-ttl-modifier = 3
connection-ttl-max = "10s"
anycast-prefix = ""

[address-settings."#"]
dead-letter-address = ""
address-full-policy = "fail"
[address-settings."a.#"]
max-size-bytes = "10MiB"

[addresses.orders]
queues = [{ name = "orders", ring-size = 5 }, { name = "orders2", durable = false }]
[addresses.news]
routing-types = ["ANYCAST", "MULTICAST"]
queues = [{ name = "n", routing-type = "multicast", max-consumers = 1 }]

[[authentication]]
type = "file"
path = "users.toml"

[management]
endpoint = "tcp:0:interface=127.0.0.1"
allowed-hosts = ["Gateway.Example"]
[metrics]
enabled = false
[logging]
format = "json"
level = "warning"
[streams."orders"]
address = "orders"
"""


def test_diverts_wildcards_and_markers_are_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
id-cache-size = 5
persist-id-cache = false
literal-match-markers = "()"
[wildcard-addresses]
routing-enabled = false
[address-settings."(a.#.b)"]
id-cache-size = 0
[diverts.one]
address = "a"
forwarding-address = "b, c::d"
[diverts.two]
address = "a.#"
forwarding-address = ["b"]
exclusive = true
filter = "x = 1"
routing-type = "pass"
""",
    )
    assert (config.id_cache_size, config.persist_id_cache) == (5, False)
    assert config.wildcard_routing is False
    assert config.address_settings.for_address("a.#.b").id_cache_size == 0
    assert config.address_settings.for_address("a.b").id_cache_size is None
    one, two = config.diverts
    assert (one.forwarding, one.exclusive, one.routing) == (("b", "c::d"), False, STRIP)
    assert (two.forwarding, two.exclusive, two.filter, two.routing.value) == (
        ("b",),
        True,
        "x = 1",
        "PASS",
    )


def test_every_table_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert config.name == "edge-1"
    assert config.data_directory == str(tmp_path / "data")
    assert config.journal_directory == "/fast/journal"
    assert config.users_file == str(tmp_path / "users.toml")
    assert config.users_file_required is True
    assert config.global_max_size == 64 << 20
    assert (config.store_task_limit, config.store_lag_limit) == (500, 3000)
    assert config.message_expiry_scan_period == 5000
    assert config.transaction_timeout == 90_000
    (acceptor,) = config.acceptors
    assert acceptor.protocols == {Wire.AMQP}
    assert acceptor.allow_anonymous is True
    assert acceptor.heart_beat_to_connection_ttl_modifier == 3.0
    assert acceptor.connection_ttl_max == 10_000
    assert acceptor.prefixes("/queue/", "/topic/") == ("", "/topic/")
    settings = config.address_settings.for_address("a.b")
    assert settings.dead_letter_address is None
    assert settings.address_full_policy is FullPolicy.FAIL
    assert settings.max_size_bytes == 10 << 20
    origin = {e.key: e.origin for e in config.address_settings.explain("a.b")}
    assert origin["max-size-bytes"] == f"{tmp_path}/f.toml:29"
    orders, news = config.addresses
    assert [(q.name, q.ring_size, q.durable, q.routing_type) for q in orders.queues] == [
        ("orders", 5, True, RoutingType.ANYCAST),
        ("orders2", None, False, RoutingType.ANYCAST),
    ]
    assert news.routing_types == frozenset(RoutingType)
    assert news.queues[0].max_consumers == 1
    assert config.management.allowed_hosts == {"gateway.example"}
    assert config.metrics.enabled is False
    assert config.logging.format is LogFormat.JSON
    assert (config.streams[0].name, config.streams[0].address) == ("orders", "orders")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nam = 'x'", "f.toml:1: nam: unknown key; did you mean name?"),
        (
            "globalMaxSize = 5",
            "f.toml:1: globalMaxSize: unknown key; did you mean global-max-size?",
        ),
        ("journal_type = 5", "f.toml:1: journal_type: unknown key; journal-type is known,"),
        (
            "journal-type = 5",
            "f.toml:1: journal-type: known, not supported yet by this version",
        ),
        ("max-disk-usage = 101", "max-disk-usage: 101 is out of range; it lies between -1 and 100"),
        ("min-disk-free = 0", "min-disk-free: 0 is too small; the least is 1, and -1 means no"),
        ("disk-scan-period = 0", "disk-scan-period: 0 is too small; the least is 1"),
        (
            'ballast-size = "1MiB"',
            (
                "ballast-size: is 1048576 bytes, and a full disk is drained with one journal file"
                " of it: at least journal-file-size, which is 33554432, or 0 for none"
            ),
        ),
        ("ballast-size = -1", "ballast-size: -1 is too small; the least is 0"),
        ("scrub-period = -2", "scrub-period: -2 is too small; the least is -1"),
        ('scrub-rate = "1KiB"', "scrub-rate: 1024 is too small; the least is 65536"),
        ("zzz = 1", "f.toml:1: zzz: unknown key; the keys here are acceptors"),
        ("name = 5", "f.toml:1: name: needs a text, not 5"),
        ("logging = 5", "f.toml:1: logging: needs a table, not 5"),
        ("acceptors = 5", "f.toml:1: acceptors: needs tables with names below it"),
        ("authentication = 5", "f.toml:1: authentication: needs an array of tables"),
        ("global-max-size = 0", "f.toml:1: global-max-size: 0 is too small"),
        ("journal-file-size = '1K'", "f.toml:1: journal-file-size: 1024 is out of range"),
        ("[acceptors.a]\nprotocols=['AMQP']", "f.toml:1: acceptors.a: needs the key endpoint"),
        ("[acceptors.a]\nendpoint='tcp'", 'f.toml:2: acceptors.a.endpoint: "tcp" has the port ""'),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nstomp-max-frame-payload-length=1000",
            "stomp-max-frame-payload-length: 1000 is out of range",
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nsasl-mechanisms=['PLAIN', 'EXTERNAL']",
            "needs client certificates",
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nsasl-mechanisms=['ANONYMOUS']",
            "is offered by allow-anonymous",
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nsasl-mechanisms=['CRAM-MD5']",
            '"CRAM-MD5" is not one of EXTERNAL, SCRAM-SHA-512, SCRAM-SHA-256, PLAIN',
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nprotocols=['MQTT']",
            '"MQTT" is not one of AMQP, STOMP, WS',
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\namqp-low-credits=1001",
            "1001 is above amqp-credits, 1000: credit never is that high; 300 is what fits",
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nconnection-ttl-max=1",
            "below connection-ttl-min, 1000 ms",
        ),
        ("[acceptors.a]\nendpoint='tcp:1'\nmulticast-prefix='/queue/'", "same as anycast-prefix"),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nallowed-origins=['shop.example']",
            'allowed-origins: "shop.example" is no origin of web pages',
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\nheart-beat-to-connection-ttl-modifier=0.5",
            "between 1.0",
        ),
        (
            "[acceptors.a]\nendpoint='tcp:1'\n[acceptors.b]\nendpoint='tcp:1'",
            "endpoint of acceptors.a",
        ),
        ("[address-settings.'a.#.b']", "'a.#.b' has '#' before"),
        (
            "[address-settings.'#']\ndefault-ring-size = 0",
            'f.toml:2: address-settings."#".default-ring',
        ),
        ("[address-settings.'#']\ndefault-ring-size = -5", "-5 is below -1"),
        ("[address-settings.'#']\nmax-size-bytes = 0\naddress-full-policy='DROP'", "full for ever"),
        (
            "[address-settings.'#']\nmax-size-messages = 0\naddress-full-policy='FAIL'",
            "full for ever",
        ),
        (
            "[address-settings.'#']\nmax-size-messages = 0\naddress-full-policy='BLOCK'",
            "full for ever",
        ),
        (
            "[address-settings.'#']\naddress-full-policy = 'SPILL'",
            "not one of PAGE, BLOCK, FAIL, DROP",
        ),
        (
            "[address-settings.'#']\npage-size-bytes = 5",
            "5 bytes is no page; it lies between 1024",
        ),
        ("[address-settings.'#']\nredelivery-delay = -5", "redelivery-delay: -5 is below 0"),
        ("[address-settings.'#']\nring-size = 5", "did you mean default-ring-size?"),
        (
            "[address-settings.'#']\nmin-expiry-delay=9\nmax-expiry-delay=5",
            "is above max-expiry-delay",
        ),
        ("[address-settings.'#']\ndead-letter-address='$x'", "kept for the gateway"),
        ("[addresses.'$x']", "kept for the gateway"),
        ("[addresses.a]\nqueues=5", "addresses.a.queues: needs an array of tables"),
        ("[addresses.a]\nqueues=[{}]", "addresses.a.queues[0]: needs the key name"),
        (
            "[addresses.a]\nqueues=[{name='q',ring-size=0}]",
            "addresses.a.queues[0].ring-size: a ring of 0",
        ),
        ("[addresses.a]\nqueues=[{name='q',max-consumers=-2}]", "max-consumers: -2 is below -1"),
        (
            "[addresses.a]\nqueues=[{name='q',user='u'}]",
            "user: known, not supported yet",
        ),
        ("[addresses.a]\nqueues=[{name='q'},{name='q'}]", "queue q is in addresses.a too"),
        (
            "[addresses.a]\nqueues=[{name='q',routing-type='MULTICAST'}]",
            "not a routing type of its",
        ),
        (
            "[addresses.a]\nrouting-type='ANYCAST'\nrouting-types=['ANYCAST']",
            "both routing-type and",
        ),
        (
            "[addresses.a]\nrouting-types=['ANYCAST','MULTICAST']\nqueues=[{name='q'}]",
            "needs the key rou",
        ),
        (
            "[[authentication]]\ntype='ldap'\npath='x'",
            'authentication[0].type: "ldap" is not known',
        ),
        ("[[authentication]]\ntype='file'", "authentication[0]: needs the key path"),
        (
            "authentication=[{type='file',path='a'},{type='file',path='b'}]",
            "is a second users file",
        ),
        ("[streams.s]", "streams.s: needs the key address"),
        ("[management]\nallowed-hosts='x'", "management.allowed-hosts: needs an array of names"),
        ("[streams.s]\naddress='a'\nretention-time=1", "retention-time: known, not supported"),
        ("[streams.s]\naddress='a'\nretain='some'", "streams.s.retain"),
        (
            "[streams.s]\naddress='a'\nretain='archived'\nretention-bytes=1000",
            "268435456 bytes stay here although archived, but 1000 is the most that may stay",
        ),
        ("stream-retain='archived'\nstream-local-bytes='6g'", "stream-local-bytes"),
        ("[archive]\ntable='lake'", "needs s3://, gs://, az:// or an absolute folder"),
        ("[archive]\nregion='x'", "names a store, and no table"),
        ("[streams.s]\naddress='a'\nselector='x'", "selector: known, not supported yet"),
        ("[diverts.x]\naddress='a'", "diverts.x: needs the key forwarding-address"),
        ("[diverts.x]\naddress='a'\nforwarding-address='b, a'", "straight back to it"),
        ("[diverts.x]\naddress='a'\nforwarding-address=[]", "needs an address or an array"),
        (
            "[diverts.x]\naddress='a'\nforwarding-address='b'\ntransformer='t'",
            "diverts.x.transformer: known, not supported yet",
        ),
        ("[diverts.x]\naddress='a'\nforwarding-address='b'\nfilter='x ='", "diverts.x.filter: "),
        ("literal-match-markers='('", "literal-match-markers: '(' is not two different"),
        ("[wildcard-addresses]\ndelimiter='/'", "delimiter: known, not supported yet"),
        ("[address-settings.a]\nid-cache-size=-2", "id-cache-size: -2 is below 0"),
        ("[address-settings.a]\nretroactive-message-count=1000000", "is above 100000"),
        ("security-settings = 5", "security-settings: needs tables with names below it, not 5"),
        ("[security-settings.'a.#.b']", "has '#' before its last word"),
        ("[security-settings.'a::#']", "'a::#' has a wildcard, and a match for one queue"),
        ("[security-settings.'a::']", "'a::' is no queue of an address"),
        ("[security-settings.'#']\nsend = 'a'", "send: needs an array of roles, not "),
        ("[security-settings.'#']\nsend = ['']", "send: "),
        ("[security-settings.'#']\nsends = ['a']", "unknown key; did you mean send?"),
        (
            "[security-settings.'#']\ncreate-address=['a']\ncreateAddress=['b']",
            "createAddress: is create-address in Artemis' words; keep one",
        ),
        ("name = ", "f.toml: is not TOML"),
    ],
)
def test_mistakes_name_place_path_and_way_out(tmp_path: Path, text: str, expected: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert expected in problem
    assert problem.startswith("f.toml:")


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    text = "nam = 1\njournal-type = 90\n[acceptors.a]\nprotocols = ['X']\n[logging]\nlevel = 'x'\n"
    found = problems(tmp_path, text, ["global-max-size=x", "oops"])
    assert len(found) == 7
    assert any(f.startswith("--set oops") for f in found)
    assert any(f.startswith("--set global-max-size=x: global-max-size:") for f in found)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(str(tmp_path / "none.toml"), environment={}, host=HOST)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 8"):
        load(str(path), environment={}, host=HOST)


def test_default_below_file_below_environment_below_set(tmp_path: Path) -> None:
    environment = {"SLUICEGATE__NAME": "env", "SLUICEGATE__STORE_TASK_LIMIT": "7"}
    assert read(tmp_path).name == "sluicegate"
    assert read(tmp_path, "name = 'file'").name == "file"
    both = read(tmp_path, "name = 'file'", environment=environment)
    assert (both.name, both.store_task_limit) == ("env", 7)
    assert read(tmp_path, "name = 'file'", ["name=set"], environment).name == "set"


def test_the_data_option_wins(tmp_path: Path) -> None:
    config = load(
        None, ["data-directory=/x"], environment={}, host=HOST, data_directory=str(tmp_path)
    )
    assert config.data_directory == str(tmp_path)
    assert config.origins["data-directory"] == "--data"


def test_the_default_memory_limit_is_a_quarter_of_a_small_machine() -> None:
    assert default_memory(8 << 30) == 512 << 20
    assert default_memory(1 << 30) == 256 << 20
    assert default_memory(1 << 20) == 16 << 20


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/home/a"}, "/home/a/.local/share/sluicegate"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "/x"}, "/x/sluicegate"),
        ({"HOME": "/home/a", "INVOCATION_ID": "1"}, "/var/lib/sluicegate"),
        ({"STATE_DIRECTORY": "/var/lib/one:/var/lib/two"}, "/var/lib/one"),
        ({}, "/var/lib/sluicegate"),
    ],
)
def test_where_data_goes_unless_written(environment: dict[str, str], expected: str) -> None:
    assert default_data_directory(environment) == expected


def test_host_facts_are_sane() -> None:
    facts = host_facts({"HOME": "/h"})
    assert facts.memory_bytes > 1 << 20
    assert facts.working_directory.startswith("/")


@pytest.mark.parametrize(
    ("sets", "has_users", "words"),
    [
        (
            ["acceptors.all.endpoint=tcp:5672"],
            False,
            ["acceptors.all.endpoint", "no user", "user add"],
        ),
        (["acceptors.all.endpoint=tcp:5672"], True, ["without TLS", "allow-insecure = true"]),
        (["management.endpoint=tcp:8161"], True, ["management.endpoint", "without TLS"]),
        (["acceptors.all.endpoint=tls:/c:port=5671"], True, []),
        (["acceptors.all.endpoint=tls:/c:port=5671"], False, ["no user"]),
        (
            ["acceptors.all.endpoint=tls:/c:port=5671", "acceptors.all.allow-anonymous=true"],
            True,
            ["allow-anonymous lets anyone in"],
        ),
        (["acceptors.all.endpoint=tcp:5672", "allow-insecure=true"], False, []),
        (["management.endpoint=tcp:8161", "management.enabled=false"], True, []),
        (["acceptors.all.endpoint=unix:/run/x"], False, []),
    ],
)
def test_exposure(tmp_path: Path, sets: list[str], has_users: bool, words: list[str]) -> None:
    found = exposure_problems(read(tmp_path, None, sets), has_users=has_users)
    assert len(found) == (1 if words else 0)
    for word in words:
        assert word in str(found[0])


def test_paths_are_shown_as_one_would_write_them() -> None:
    assert show_path(("a", "b-c", 0, "x.y", 'q"')) == 'a.b-c[0]."x.y"."q\\""'
