"""SIGKILL at random moments: nothing confirmed is lost, nothing is invented, what comes again is
marked.

Each round starts the real gateway on the data directory of the round before, sends over AMQP and
STOMP with
confirmation, kills it in the middle, starts it again and drains the queue. The senders remember
what was confirmed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.durability.rounds import AmqpSender, StompSender, drain, run_rounds

ROUNDS = 20
#: Rounds share a process of the test, so that a slow machine shows which round it was.
ROUNDS_A_TEST = 5
#: With concurrent store and dispatch, and as many without it.
CHEAP_ROUNDS = 20


@pytest.mark.timeout(180)
@pytest.mark.parametrize("batch", range(ROUNDS // ROUNDS_A_TEST))
def test_nothing_confirmed_is_lost(
    batch: int, tmp_path: Path, gateway_process: Callable[..., ScratchGateway]
) -> None:
    chance = random.Random(batch)
    folder = tmp_path / "gateway"
    for number in range(ROUNDS_A_TEST):
        prefix = f"{batch}-{number}"
        gateway = gateway_process(folder=folder)
        amqp = AmqpSender(gateway.port, prefix)
        stomp = StompSender(gateway.stomp_port, prefix)
        amqp.start()
        stomp.start()
        time.sleep(chance.uniform(0.05, 0.8))
        gateway.kill()
        amqp.join(20)
        stomp.join(20)
        assert not amqp.is_alive()
        assert not stomp.is_alive()
        again = gateway_process(folder=folder)
        taken = drain(again)
        bodies = [body for body, _ in taken]
        confirmed = amqp.confirmed.keys() | stomp.confirmed.keys()
        sent = amqp.sent | stomp.sent
        assert confirmed <= set(bodies), f"lost: {sorted(confirmed - set(bodies))[:5]}"
        assert set(bodies) <= sent, f"invented: {sorted(set(bodies) - sent)[:5]}"
        assert len(bodies) == len(set(bodies)), "a message came twice"
        assert all(marked for _, marked in taken), "after a kill each may have been seen before"
        assert again.stop() == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("concurrent", ["true", "false"])
def test_rounds_with_a_receiver(concurrent: str, tmp_path: Path) -> None:
    """Each gateway drains what the one before it left: one start a round."""
    switch = f"concurrent-store-and-dispatch-queues={concurrent}"
    tally = run_rounds(tmp_path / "gateway", CHEAP_ROUNDS, random.Random(concurrent), (switch,))
    assert tally.clean, str(tally)
    assert tally.rounds == CHEAP_ROUNDS
    assert tally.confirmed > CHEAP_ROUNDS
    assert tally.received > 0
    if concurrent == "false":
        assert tally.cancelled == 0
