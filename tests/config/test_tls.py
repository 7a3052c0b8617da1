"""TLS in the configuration: what endpoints and tables come to, and what contradicts itself."""

from __future__ import annotations

import pytest

from gateway.config.check import HostFacts
from gateway.config.diff import changes, in_force
from gateway.config.endpoints import read_endpoint
from gateway.config.errors import ConfigError
from gateway.config.exposure import exposure_problems
from gateway.config.listeners import alpn_of
from gateway.config.load import load
from gateway.config.tls import ClientCertificates, TlsSource, TlsVersion
from gateway.config.tree import Config
from gateway.model.certificates import CertificateRule

HOST = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory="/d")
ASKED = (
    "acceptors.all.tls.client-certificates='asked'",
    "acceptors.all.tls.client-ca='ca.pem'",
)
TABLE = ("acceptors.all.endpoint='tcp:5671'", "acceptors.all.tls.certificate='c.pem'")


def config(*sets: str) -> Config:
    return load(None, sets, environment={}, host=HOST)


def test_what_is_in_an_ssl_endpoint() -> None:
    one = read_endpoint(
        r"ssl:5671:privateKey=/k\:1.pem:certKey=c.pem:extraCertChain=x.pem:dhParameters=d.pem"
        ":sslmethod=TLSv1_2_METHOD:interface=127.0.0.1:backlog=7"
    )
    assert one.source == TlsSource(
        certificate="c.pem",
        key="/k:1.pem",
        chain="x.pem",
        dh_parameters="d.pem",
        minimum=TlsVersion.TLS_1_2,
        maximum=TlsVersion.TLS_1_2,
    )
    assert (one.string, one.loopback, one.tls) == (
        "tcp:5671:interface=127.0.0.1:backlog=7",
        True,
        True,
    )


@pytest.mark.parametrize(
    ("text", "certificate", "key"),
    [
        ("ssl:5671", "server.pem", "server.pem"),
        ("ssl:5671:privateKey=k.pem", "k.pem", "k.pem"),
        ("ssl:5671:k.pem:c.pem", "c.pem", "k.pem"),
    ],
)
def test_parts_that_are_left_out_are_what_twisted_takes(
    text: str, certificate: str, key: str
) -> None:
    source = read_endpoint(text).source
    assert source is not None
    assert (source.certificate, source.key) == (certificate, key)


