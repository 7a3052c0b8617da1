"""Reloads one after the other: who waits, who is turned away, what a signal adds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from gateway.config.errors import ConfigError, Problem
from gateway.model.errors import Code, RefusedError
from gateway.reload.reloads import WAITING_MAX, Again, Reloads


class Running:
    """A gateway whose reading is answered by the test; `reason` says why it is not ready."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.config: Any = SimpleNamespace(file="f.toml", diverts=())
        self.gate = SimpleNamespace(users={})
        self.tokens = None  # its reading is the test's as well
        self.reading: list[Deferred[Any]] = []
        broker = SimpleNamespace(branches=SimpleNamespace(diverts={}))
        self.core = SimpleNamespace(threads=SimpleNamespace(run=self._run), broker=broker)

    def not_ready(self) -> str | None:
        return self.reason

    def _run(self, *_: object) -> Deferred[Any]:
        self.reading.append(Deferred())
        return self.reading[-1]


WRONG = ConfigError([Problem(where="f.toml:1", path="nam", text="unknown key")])


class Test(SynchronousTestCase):
    def setUp(self) -> None:
        self.running = Running()
        again = Again(read=lambda: self.running.config, relog=lambda _: None)
        running: Any = self.running
        self.reloads = Reloads(Clock(), running, again, lambda: 1000)

    def test_one_at_a_time_and_each_has_an_answer(self) -> None:
        first, second = self.reloads.reload("API"), self.reloads.reload("API")
        assert len(self.running.reading) == 1
        self.running.reading[0].errback(WRONG)
        assert self.failureResultOf(first, ConfigError).value is WRONG
        assert len(self.running.reading) == 2
        self.assertNoResult(second)
        self.running.reading[1].errback(WRONG)
        self.failureResultOf(second, ConfigError)
        refused = self.reloads.refused
        assert refused is not None
        assert (refused.at_ms, refused.problems) == (1000, WRONG.problems)
        assert self.reloads.count == 0

    def test_no_more_wait_than_may(self) -> None:
        waiting = [self.reloads.reload("API") for _ in range(WAITING_MAX + 1)]
        error = self.failureResultOf(self.reloads.reload("API"), RefusedError).value
        assert error.refusal.code is Code.TOO_MANY
        for each in waiting:
            self.running.reading[-1].errback(WRONG)
            self.failureResultOf(each, ConfigError)
        assert len(self.running.reading) == WAITING_MAX + 1

    def test_many_signals_are_one_reload_but_one_that_comes_while_it_is_read_another(self) -> None:
        first = self.reloads.reload("API")
        for _ in range(50):
            self.reloads.hear()
        self.running.reading[0].errback(WRONG)
        self.failureResultOf(first, ConfigError)
        assert len(self.running.reading) == 2
        self.reloads.hear()
        self.reloads.hear()
        self.running.reading[1].errback(WRONG)
        assert len(self.running.reading) == 3
        self.running.reading[2].errback(WRONG)
        assert len(self.running.reading) == 3

    def test_a_signal_before_it_is_ready_counts_once_it_is(self) -> None:
        self.running.reason = "The gateway is opening its listeners."
        self.reloads.hear()
        self.failureResultOf(self.reloads.reload("API"), RefusedError)
        assert self.running.reading == []
        self.running.reason = None
        self.reloads.ready()
        assert len(self.running.reading) == 1
        self.reloads.ready()
        assert len(self.running.reading) == 1

    def test_what_meets_a_stop_ends_there(self) -> None:
        waiting = self.reloads.reload("API"), self.reloads.reload("API")
        self.running.reason = "The gateway is stopping."
        self.running.reading[0].errback(WRONG)
        self.failureResultOf(waiting[0], ConfigError)
        error = self.failureResultOf(waiting[1], RefusedError).value
        assert error.refusal.text == "The gateway is stopping."
