"""State files that change while they are written."""

from __future__ import annotations

import errno

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from gateway.streams.saver import Saver
from tests.streams.harness import Later


class SaverTest(SynchronousTestCase):
    def test_calls_during_a_write_share_the_next_one_with_the_newest_content(self) -> None:
        blocking, written = Later(), []
        saver = Saver(blocking, written.append)
        content = [b"1"]
        done: list[Deferred[None]] = [saver.save(lambda: content[0]) for _ in range(3)]
        content[0] = b"2"
        blocking.step()
        self.successResultOf(done[0])
        self.assertNoResult(done[1])
        blocking.step()
        self.successResultOf(done[1])
        self.successResultOf(done[2])
        assert written == [b"1", b"2"]
        assert blocking.waiting == []

    def test_a_failed_write_fails_those_who_wait_for_it_only(self) -> None:
        blocking = Later()
        full = [True]

        def write(_: bytes) -> None:
            if full[0]:
                raise OSError(errno.ENOSPC, "full")

        saver = Saver(blocking, write)
        first, second = saver.save(lambda: b""), saver.save(lambda: b"")
        blocking.step()
        self.failureResultOf(first, OSError)
        full[0] = False
        blocking.step()
        self.successResultOf(second)
