"""An S3 server that is killed amid batches and goes on: each row is in the table once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import ScratchGateway
from pyspark_sluicegate.archive.store import StoreError, check_conditional
from tests.spark.archive.jobs import Job, nonce, table_rows, table_rows_of
from tests.spark.archive.program import Program, fill, wait_until
from tests.spark.archive.store_kills import TABLE, place, run_rounds
from tests.spark.archive.stores import ENVIRONMENT, Versity, killed_amid
from tests.spark.archive.versity import NoVersityError
from tests.spark.support import Server

pytestmark = pytest.mark.timeout(300)
KEY = ("gateway", "orders", 1)
#: Longer than the store's library tries again: the step fails, and is taken again from its start.
LONG = 40.0
SHORT = 0.3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Versity]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    try:
        made = Versity(tmp_path)
    except NoVersityError as error:
        pytest.skip(str(error))
    yield made
    made.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "streams", segmentBytes=20_000, localBytes=30_000)
    made.make("orders")
    yield made
    made.kill()


def test_it_keeps_conditions_and_objects_over_a_kill(store: Versity) -> None:
    """What the other tests rest on is true of this store."""
    where = place(store)
    check_conditional(where, nonce())
    from obstore import get, put
    from obstore.exceptions import AlreadyExistsError

    put(where.open(), "kept", b"first", mode="create")
    store.kill()
    store.start()
    with pytest.raises(AlreadyExistsError):
        put(where.open(), "kept", b"second", mode="create")
    assert bytes(get(where.open(), "kept").bytes()) == b"first"


def test_killed_amid_files_and_commits(server: Server, store: Versity) -> None:
    """Ten of the rounds of `store_kills`."""
    tally = run_rounds(store, server, 10, seed=13)
    assert tally.kills == 10, "each round had its kill"
    assert tally.sent > 2000
    assert tally.clean, tally


@pytest.mark.parametrize("ending", [".parquet", ".json"])
def test_a_store_that_stays_away_is_told_and_nothing_is_lost(
    server: Server, store: Versity, ending: str
) -> None:
    server.fill("orders", 2000)
    one = Job(place(store), url=server.url, address="orders", targetFileBytes="4k")
    one.committer.open()  # makes the table: its own first commit is not meant
    with killed_amid(store, ending, 1, LONG), pytest.raises(StoreError, match="cannot be used"):
        one.run()
    assert server.stream("orders")["head"] == 2000
    server.fill("orders", 500)
    one.start()
    one.run()
    assert store.kills == 1
    assert table_rows(place(store)) == {KEY: list(range(2500))}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_program_goes_on_while_its_store_is_killed(
    spark_environment: dict[str, str],
    gateway_process: Callable[..., ScratchGateway],
    store: Versity,
    tmp_path: Path,
) -> None:
    """Spark, a gateway and a store as processes; the store dies among files and at commits."""
    gateway = gateway_process(settings=("name='east'",))
    for name in ("orders", "news"):
        gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    there = ("--endpoint", store.endpoint, "--region", "us-east-1")
    program = Program(
        gateway, tmp_path, "--trigger", "100 milliseconds", "--target-file-bytes", "8k",
        "--max-bytes-per-trigger", "64k", *there, table=TABLE,
    )  # fmt: skip
    sent, kills = 0, store.kills
    program.start()
    try:
        wait_until(lambda: store.objects(".json") >= 1, program)
        for number in range(8):
            with killed_amid(store, (".parquet", ".json")[number % 2], 1, SHORT):
                fill(gateway, "orders", 1000, f"a{number}")
                fill(gateway, "news", 100, f"b{number}")
                sent, kills = sent + 1, kills + 1
                wait_until(lambda: store.kills == kills, program, alive=False)  # noqa: B023
            if program.ended():
                program.start()  # it was told of the store; as a supervisor does
    finally:
        program.kill()
    last = Program(gateway, tmp_path, "--available-now", "--compact", "1", *there, table=TABLE)
    last.start()
    assert last.finish() == 0, last.log()[-3000:]
    assert store.kills == 8
    found = {key[1]: offsets for key, offsets in table_rows_of(place(store)).items()}
    assert found == {"orders": list(range(1000 * sent)), "news": list(range(100 * sent))}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "archive", "verify", TABLE, *there],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"east/orders life 1: offsets 0 to {1000 * sent - 1}, ", done.stdout)
    assert done.stdout.endswith("0 holes, 0 lost\nwhole\n")
