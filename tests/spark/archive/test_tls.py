"""Archive, source and sink at a gateway that asks for a login and speaks TLS only."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import ScratchGateway, importing_environment
from gateway.trial.self_signed import self_signed
from tests.gateway.stomp_peer import StompPeer
from tests.interop.support import add_user
from tests.spark.archive.jobs import at, table_rows_of
from tests.spark.archive.program import Program
from tests.spark.session import run_to_its_end, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

PASSWORD = "t3a-in-the-morning"
COUNT = 1200


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("secured") as session:
        yield session


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ScratchGateway]:
    """A gateway with the user ann, whose listeners speak TLS, and taps on `in` and `out`."""
    pair = self_signed(tmp_path)
    gateway = ScratchGateway(
        tmp_path / "gateway",
        tls=(pair.certificate, pair.key),
        tls_management=True,
        settings=("name='east'", "streams.in.address='in'", "streams.out.address='out'"),
    )
    add_user(gateway, "ann", PASSWORD)
    with gateway:
        yield gateway


def send(gateway: ScratchGateway, numbers: range) -> None:
    assert gateway.certificate is not None
    context = ssl.create_default_context(cafile=str(gateway.certificate))
    peer = StompPeer(gateway.stomp_port, login=("ann", PASSWORD), context=context)
    for number in numbers:
        last = number == numbers[-1]
        peer.send("in", b"%d" % number, "last" if last else "")
    assert peer.read()[1]["receipt-id"] == "last"
    peer.close()


def archive(gateway: ScratchGateway, folder: Path, password: str, *arguments: str) -> Program:
    """Run the archive to its end; returns its program."""
    program = Program(
        gateway, folder, "--available-now", "--username", "ann", *arguments,
        environment={**importing_environment(), "SLUICEGATE_PASSWORD": password},
    )  # fmt: skip
    program.start()
    try:
        program.status = program.finish()
    finally:
        program.kill()
    return program


def test_archived_read_over_the_seam_and_written_back(
    spark: Any, guarded: ScratchGateway, tmp_path: Path
) -> None:
    trust = str(guarded.certificate)
    login = {"url": guarded.url, "username": "ann", "password": PASSWORD, "tlsCaFile": trust}
    send(guarded, range(COUNT))
    program = archive(guarded, tmp_path, PASSWORD, "--tls-ca-file", trust)
    assert program.status == 0, program.log()[-3000:]
    assert table_rows_of(at(tmp_path / "table"))["east", "in", 1] == list(range(COUNT))
    send(guarded, range(COUNT, COUNT + 300))

    def start() -> Any:
        source = spark.readStream.format("sluicegate").options(**login).option("address", "in")
        source = source.option("subscription", "carry").option("startingOffsets", "earliest")
        source = source.option("archive", str(tmp_path / "table"))
        source = source.option("maxMessagesPerTrigger", "500").load()
        sink = source.select("body").writeStream.format("sluicegate").options(**login)
        sink = sink.option("address", "out").option("checkpointLocation", str(tmp_path / "carry"))
        return sink.trigger(availableNow=True).start()

    run_to_its_end(start, 120)
    carried = spark.read.format("sluicegate").options(**login).option("address", "out").load()
    bodies = sorted(int(bytes(row.body)) for row in carried.select("body").collect())
    assert bodies == list(range(COUNT + 300))
    for kept in (program.checkpoint, tmp_path / "table", tmp_path / "carry"):
        for path in kept.rglob("*"):
            assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in program.log() + guarded.log.read_text()


def test_a_stranger_and_a_certificate_of_nobody_are_refused_in_a_line(
    spark_environment: dict[str, str], guarded: ScratchGateway, tmp_path: Path
) -> None:
    trust = str(guarded.certificate)
    cases = [
        ("hunter2", ("--tls-ca-file", trust), "Give `token`, or `username` and `password`"),
        (PASSWORD, (), "its certificate is not trusted"),
    ]
    for password, given, said in cases:
        program = archive(guarded, tmp_path, password, *given)
        assert program.status == 1
        (line,) = (one for one in program.log().splitlines() if one.startswith("archive: "))
        assert said in line
        assert password not in program.log()
        program.log_file.unlink()
    assert not list((tmp_path / "table").glob("gateway=*"))
