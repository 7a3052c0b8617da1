"""Conversations over both wires: `talk` runs a case on the engine and on a process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.broker.core import Core, entry
from tests.conformance.clauses import Engine, Socket, Talk

_numbers = count()
#: Below this address nothing is made on demand.
CLOSED = "closed"
MAKING = ("auto-create-queues", "auto-create-addresses")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway that takes anybody; it must stop with status 0 when the module is over."""
    settings = [f'address-settings."{CLOSED}.#".{key}=false' for key in MAKING]
    with ScratchGateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


@pytest.fixture
def engine_talk() -> Iterator[Talk]:
    """A conversation with the engine alone, for what depends on how bytes are cut."""
    talking = Talk(Engine(Core()), "q")
    yield talking
    talking.finish()


@pytest.fixture(params=["engine", "process"])
def talk(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A conversation, with an address of its own."""
    if request.param == "engine":
        nothing = dict.fromkeys((key.replace("-", "_") for key in MAKING), False)
        talking = Talk(Engine(Core(entry(f"{CLOSED}.#", **nothing))), "q")
    else:
        running = request.getfixturevalue("process")
        talking = Talk(Socket(running.port), f"clause.{next(_numbers)}")
    yield talking
    talking.finish()
