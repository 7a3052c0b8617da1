"""What tests share: a real gateway process, Spark's environment, and how Spark tests are spread.

`gateway` and `gateway_process` give a gateway on a fresh data directory; `spark_environment` sets
what Spark needs to start here. Tests marked `spark` share one worker, since each starts a Java that
wants a core of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.trial.java import NoJavaError
from gateway.trial.java import spark_environment as _spark_environment
from gateway.trial.scratch import ScratchGateway
from tests import lanes

#: Starting Java, planning and the first micro-batch take most of it, on two busy cores.
SPARK_TEST_SECONDS = 300

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# A job in the background of a script is started with interrupts ignored, and hands that on to the
# gateways that are started here; theirs must be heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch over the quick lane once tests begin: xdist starts processes before that."""
    if lanes.QUICK and session.items:
        lanes.keep_in_lane()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what is not of the quick lane, where that is asked for."""
    return True if lanes.QUICK and not lanes.in_lane(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SPARK_TEST_SECONDS))


@pytest.fixture
def gateway_process(tmp_path: Path) -> Iterator[Callable[..., ScratchGateway]]:
    """A function that starts gateways: `start(folder=..., settings=(...), config=...)`.

    All are stopped at the end, and must stop with status 0. A gateway that the test has stopped or
    killed itself is left alone.
    """
    started: list[ScratchGateway] = []

    def start(
        folder: Path | None = None, settings: tuple[str, ...] = (), config: Path | None = None
    ) -> ScratchGateway:
        folder = folder or tmp_path / f"gateway-{len(started)}"
        gateway = ScratchGateway(folder, settings=settings, config=config)
        started.append(gateway)
        gateway.start()
        return gateway

    yield start
    statuses = [gateway.stop() for gateway in started if gateway.running()]
    assert statuses == [0] * len(statuses), "a gateway did not stop cleanly"


@pytest.fixture
def gateway(gateway_process: Callable[..., ScratchGateway]) -> ScratchGateway:
    """A running gateway on free ports with a fresh data directory; it must stop with status 0."""
    return gateway_process()


@pytest.fixture(scope="session")
def spark_environment() -> Iterator[dict[str, str]]:
    """Set what Spark needs in this process; the test fails where no Java is to be had."""
    try:
        wanted = _spark_environment()
    except NoJavaError as error:
        pytest.fail(str(error))
    before = dict(os.environ)
    os.environ.update(wanted)
    yield wanted
    os.environ.clear()
    os.environ.update(before)
