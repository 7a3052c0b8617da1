"""The bench of a long history: what it sends and counts, and a history larger than its disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gateway.bench.history import Disk, bodies, disk_bytes, measure

MIB = 1 << 20


def test_bodies_have_their_numbers_and_nothing_in_common() -> None:
    column = bodies(1000, 50, 200).column("body")
    assert column.type == pa.binary()
    found = column.to_pylist()
    assert [int.from_bytes(body[:8]) for body in found] == list(range(1000, 1050))
    assert {len(body) for body in found} == {200}
    assert len({body[8:] for body in found}) == 50
    assert len(pa.compress(b"".join(found), "zstd", asbytes=True)) > 9000


def test_a_disk_remembers_the_most_it_had(tmp_path: Path) -> None:
    streams = tmp_path / "streams" / "1"
    streams.mkdir(parents=True)
    (tmp_path / "journal").write_bytes(b"x" * 100)
    (streams / "segment").write_bytes(b"x" * 1000)
    disk = Disk(tmp_path)
    disk.look()
    (streams / "segment").unlink()
    disk.look()
    assert (disk.whole, disk.streams, disk_bytes(tmp_path)) == (1100, 1000, 100)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_history_is_larger_than_its_disk_and_read_whole(
    spark_environment: dict[str, str],
) -> None:
    pytest.importorskip("deltalake")
    told: list[str] = []
    found = measure(400, 4096, 192, told.append)
    assert found["rows"] == 400 * MIB // 4096, "each was read once, with its own number"
    assert found["streams_peak_mib"] < 192
    assert found["at_gateway"] < found["rows"] // 2
    assert found["table_mib"] > 390, "bodies that a table cannot make smaller"
    assert told
