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
from typing import Final, Protocol

from gateway.model.message import EXPIRES, PAGED, PRIORITY_MASK, SCHEDULED, Message
from gateway.model.ports import Consumer
from gateway.queues.conduct import Conduct
from gateway.queues.indexed import Condition, IndexedReady, Search, place_of
from gateway.queues.ports import Backlog
from gateway.queues.ready import Ready

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

    acknowledge: Callable[[Held, list[Message]], None]

    def __init__(self, consumer: Consumer, priority: int = 0) -> None:
        self.consumer = consumer
        self.priority = priority
        self.group: Group | None = None
        self.attached = True
        self.count = 0  # messages in delivery to it
        self.barred: set[int] | None = None  # seqs it must not be offered again [AMQP 3.4.5]


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
        group.members -= 1
        if not group.members:
            self.groups.remove(group)
            self.ready.searches.remove(group)

    def join_browser(self, browser: Browser) -> None:
        """Show a browser what waits from now on."""
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


class Tail(Protocol):
    """Where what comes in goes."""

    def add_run(self, messages: list[Message], priority: int, /) -> None: ...

    def add(self, message: Message, /) -> None: ...


class Searched(Conduct):
    """The part of a queue that selectors and browsers see.

    Attributes:
        filter: what the address lets in; it looks, not the queue.
        no_local: whose messages it does not let in; "" for nobody's.
        told_apart: consumers for which messages are marked with where they come from.
        searching: not all that waits was judged: dispatch again, in another turn.
        size_bytes: of the bodies of what is in memory.
    """

    __slots__ = (
        "_ready",
        "_searches",
        "_tail",
        "filter",
        "no_local",
        "searching",
        "size_bytes",
        "told_apart",
    )

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0
        self.filter: Condition | None = None
        self.no_local = ""
        self.told_apart = 0
        self.searching = False
        self._ready: Ready | IndexedReady = Ready()
        self._tail: Tail = self._ready  # where what comes in goes
        self._searches: Searches | None = None

    @property
    def ready_count(self) -> int:
        """Messages that wait for a consumer."""
        return len(self._ready)

    @property
    def filter_text(self) -> str:
        """The filter as it was written; "" for none."""
        return "" if self.filter is None else self.filter.text

    @property
    def selective(self) -> bool:
        """Whether some of its consumers have a selector."""
        return self._searches is not None and bool(self._searches.groups)

    @property
    def reads_amid(self) -> bool:
        """Whether what is read back from pages may have its place between others.

        Also where others were: an index keeps the places of those that were taken ahead.
        """
        if self.backlog is None:
            return False
        return bool(self.backlog.ahead) or isinstance(self._ready, IndexedReady)

    @property
    def browsers(self) -> Sequence[Browser]:
        return () if self._searches is None else self._searches.browsers

    def attach_browser(self, consumer: Consumer, condition: Condition | None = None) -> Browser:
        """Show somebody what waits, and what comes later; dispatching shows it."""
        browser = Browser(consumer, condition)
        self._search().join_browser(browser)
        return browser

    def detach_browser(self, browser: Browser) -> None:
        """Show it nothing more."""
        searches = self._search()
        searches.leave_browser(browser)
        self._forget_searches(searches)

    def synced_below(self) -> int:
        """Return the seq below which all that is to be on disk is there."""
        raise NotImplementedError

    def _begin_searches(self, now_ms: int, any_flags: int) -> Searches | None:
        """Start a turn of all searches, and let browsers see; None without any."""
        searches = self._searches
        if searches is not None:
            until = self.synced_below() if searches.browsers else 0
            searches.begin(now_ms, any_flags, until, self.backlog)
            self.searching = self._searches is not None and searches.unfinished
        return searches

    def _end_searches(self, searches: Searches, *, limited: bool) -> None:
        """End the turn; `limited`: not everybody may have had the chance to search."""
        if not limited:
            searches.end(self.backlog)
        self.searching = self._searches is not None and searches.unfinished

    def wait_for_search(self, member: Held) -> bool:
        """Whether its search has not seen all yet; then `Consumer.exhausted` tells its end."""
        return self._searches is not None and self._searches.wait(member, self.backlog)

    def hungry_groups(self) -> list[Group]:
        """Return the groups of which some consumer has room."""
        if self._searches is None:
            return []
        return [
            group
            for group in self._searches.groups
            if any(h.group is group and h.consumer.room() > 0 for h in self.consumers)
        ]

    @property
    def consumers(self) -> Sequence[Held]:
        raise NotImplementedError

    def _serve(self, open_ones: list[tuple[Held, int, int]], now_ms: int, limit: int) -> int:
        raise NotImplementedError

    def take_ahead(self, group: Group, messages: list[Message], now_ms: int) -> int:
        """Hand messages from the middle of the pages to those they are for, and to nobody else.

        What they do not take after all waits on its page again. Returns how many went out.
        """
        backlog = self.backlog
        assert backlog is not None, "nothing is on pages"
        backlog.take(messages)
        group.allowance = max(group.allowance, len(self._ready))
        members = [h for h in self.consumers if h.group is group]
        went = 0
        while went < len(messages):
            rooms = [(h, h.consumer.room(), 0) for h in members if h.consumer.room() > 0]
            step = self._serve(rooms, now_ms, len(messages) - went) if rooms else 0
            if not step:
                break
            went += step
        left = {m.seq for m in messages if m.seq in backlog.ahead and not m.flags & SCHEDULED}
        if left:
            self._back_to_pages(self._ready.remove_if(left))
        return went

    def give_back_ahead(self) -> None:
        """Have what was read ahead, and waits, wait on its pages: it must not overtake others."""
        ahead = self.backlog.ahead if self.backlog is not None else ()
        left = {m.seq for m in self._ready if m.seq in ahead} if ahead else set()
        if left:
            self._back_to_pages(self._ready.remove_if(left))

    def _back_to_pages(self, messages: list[Message]) -> list[Message]:
        """Have what was read ahead wait on its pages; returns the others."""
        backlog = self.backlog
        if backlog is None or not backlog.ahead:
            return messages
        ahead = [m for m in messages if m.seq in backlog.ahead]
        if not ahead:
            return messages
        others = [m for m in messages if m.seq not in backlog.ahead]
        self.size_bytes -= sum([len(m.body) for m in ahead])
        backlog.give_back(ahead)
        first = min([m.seq for m in ahead])
        for group in self._searches.groups if self._searches is not None else ():
            group.page_next = min(group.page_next, first)
        return others

    def end_page_search(self, *, more: bool) -> None:
        """What is on pages was looked at for this turn; `more`: not all of it."""
        if more:
            self.searching = True
        elif self._searches is not None:
            self._searches.end(self.backlog)

    def _search(self) -> Searches:
        """Return the searches, of which there will be one now. O(n) when it is the first."""
        if self._searches is None:
            self._searches = Searches(self._make_index())
        return self._searches

    def _make_index(self) -> IndexedReady:
        """Return the ready messages as an index; O(n) when they were none."""
        ready = self._ready
        if isinstance(ready, IndexedReady):
            return ready
        indexed = IndexedReady(ready)
        if self._tail is ready:
            self._tail = indexed
        self._ready = indexed
        return indexed

    def _leave_group(self, group: Group | None) -> None:
        if group is not None:
            searches = self._search()
            searches.leave(group)
            self._forget_searches(searches)

    def _forget_searches(self, searches: Searches) -> None:
        if not len(searches):
            # The index stays until the queue is empty: with the next search it would be back.
            self._searches = None
            self.searching = False
            self._forget_index()

    def _forget_index(self) -> None:
        """Go back to the cheap order once nothing waits and nobody searches."""
        if self._searches is None and not self._ready and type(self._ready) is IndexedReady:
            plain = Ready()
            if self._tail is self._ready:
                self._tail = plain
            self._ready = plain

    def _find(self, group: Group, count: int) -> list[Message]:
        """Take up to `count` messages of one priority that the group is for."""
        ready = self._ready
        assert isinstance(ready, IndexedReady), "a selector on a queue without index"
        return ready.find(group, count)
