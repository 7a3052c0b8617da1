"""The server of these tests lasts as long as a test does."""

from __future__ import annotations

from pathlib import Path

from tests.spark.support import Server

#: Each call is a line of the log; a pipe that nobody reads holds 64 KiB.
CALLS = 1500


def test_a_server_answers_more_calls_than_a_pipe_has_room_for_their_lines(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.make("orders")
        for _ in range(CALLS):
            assert server.stream("orders")["head"] == 0
    finally:
        server.kill()
