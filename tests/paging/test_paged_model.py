"""A paged queue against a list: consumers with and without selectors, limits that change, restarts.

The model is the list of what is in the queue, in order; each message is waiting, or held by a
consumer. How much of it lies on pages, in memory, or was read ahead must never be seen, nor when
the blocks of pages come from the disk, and in which order.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.broker.operations.errand import Errand, removing
from gateway.model.address import parse_destination
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.queues.queue import Gone
from gateway.selectors import compile_selector
from tests.broker.core import Core, Taker, body_of, entry, flags_of
from tests.lanes import examples

KINDS = ("a", "a", "b")
_QUEUE = parse_destination("q")


class PagedMachine(RuleBasedStateMachine):
    @initialize(
        size=st.sampled_from([0, 1, 4]),
        read=st.sampled_from([-1, 2, 5]),
        page=st.sampled_from([1024, 4096]),
        late=st.booleans(),
    )
    def start(self, size: int, read: int, page: int, late: bool) -> None:
        self.late = late
        self.core = Core(
            entry(
                "#",
                max_size_messages=size,
                max_read_page_messages=read,
                page_size_bytes=page,
                max_delivery_attempts=-1,
            )
        )
        self.core.store.late = [] if late else None
        self.all: list[bytes] = []
        self.attempts: dict[bytes, int] = {}
        self.takers: list[tuple[str, Taker]] = []
        self.number = 0
        self.send_kinds(["a"])

    @property
    def held(self) -> set[bytes]:
        return {body for _, taker in self.takers for body in taker.bodies()}

    def wanted(self, kind: str) -> list[bytes]:
        held = self.held
        return [b for b in self.all if b not in held and b.endswith(kind.encode())]

    # ---- the disk

    @precondition(lambda self: self.core.store.late)
    @rule(which=st.integers(0, 20))
    def arrive(self, which: int) -> None:
        self.core.store.arrive(which)
        self.core.turn()

    def rest(self) -> None:
        """Let all come that was fetched, and what follows from it."""
        self.core.sync()
        while self.core.store.arrive():
            self.core.sync()

    # ---- what goes in

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
    def send(self, kinds: list[str]) -> None:
        self.send_kinds(kinds)

    def send_kinds(self, kinds: list[str]) -> None:
        route, _ = self.core.producer("q")
        for kind in kinds:
            self.number += 1
            body = b"%d %b" % (self.number, kind.encode())
            form = pack("q", body, persistent=True, headers=[("k", kind)])
            route.send(Run([form], flags_of()))
            self.all.append(body)
            self.attempts[body] = 0
        route.close()
        self.core.sync()

    # ---- who takes

    @precondition(lambda self: len(self.takers) < 3)
    @rule(kind=st.sampled_from(["", "a", "b"]), room=st.integers(1, 6))
    def attach(self, kind: str, room: int) -> None:
        how = {"selector": f"k = '{kind}'"} if kind else {}
        taker = Taker(room)
        taker.on_deliver = lambda messages: self.judge(kind, taker, messages)
        taker.hold = self.core.gateway.subscribe(_QUEUE, None, taker, **how)
        self.takers.append((kind, taker))
        self.core.sync()

    def judge(self, kind: str, taker: Taker, messages: list) -> None:
        """What a consumer gets is what waits first of what it wants."""
        new = [body_of(m) for m in messages]
        held = self.held - set(new)
        waiting = [b for b in self.all if b not in held and b.endswith(kind.encode())]
        assert new == waiting[: len(new)]
        for message in messages:
            assert message.delivery_count == self.attempts[body_of(message)]

    @precondition(lambda self: any(taker.got for _, taker in self.takers))
    @rule(data=st.data())
    def ack(self, data) -> None:
        taker = data.draw(st.sampled_from([t for _, t in self.takers if t.got]))
        count = data.draw(st.integers(1, len(taker.got)))
        gone = set(taker.bodies()[:count])
        self.all = [body for body in self.all if body not in gone]
        taker.ack(count)
        taker.left += data.draw(st.integers(0, 3))
        taker.hold.ready()
        self.core.sync()

    @precondition(lambda self: any(taker.got for _, taker in self.takers))
    @rule(data=st.data(), failed=st.booleans())
    def release(self, data, failed: bool) -> None:
        taker = data.draw(st.sampled_from([t for _, t in self.takers if t.got]))
        for body in taker.bodies():
            self.attempts[body] += failed
        taker.release(failed=failed)
        self.core.sync()

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def leave(self, data) -> None:
        one = data.draw(st.sampled_from(self.takers))
        self.takers.remove(one)
        one[1].leave()
        self.core.sync()

    # ---- operators

    @rule(read=st.sampled_from([-1, 1, 3, 100]))
    def change_limits(self, read: int) -> None:
        address = self.core.gateway.addresses["q"]
        address.apply_settings(replace(address.settings, max_read_page_messages=read))
        self.core.gateway.operations.pager.settings_changed(address)
        self.core.sync()

    @rule(kind=st.sampled_from(["a", "b"]), limit=st.integers(1, 4))
    def remove_some(self, kind: str, limit: int) -> None:
        queue = self.core.queue("q")
        selector = compile_selector(f"k = '{kind}'", "q")
        gone: list[int] = []
        remove = removing(queue, Gone.REMOVED)
        taken: list[bytes] = []

        def act(messages: list) -> tuple[int, None]:
            waiting = self.wanted(kind)
            gone = [body_of(m) for m in messages if body_of(m) in waiting]
            assert gone == waiting[: len(gone)]
            taken.extend(gone)
            self.all = [body for body in self.all if body not in gone]
            assert remove(messages) == (len(gone), None)
            return len(gone), None

        errand = Errand(self.core.gateway, queue, act, selects=selector.matches, limit=limit)
        doomed = self.wanted(kind)[:limit]
        errand.start(lambda count, _: gone.append(count))
        self.rest()
        assert gone == [len(taken)]
        # Consumers took what they had room for while its pages came: that was passed over.
        assert len(taken) == limit or not [b for b in doomed if b in self.wanted(kind)]

    @rule(kind=st.sampled_from(["", "a", "b"]), room=st.sampled_from([1, 1000]))
    def browse(self, kind: str, room: int) -> None:
        how = {"selector": f"k = '{kind}'"} if kind else {}
        viewer = Taker(room)
        told = []
        viewer.exhausted = lambda: told.append(len(viewer.got))
        viewer.hold = self.core.gateway.subscribe(_QUEUE, None, viewer, browse=True, **how)
        before = self.wanted(kind)
        self.rest()
        while viewer.left == 0:
            viewer.take(1)
            self.rest()
        # What consumers took while its pages came it may have been shown, or not.
        shown = viewer.bodies()
        assert [b for b in shown if b in self.wanted(kind)] == self.wanted(kind)
        assert len(set(shown)) == len(shown)
        assert set(shown) <= set(before)
        assert told == [len(shown)]
        viewer.hold.close()

    @rule()
    def purge(self) -> None:
        held = self.held
        self.core.queue("q").purge()
        self.all = [body for body in self.all if body in held]
        self.core.sync()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.core.sync()
        for _, taker in self.takers if clean else ():
            taker.leave()
        self.takers = []
        self.core.restart(clean=clean)
        self.core.store.late = [] if self.late else None

    # ---- what always holds

    @invariant()
    def it_is_all_there(self) -> None:
        core = self.core
        core.check()
        queue = core.queue("q")
        assert queue.message_count == len(self.all)
        assert queue.delivering == len(self.held)
        held = self.held
        assert core.waiting("q") == [body for body in self.all if body not in held]

    @invariant()
    def nobody_with_room_waits_in_vain(self) -> None:
        if self.core.store.late:
            return
        queue = self.core.queue("q")
        limit = self.core.gateway.addresses["q"].settings.max_read_page_messages
        for kind, taker in self.takers:
            if taker.left > 0 and not 0 < limit <= queue.message_count - queue.paged_count:
                assert not self.wanted(kind), "it waits in vain"


PagedMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=25, deadline=None
)
TestPagedQueue = PagedMachine.TestCase
