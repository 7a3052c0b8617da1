"""Each flood for a moment: the gateway lives, stays small, and an honest client goes on.

The bounds are an order of magnitude above what `make attack` measures, and below what the gateway
came to before it had them: seconds, and memory without end.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.attack.floods import FLOODS
from tests.attack.run import SETTINGS, attack, part
from tests.attack.stream_floods import STREAM_FLOODS
from tests.certificates import Authority

#: Resident memory that one flood may add [docs/attack.md].
GROWTH_MIB = 64
#: Where peers hold what they do not read: as much as their connections, or reads, may have. And
#: where they fill the blocks that replays share: 32 MiB of the disk's bytes, more once read.
HELD_MIB = 192
HOLDING = {"amqp_replays_scattered", "amqp_replays_unread", "sink_forged", "sink_waiting",
           "stomp_replays_unread", "streams_ranges", "streams_unread",
           "ws_replays_unread"}  # fmt: skip
#: Half of an honest client's sends are confirmed within this.
WAIT_MS = 400
#: These want all connections of management, of which `/livez` is to get one: it may be told to come
#: again. Their answers are megabytes, which peers and gateway copy on the same cores.
CROWDING = {"streams_unread", "streams_ranges", "streams_finds"}
CROWDED_MS = 1_200
SECONDS = 1.5
#: Those that the gateway has bounds for.
BOUNDED = (
    "stomp_abort",
    "amqp_flow",
    "amqp_begin",
    "amqp_attach",
    "amqp_unread_flows",
    "idle",
    "half_open",
    "idle_http",
    "stomp_unread_receipts",
    "stomp_unread_errors",
    "http_unread",
    "stomp_addresses",
    "stomp_scattered",
    "amqp_scattered",
    "stomp_subscriptions",
    "stomp_durable",
    "amqp_links",
    "amqp_nodes",
    "tiny_pieces",
    "come_and_go",
    "ws_idle",
    "ws_handshakes",
    "ws_pings",
    "ws_fragments",
    "ws_empty",
    "ws_unread",
    "ws_bombs",
    "ws_heartbeats",
    *STREAM_FLOODS,
)


@pytest.fixture(params=["tcp", "tls"])
def flooded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[ScratchGateway, ssl.SSLContext | None]]:
    context, pair = None, None
    if request.param == "tls":
        authority = Authority(tmp_path / "ca")
        context, issued = authority.client(), authority.issue("localhost")
        pair = issued.certificate, issued.key
    gateway = ScratchGateway(tmp_path / "gateway", tls=pair, settings=SETTINGS)
    gateway.start()
    yield gateway, context
    gateway.kill()


@pytest.mark.parametrize("name", BOUNDED)
def test_a_flood_holds_nobody_up_and_takes_no_memory(
    flooded: tuple[ScratchGateway, ssl.SSLContext | None], name: str
) -> None:
    gateway, context = flooded
    seen = attack(gateway, name, peers=2, seconds=SECONDS, tls=context)
    assert seen.alive
    assert seen.grew < (HELD_MIB if name in HOLDING else GROWTH_MIB)
    assert part(seen.waits, 0.5) < (CROWDED_MS if name in CROWDING else WAIT_MS)
    if name not in CROWDING:
        assert part(seen.live, 0.5) < WAIT_MS


def test_every_flood_says_what_it_does() -> None:
    assert all(flood.__doc__ for flood in FLOODS.values())
    assert set(BOUNDED) <= set(FLOODS)