@pytest.mark.parametrize(
    ("text", "directory", "plain"),
    [
        ("tls:/etc/certs:port=5671", "/etc/certs", r"tcp6:5671:interface=\:\:"),
        ("tls:/etc/certs", "/etc/certs", r"tcp6:443:interface=\:\:"),
        ("tls:path=/c:port=1:interface=10.0.0.1", "/c", "tcp:1:interface=10.0.0.1"),
        (r"tls:/c:1:9:\:\:1", "/c", r"tcp6:1:interface=\:\:1:backlog=9"),
    ],
)
def test_what_is_in_a_tls_endpoint(text: str, directory: str, plain: str) -> None:
    one = read_endpoint(text)
    assert one.source == TlsSource(directory=directory)
    assert one.string == plain


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ssl:5671:sslmethod=SSLv3_METHOD", "SSLv3_METHOD"),
        ("ssl:5671:sslmethod=TLSv1_METHOD", "TLSv1_METHOD"),
        ("ssl:5671:privatekey=k.pem", 'unknown part "privatekey"'),
        ("tls:/c:certKey=c.pem", 'unknown part "certKey"'),
        ("tls:port=1", "names no directory"),
        ("ssl:amqps", "the port"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_endpoint(text)


def test_a_table_makes_a_plain_endpoint_speak_tls() -> None:
    acceptor, *_ = config(
        *TABLE,
        "acceptors.all.tls.key='/k.pem'",
        "acceptors.all.tls.chain='x/c.pem'",
        "acceptors.all.tls.minimum-version='TLSv1.3'",
    ).acceptors
    assert acceptor.endpoint.tls
    assert acceptor.endpoint.string == "tcp:5671"
    assert acceptor.endpoint.source == TlsSource(
        certificate="/w/c.pem",
        key="/k.pem",
        chain="/w/x/c.pem",
        minimum=TlsVersion.TLS_1_3,
        table=True,
    )


def test_management_may_have_one_too() -> None:
    made = config("management.tls.directory='certs'").management
    assert made.endpoint.tls
    assert made.endpoint.source == TlsSource(directory="/w/certs", table=True)


def test_an_endpoint_of_tls_takes_a_minimum_version_from_the_table() -> None:
    sets = ("acceptors.all.endpoint='ssl:1'", "acceptors.all.tls.minimum-version='TLSv1.3'")
    source = config(*sets).acceptors[0].endpoint.source
    assert source is not None
    assert (source.minimum, source.certificate) == (TlsVersion.TLS_1_3, "server.pem")


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (("acceptors.all.tls.key='k'",), r"acceptors\.all\.tls: needs the key certificate"),
        (
            (*TABLE, "acceptors.all.tls.directory='d'"),
            r"all\.tls\.certificate: cannot stand",
        ),
        (
            (*TABLE[1:], "acceptors.all.endpoint='ssl:1'"),
            r"all\.tls\.certificate: is said by the endpoint already",
        ),
        (
            (
                "acceptors.all.endpoint='haproxy:ssl:1'",
                "acceptors.all.tls.minimum-version='TLSv1.3'",
            ),
            r"all\.tls: has no say in haproxy:ssl:1",
        ),
        (
            (
                "acceptors.all.endpoint='ssl:1:sslmethod=TLSv1_2_METHOD'",
                "acceptors.all.tls.minimum-version='TLSv1.3'",
            ),
            r"minimum-version: is above",
        ),
        ((*TABLE, "acceptors.all.tls.minimum-version='TLSv1.1'"), "TLSv1.2, TLSv1.3"),
        ((*TABLE, "acceptors.all.tls.key-password='x'"), "key-password: is for keys that are"),
        (
            (*TABLE, "acceptors.all.tls.need-client-auth=true"),
            'is client-certificates = "required" here',
        ),
        ((*TABLE, "acceptors.all.tls.key-store-path='x'"), "write certificate and key, in PEM"),
        ((*TABLE, "acceptors.all.tls.certificat='x'"), "unknown key; did you mean certificate"),
        (("management.tls.chain='x'",), r"management\.tls: needs the key certificate"),
        (
            (*TABLE, "acceptors.all.tls.client-certificates='asked'"),
            "client-certificates: needs the key client-ca",
        ),
        (
            (*TABLE, "acceptors.all.tls.client-certificates='maybe'"),
            "is not one of no, asked, required",
        ),
        (
            (*TABLE, "acceptors.all.tls.client-crl='x'"),
            "client-crl: does nothing without client-certificates",
        ),
        (
            (*TABLE, *ASKED, "acceptors.all.tls.client-depth=11"),
            "client-depth: 11 is out of range",
        ),
        (
            (
                *TABLE,
                "acceptors.all.tls.ciphers='X'",
                "acceptors.all.tls.minimum-version='TLSv1.3'",
            ),
            "ciphers: is for TLSv1.2, which minimum-version does not let in",
        ),
        ((*TABLE, "acceptors.all.tls.ciphers=[]"), "needs an array of cipher suites"),
        (
            (*TABLE, "acceptors.all.sasl-mechanisms=['EXTERNAL']"),
            'sasl-mechanisms: "EXTERNAL" needs client certificates',
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(sets: tuple[str, ...], told: str) -> None:
    if not any(".endpoint=" in one for one in sets):
        sets = ("acceptors.all.endpoint='tcp:5671'", *sets)
    with pytest.raises(ConfigError, match=told):
        config(*sets)


def test_a_table_counts_as_encryption_for_listeners_that_others_reach() -> None:
    assert exposure_problems(config(*TABLE), has_users=True) == []
    (problem,) = exposure_problems(config(TABLE[0]), has_users=True)
    assert "without TLS" in problem.text


def test_a_reload_names_a_table_that_was_added() -> None:
    (change,) = changes(config(TABLE[0]), config(*TABLE))
    assert change.key == "acceptors.all.endpoint"
    assert change.old == "tcp:5671"
    assert change.new == "tcp:5671 with TLS from /w/c.pem"
    assert not change.reach.applies


def test_a_reload_tells_another_key_apart() -> None:
    keyed = (*TABLE, "acceptors.all.tls.key='k.pem'")
    (change,) = changes(config(*keyed), config(*TABLE, "acceptors.all.tls.key='new.pem'"))
    assert change.old == "tcp:5671 with TLS from /w/c.pem, /w/k.pem"
    assert change.new == "tcp:5671 with TLS from /w/c.pem, /w/new.pem"


@pytest.mark.parametrize("endpoint", ["tcp:5671", "ssl:5671", "tls:/c:port=5671"])
def test_each_kind_of_endpoint_may_ask_clients_for_certificates(endpoint: str) -> None:
    own = TABLE[1:] if endpoint == "tcp:5671" else ()
    more = ("acceptors.all.tls.client-crl='/l.pem'", "acceptors.all.tls.ciphers='A:B'")
    made = config(f"acceptors.all.endpoint='{endpoint}'", *own, *ASKED, *more)
    source = made.acceptors[0].endpoint.source
    assert source is not None
    assert source.client_certificates is ClientCertificates.ASKED
    assert (source.client_ca, source.client_crl) == ("/w/ca.pem", "/l.pem")
    assert source.ciphers == ("A", "B")
    assert source.key_of("acceptors.all", "client-ca") == "acceptors.all.tls.client-ca"


def test_a_reload_names_what_clients_are_asked_for() -> None:
    (change,) = changes(config(*TABLE), config(*TABLE, *ASKED))
    assert change.key == "acceptors.all.endpoint"
    assert "client certificates asked of /w/ca.pem" in str(change.new)


def test_names_of_protocols_are_those_that_a_listener_speaks() -> None:
    made = config(*TABLE, "acceptors.all.protocols=['AMQP', 'WS']")
    assert alpn_of(made, "acceptors.all") == ("amqp", "http/1.1")
    assert alpn_of(config(*TABLE, "acceptors.all.protocols=['STOMP']"), "acceptors.all") == ()
    assert alpn_of(made, "management") == ("http/1.1",)


RULE = "certificate-users=[{user='ann', subject='CN=ann'}]"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{subject='CN=x'}", r"certificate-users\[0\]: needs the key user"),
        ("{user='x'}", r"certificate-users\[0\]: asks for nothing"),
        ("{user='x', subject-matches='('}", "subject-matches: .* is no pattern"),
        ("{user='x', dns-matches='(a*)*'}", "dns-matches: .* repeats a group"),
        ("{user='x', subject='y', roles='z'}", "roles: needs an array of roles"),
        ("{user='\\\\1', subject='y'}", "user: .*one pattern"),
        ("{user='x', subject='y', san='z'}", "san: unknown key"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rule: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config(f"certificate-users=[{rule}]")


def test_rules_count_as_users_and_a_reload_takes_them_over() -> None:
    made = config(RULE)
    assert made.certificate_users == (CertificateRule(user="ann", subject="CN=ann"),)
    (change,) = changes(config(), made)
    assert (change.key, change.reach.applies) == ("certificate-users", True)
    assert change.new == [{"user": "ann", "subject": "CN=ann"}]
    assert in_force(config(), made).certificate_users == made.certificate_users
