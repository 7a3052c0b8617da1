"""Who looks through a queue instead of taking from its head: selectors and browsers.

Consumers with one selector are a group and share one search, so that each message is judged once
however many they are. A browser has a search of its own and takes nothing. It is shown what waits
and is on disk (or needs no disk), in delivery order, then what lies on pages, then what arrives or
comes back: each message once. Each search looks at a bounded number of places in a turn; what is
left goes on in the next one. It knows no clock, store or protocol.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final

from gateway.model.message import EXPIRES, PAGED, PRIORITY_MASK, Message
from gateway.model.ports import Consumer
from gateway.queues.indexed import Condition, IndexedReady, Search, place_of
from gateway.queues.ports import Backlog

#: Places that the searches of one queue look at in a turn: less than a millisecond.
TURN_PLACES: Final = 512
#: What each search gets at least, however many there are.
PLACES_MIN: Final = 32
#: A seq behind all others.
_ALL: Final = 1 << 128


class Group(Search):
    """Consumers with one selector; it has not looked at what is on pages from `page_next` on."""

    __slots__ = ("members", "page_next")

    def __init__(self, condition: Condition) -> None:
        super().__init__(condition, takes=True)
        self.members = 0
        self.page_next = 0

    def wanted(self, members: Sequence[Held]) -> Callable[[Message], bool]:
        """Return what tells whether some of its members may have a message."""
        condition = self.condition
        assert condition is not None, "a group without a selector"
        matches = condition.matches
        bars = [held.barred for held in members]
        if None in bars:
            return matches
        barred = set[int].intersection(*[bar for bar in bars if bar is not None])
        return lambda message: message.seq not in barred and matches(message)

    def goes_on(self, backlog: Backlog | None) -> bool:
        """Whether it has not judged all that waits, in memory or on pages."""
        return self.unfinished or (backlog is not None and backlog.has(self.page_next))


class Browser(Search):
    """One browser.

    Attributes:
        consumer: who is shown the messages.
        patient: it waits for the end of its search (drain).
        ended: it was told once that it has seen all.
        page_next: the seq from which on it has not looked at what is on pages.
    """

    __slots__ = ("consumer", "delivering", "ended", "page_next", "patient")

    def __init__(self, consumer: Consumer, condition: Condition | None) -> None:
        super().__init__(condition, takes=False)
        self.consumer = consumer
        self.patient = False
        self.ended = False
        self.delivering = False
        self.page_next = 0

    @property
    def waits(self) -> bool:
        """Whether it was not shown all that there is."""
        return self.unfinished or self.held_up

    def rewind(self, messages: list[Message]) -> None:
        """See Search."""
        super().rewind(messages)
        paged = [m.seq for m in messages if m.flags & PAGED]
        self.page_next = min(paged, default=self.page_next)

    def show(
        self, ready: IndexedReady, now_ms: int, any_flags: int, backlog: Backlog | None
    ) -> None:
        """Show what there is room for: not what has expired, nor what is not on disk yet."""
        room = self.consumer.room()
        early: list[Message] = []
        while room > 0:
            found = ready.find(self, room)
            until = self.until
            if not found and backlog is not None and not self.waits:
                found = self._find_paged(backlog, room)
                until = _ALL  # what is read from a page is on disk, also when that failed since
                for message in found:
                    any_flags |= message.flags
            if not found:
                break
            fresh = [m for m in found if self._is_new(m, now_ms, until, early)]
            if fresh:
                self.delivering = True
                self.consumer.deliver(fresh, any_flags)
                self.delivering = False
            room = self.consumer.room()
        for message in early:
            heapq.heappush(self.returned[message.flags & PRIORITY_MASK], place_of(message))
        if room > 0 and self.waits:
            return
        if (room > 0 and not self.ended) or self.patient:
            self.ended = self.ended or room > 0
            self.patient = False
            self.consumer.exhausted()

    def _is_new(self, message: Message, now_ms: int, until: int, early: list[Message]) -> bool:
        """Whether to show it; what came due before it was on disk goes to `early`."""
        seen, seq = self.seen, message.seq
        assert seen is not None, "a browser takes nothing"
        if seq in seen or (message.flags & EXPIRES and message.expires <= now_ms):
            return False
        if seq >= until:
            early.append(message)
            self.held_up = True
            return False
        seen.add(seq)
        return True

    def _find_paged(self, backlog: Backlog, room: int) -> list[Message]:
        """Return up to `room` messages that match and are on pages, in order."""
        matches = None if self.condition is None else self.condition.matches
        found: list[Message] = []
        while not found and backlog.count:
            count = min(room, self.allowance)
            if count <= 0:
                self.unfinished = True
                break
            messages, self.page_next, unsynced, coming = backlog.peek(self.page_next, count)
            if not messages:
                self.held_up = unsynced or coming
                break
            self.allowance -= len(messages)
            found = [m for m in messages if matches is None or matches(m)]
        return found


class Held:
    """A consumer of a queue and what it holds.

    Attributes:
        group: with a selector: all that have the same.
        acknowledge: the queue's, or of somebody who counts and passes it on.
    """

    __slots__ = (
        "acknowledge",
        "attached",
        "barred",
        "consumer",
        "count",
        "group",
        "priority",
    )

    acknowledge: Callable[[Held, list[Message]], int]

    def __init__(self, consumer: Consumer, priority: int = 0) -> None:
        self.consumer = consumer
        self.priority = priority
        self.group: Group | None = None
        self.attached = True
        self.count = 0  # messages in delivery to it
        self.barred: set[int] | None = None  # seqs it must not be offered again [AMQP 3.4.5]

    def bar(self, messages: list[Message]) -> None:
        """Never have these offered to it again (`undeliverable-here`) [AMQP 3.4.5]."""
        if self.barred is None:
            self.barred = set()
        self.barred.update(m.seq for m in messages)


class Searches:
    """All searches of one queue; there is none of these while there is no search.

    Attributes:
        groups: by selector.
        browsers: in the order in which they came.
        patient: consumers that wait for the end of their group's search (drain).
    """

    __slots__ = ("browsers", "groups", "patient", "ready")

    def __init__(self, ready: IndexedReady) -> None:
        self.ready = ready
        self.groups: list[Group] = []
        self.browsers: list[Browser] = []
        self.patient: list[Held] = []

    def __len__(self) -> int:
        return len(self.groups) + len(self.browsers)

    @property
    def unfinished(self) -> bool:
        """Whether somebody with room has not seen all that waits."""
        return any(group.unfinished for group in self.groups) or any(
            browser.unfinished for browser in self.browsers
        )

    def join(self, condition: Condition) -> Group:
        """Return the group of those with this selector, with one member more."""
        group = next((g for g in self.groups if g.condition is condition), None)
        if group is None:
            group = Group(condition)
            self.groups.append(group)
            self.ready.searches.append(group)
        group.members += 1
        group.page_next = 0  # what all others were barred from may be for this one
        return group

    def leave(self, group: Group) -> None:
        """Take one member away."""
        assert group.members > 0, "one leaves a group of nobody"
        group.members -= 1
        if not group.members:
            self.groups.remove(group)
            self.ready.searches.remove(group)

    def join_browser(self, browser: Browser) -> None:
        """Show a browser what waits from now on."""
        assert browser not in self.browsers, "it browses already"
        self.browsers.append(browser)
        self.ready.searches.append(browser)

    def leave_browser(self, browser: Browser) -> None:
        """Show it nothing more."""
        self.browsers.remove(browser)
        self.ready.searches.remove(browser)

    def wait(self, member: Held, backlog: Backlog | None) -> bool:
        """Whether the search of a consumer has not seen all yet; its end will be told."""
        if member.group is None or not member.group.goes_on(backlog):
            return False
        if member not in self.patient:
            self.patient.append(member)
        return True

    def begin(self, now_ms: int, any_flags: int, until: int, backlog: Backlog | None) -> None:
        """Start a turn: everybody may look at some places; browsers do, before seq `until`."""
        assert len(self), "a turn of no search"
        share = max(PLACES_MIN, TURN_PLACES // len(self))
        for group in self.groups:
            group.allowance = share
            group.unfinished = False
        for browser in list(self.browsers):
            browser.allowance = share
            browser.unfinished = browser.held_up = False
            browser.until = until
            browser.show(self.ready, now_ms, any_flags, backlog)

    def end(self, backlog: Backlog | None) -> None:
        """End a turn: tell those that wait and have seen all, or have no room any more."""
        waiting, self.patient = self.patient, []
        for member in waiting:
            group = member.group
            if not member.attached or group is None:
                continue
            if group.goes_on(backlog) and member.consumer.room() > 0:
                self.patient.append(member)
            else:
                member.consumer.exhausted()

    def check_invariants(self, seated: Sequence[Held]) -> None:
        """Assert that the index tells each search, and that groups have the members they count."""
        told = set(map(id, self.ready.searches))
        assert all(id(search) in told for search in (*self.groups, *self.browsers)), "not told"
        conditions = {id(group.condition) for group in self.groups}
        assert len(conditions) == len(self.groups), "two groups with one selector"
        for group in self.groups:
            members = sum(held.group is group for held in seated)
            assert group.members == members > 0, f"{group.members} counted, {members} in the group"
        for held in seated:
            assert held.group is None or held.group in self.groups, "one of a group that is gone"
        assert len(set(self.patient)) == len(self.patient), "one waits twice for the same end"
        for browser in self.browsers:
            assert not browser.delivering, "it is being shown something, between two calls"
            assert browser.page_next >= 0, "it browses before the first page"
