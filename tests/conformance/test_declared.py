"""Row R24 by the real gateway: what a queue that the configuration declares has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.cli.amqp_client import Login, Sending
from gateway.cli.message_form import encoded
from gateway.trial.scratch import HOST, ScratchGateway

DECLARED = """
[address-settings."#"]
default-ring-size = 3
[addresses.plain]
routing-type = "ANYCAST"
queues = [{ name = "plain" }]
[addresses.written]
routing-type = "ANYCAST"
queues = [{ name = "written", ring-size = -1 }]
"""


def test_r24_a_queue_that_the_configuration_declares_has_the_default_ring(
    gateway_process: Callable[..., ScratchGateway], tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(DECLARED)
    gateway = gateway_process(config=file)
    kept = {"plain": 3, "written": 5}
    for name in kept:
        facts = {"durable": True, "priority": 4, "ttl_ms": 0, "content_type": None}
        messages = [encoded(str(n), **facts, properties={}) for n in range(5)]
        login = Login(f"amqp://{HOST}:{gateway.port}", None, None)
        sending = Sending(login, name, iter(messages))
        sending.run()
        assert sending.confirmed == 5
    for name, count in kept.items():
        shown = gateway.request("GET", f"/api/v1/queues/{name}")[1]
        assert (shown["messageCount"], shown["messagesReplaced"]) == (count, 5 - count)
