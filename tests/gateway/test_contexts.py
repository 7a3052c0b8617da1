"""What a listener agrees on with its clients: protocols by name, certificates, sessions again."""

from __future__ import annotations

import datetime as dt
import ssl
import time
from pathlib import Path

import pytest

from gateway.config.tls import ClientCertificates, TlsSource
from gateway.listening.certificates import LOOK_SECONDS, Certificates
from protocols.transport.tls import TOO_DEEP, Tls
from tests.certificates import Authority
from tests.client_certificates import Maker, Shown, named

NOW_MS = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)


class World:
    """A listener's certificates, who trusts them, and who makes those of clients."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.server, self.maker = Authority(folder / "server"), Maker(folder / "clients")
        pair = self.server.issue()
        self.seconds, self.now_ms = 0.0, NOW_MS
        self.certificates = Certificates(
            TlsSource(
                certificate=str(pair.certificate),
                key=str(pair.key),
                client_certificates=ClientCertificates.ASKED,
                client_ca=str(self.maker.authorities),
                client_crl=str(self.maker.lists),
                table=True,
                **more,
            ),
            "l",
            seconds=lambda: self.seconds,
            now_ms=lambda: self.now_ms,
            alpn=("amqp", "http/1.1"),
        )

    def shaken(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> tuple[Tls, Tls]:
        """Return server and client after as much of a handshake as there is."""
        server = Tls(self.certificates.context())
        client = Tls(context, server=False, name="localhost")
        if session is not None:
            client._tls.session = session
        client.shake()
        for _ in range(4):
            server.feed(client.take())
            client.feed(server.take())
        return server, client


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def der(shown: Shown) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return shown.made.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["amqp"], "amqp"),
        (["http/1.1", "amqp"], "amqp"),  # the listener's order
        (["h2", "http/1.1"], "http/1.1"),
        (["mqtt"], None),  # no reason to refuse: the first bytes tell
        ([], None),
    ],
)
def test_protocols_are_agreed_on_by_name(
    offered: list[str], agreed: str | None, world: World
) -> None:
    context = world.server.client()
    if offered:
        context.set_alpn_protocols(offered)
    server, client = world.shaken(context)
    assert server.ready
    assert client._tls.selected_alpn_protocol() == agreed


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_is_known_once_the_handshake_is_done(
    version: ssl.TLSVersion, world: World
) -> None:
    shown = world.maker.client(named("ann"))
    context = shown.context(world.server)
    context.minimum_version = context.maximum_version = version
    server, _ = world.shaken(context)
    assert server.certificate == der(shown)
    assert Tls(world.certificates.context()).certificate is None
    plain = world.server.client()
    assert world.shaken(plain)[0].certificate is None


@pytest.mark.parametrize(("allowed", "ready"), [(0, False), (1, True), (2, True)])
def test_the_depth_is_the_certificates_between(
    allowed: int,
    ready: bool,
    tmp_path: Path,
) -> None:
    world = World(tmp_path, client_depth=allowed)
    server, _ = world.shaken(world.maker.client(named("ann")).context(world.server))
    assert server.ready is ready
    assert server.failure == ("" if ready else TOO_DEEP)
    direct = world.maker.client(named("ann"), signer=world.maker.root)
    assert world.shaken(direct.context(world.server))[0].ready


def test_a_session_that_is_taken_up_again_ends_with_what_it_was_allowed_by(world: World) -> None:
    """TLS 1.2 does not ask again for a certificate that it has seen."""
    shown = world.maker.client(named("ann"))
    context = shown.context(world.server)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _, client = world.shaken(context)
    session = client._tls.session
    world.maker.revoke(shown.made.serial_number)
    world.seconds += LOOK_SECONDS
    server, client = world.shaken(context, session)
    assert server.failure == "certificate-revoked"
    assert not client._tls.session_reused
    world.maker.revoke()
    world.seconds += LOOK_SECONDS
    _, client = world.shaken(context)
    session = client._tls.session
    ends = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    world.maker.revoke(until=ends)
    world.now_ms = int(time.time() * 1000)
    world.seconds += LOOK_SECONDS
    assert world.shaken(context, session)[0].failure == "crl-has-expired"


def test_a_list_that_comes_to_its_end_ends_the_sessions_of_before(world: World) -> None:
    """No file changes then."""
    shown = world.maker.client(named("ann"))
    context = shown.context(world.server)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    soon = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=3)
    world.maker.revoke(until=soon)
    world.seconds += LOOK_SECONDS
    server, client = world.shaken(context)
    assert server.ready
    before = world.certificates.context()
    world.now_ms = int(soon.timestamp() * 1000) + 1000
    world.seconds += LOOK_SECONDS
    assert world.certificates.context() is not before
    server, client = world.shaken(context, client._tls.session)
    assert not client._tls.session_reused
