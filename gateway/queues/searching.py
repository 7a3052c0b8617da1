"""The searches of one queue while there are any: joining, leaving, and each turn.

With the first selector or browser the line becomes an index; with the last one gone, and the line
empty, it is a plain line again. Messages on pages are searched by the broker, which hands what it
finds in through `take_ahead`; they wait on their page again when no consumer takes them after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.model.message import SCHEDULED, Message
from gateway.model.ports import Consumer
from gateway.queues.counted import Counters
from gateway.queues.indexed import Condition
from gateway.queues.line import Line
from gateway.queues.ports import Backlog
from gateway.queues.seats import Consumers
from gateway.queues.selecting import Browser, Group, Held, Searches
from gateway.queues.sharing import Shares


class Searching:
    """See the module text.

    Attributes:
        open: None while nothing searches.
        more: not all that waits was judged: dispatch again, in another turn.
    """

    __slots__ = ("_idle", "_line", "_seats", "more", "open")

    def __init__(self, line: Line, seats: Consumers, idle: Callable[[], None]) -> None:
        """`idle` is called when the last search has gone."""
        self._line = line
        self._seats = seats
        self._idle = idle
        self.open: Searches | None = None
        self.more = False

    @property
    def selective(self) -> bool:
        """Whether some of the consumers have a selector."""
        return self.open is not None and bool(self.open.groups)

    @property
    def unfinished(self) -> bool:
        """Whether a search has not judged all that waits."""
        return self.open is not None and self.open.unfinished

    @property
    def browsers(self) -> Sequence[Browser]:
        """Those that look on."""
        return () if self.open is None else self.open.browsers

    def join(self, condition: Condition) -> Group:
        """Return the group of consumers with this selector, with one member more."""
        return self._begun().join(condition)

    def leave(self, group: Group) -> None:
        """Take one member of a group away."""
        assert self.open is not None, "one leaves a group that there is not"
        searches = self.open
        searches.leave(group)
        self._close(searches)

    def join_browser(self, consumer: Consumer, condition: Condition | None) -> Browser:
        """Show a consumer what waits, and what comes later; dispatching shows it."""
        browser = Browser(consumer, condition)
        self._begun().join_browser(browser)
        return browser

    def leave_browser(self, browser: Browser) -> None:
        """Show it nothing more."""
        assert self.open is not None, "one stops browsing that has not begun"
        searches = self.open
        searches.leave_browser(browser)
        self._close(searches)

    def begin(
        self, now_ms: int, synced_below: Callable[[], int], backlog: Backlog | None
    ) -> Searches | None:
        """Start a turn of all searches, and let browsers see; None without any.

        `synced_below` tells the seq below which all that is to be on disk is there.
        """
        searches = self.open
        if searches is not None:
            until = synced_below() if searches.browsers else 0
            searches.begin(now_ms, self._line.any_flags, until, backlog)
            self.more = self.unfinished
        return searches

    def end(self, searches: Searches, backlog: Backlog | None, *, limited: bool) -> None:
        """End the turn; `limited`: a search may not have had the chance to go on."""
        if not limited:
            searches.end(backlog)
        self.more = self.unfinished

    def end_pages(self, backlog: Backlog | None, *, more: bool) -> None:
        """What is on pages was looked at for this turn; `more`: not all of it."""
        if more:
            self.more = True
        elif self.open is not None:
            self.open.end(backlog)

    def wait(self, member: Held, backlog: Backlog | None) -> bool:
        """Whether its search has not seen all yet; then `Consumer.exhausted` tells its end."""
        return self.open is not None and self.open.wait(member, backlog)

    def hungry(self) -> list[Group]:
        """Return the groups of which some consumer has room."""
        if self.open is None:
            return []
        return [
            group
            for group in self.open.groups
            if any(h.group is group and h.consumer.room() > 0 for h in self._seats.all)
        ]

    def look_again(self, seq: int) -> None:
        """What is on pages from this seq on waits there again."""
        for group in self.open.groups if self.open is not None else ():
            group.page_next = min(group.page_next, seq)

    def _begun(self) -> Searches:
        """Return the searches, of which there will be one now. O(n) when it is the first."""
        if self.open is None:
            self.open = Searches(self._line.make_index())
        return self.open

    def _close(self, searches: Searches) -> None:
        if not len(searches):
            # The index stays until the queue is empty: with the next search it would be back.
            self.open = None
            self.more = False
            self._idle()

    def check_invariants(self) -> None:
        """Assert that what is searched is the line's index, and that somebody searches it."""
        searches = self.open
        if searches is None:
            assert all(h.group is None for h in self._seats.all), "a selector that nobody applies"
            return
        assert len(searches), "searches of nobody"
        assert searches.ready is self._line.ready, "another index is searched than the line's"
        searches.check_invariants(self._seats.all)


class Ahead:
    """What was found in the middle of the pages, for some consumers and for no others."""

    __slots__ = ("_counts", "_line", "_searching", "_seats", "_shares")

    def __init__(
        self,
        line: Line,
        seats: Consumers,
        searching: Searching,
        shares: Shares,
        counts: Counters,
    ) -> None:
        self._line = line
        self._seats = seats
        self._searching = searching
        self._shares = shares
        self._counts = counts

    def take(self, backlog: Backlog, group: Group, messages: list[Message], now_ms: int) -> int:
        """Hand messages to the members of a group that they are for.

        What they do not take after all waits on its page again. Returns how many went out.
        """
        assert group.members, "messages for a group of nobody"
        backlog.take(messages)
        group.allowance = max(group.allowance, len(self._line.ready))
        members = [h for h in self._seats.all if h.group is group]
        went = 0
        while went < len(messages):
            rooms = [(h, h.consumer.room(), 0) for h in members if h.consumer.room() > 0]
            step = self._shares.serve(rooms, now_ms, len(messages) - went) if rooms else 0
            if not step:
                break
            went += step
        assert went <= len(messages), "more went out than there were"
        behind = backlog.ahead
        left = {m.seq for m in messages if m.seq in behind and not m.flags & SCHEDULED}
        if left:
            self.put_back(backlog, self._line.ready.remove_if(left))
        return went

    def give_back(self, backlog: Backlog | None) -> None:
        """Have what was read ahead, and waits, wait on its pages: it must not overtake others."""
        if backlog is None:
            return
        ahead = backlog.ahead
        left = {m.seq for m in self._line.ready if m.seq in ahead} if ahead else set()
        if left:
            self.put_back(backlog, self._line.ready.remove_if(left))

    def put_back(self, backlog: Backlog, messages: list[Message]) -> list[Message]:
        """Have what was read ahead wait on its pages; returns the others."""
        if not backlog.ahead:
            return messages
        behind = backlog.ahead
        ahead = [m for m in messages if m.seq in behind]
        if not ahead:
            return messages
        others = [m for m in messages if m.seq not in behind]
        assert len(others) + len(ahead) == len(messages), "messages lost on the way to their page"
        self._counts.size_bytes -= sum([len(m.body) for m in ahead])
        assert self._counts.size_bytes >= 0, "size went below zero"
        backlog.give_back(ahead)
        self._searching.look_again(min([m.seq for m in ahead]))
        return others
