"""Deliveries that wait for an ACK, by their numbers: all up to one, or each on its own.

Numbers go up by one with each message of a subscription. Both kinds answer `take(number)` with the
messages that an ACK or NACK of it settles, or None when it settles nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from gateway.model.message import Message


class Hold(Protocol):
    """What a subscription has sent and not heard of."""

    @property
    def count(self) -> int: ...

    def add(self, first: int, messages: list[Message]) -> None:
        """Keep messages with the numbers `first`, `first` + 1 ..."""

    def take(self, number: int) -> list[Message] | None:
        """Remove and return what `number` settles; None when it is not held."""

    def take_all(self) -> list[Message]:
        """Remove and return everything."""


class CumulativeHold:
    """ack:client: an ACK settles all earlier messages of the subscription too [STOMP 1.2 ACK]."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: deque[tuple[int, list[Message]]] = deque()
        self.count = 0

    def add(self, first: int, messages: list[Message]) -> None:
        self._runs.append((first, messages))
        self.count += len(messages)

    def take(self, number: int) -> list[Message] | None:
        runs = self._runs
        if not runs or number < runs[0][0] or number >= runs[-1][0] + len(runs[-1][1]):
            return None
        settled: list[Message] = []
        while runs and runs[0][0] <= number:
            first, messages = runs.popleft()
            wanted = number + 1 - first
            if wanted < len(messages):
                runs.appendleft((number + 1, messages[wanted:]))
                messages = messages[:wanted]
            settled = settled + messages if settled else messages
        self.count -= len(settled)
        return settled

    def take_all(self) -> list[Message]:
        settled = [message for _, messages in self._runs for message in messages]
        self._runs.clear()
        self.count = 0
        return settled


class IndividualHold:
    """ack:client-individual: an ACK settles one message."""

    __slots__ = ("_by_number",)

    def __init__(self) -> None:
        self._by_number: dict[int, Message] = {}

    @property
    def count(self) -> int:
        return len(self._by_number)

    def add(self, first: int, messages: list[Message]) -> None:
        self._by_number.update(enumerate(messages, first))

    def take(self, number: int) -> list[Message] | None:
        message = self._by_number.pop(number, None)
        return None if message is None else [message]

    def take_all(self) -> list[Message]:
        settled = list(self._by_number.values())
        self._by_number.clear()
        return settled
