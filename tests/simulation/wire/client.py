"""What clients of both protocols have in common: a line, what they send and what they hold."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.core.operations import POOL
from tests.simulation.model import ViolationError
from tests.simulation.wire.ledger import ASKED, FAILED, UNKNOWN, Copy, Holder, Part, Send
from tests.simulation.wire.net import Line

if TYPE_CHECKING:
    from tests.simulation.wire.world import WireWorld

#: A Close's code.
_STORE_FAILED = 1011


class Subscription(Holder):
    """A client's subscription or receiving link; `held` is what it has and may settle."""

    def __init__(self, client: Client, queue: str, *, automatic: bool) -> None:
        super().__init__(queue, automatic=automatic)
        self.client = client
        self.open = True
        self.held: list[Delivery] = []

    def can_settle(self) -> bool:
        client = self.client
        return self.open and not (client.over or client.leaving) and client.line.served


class Delivery:
    """A message that a client has; `handle` is what its protocol names it by."""

    __slots__ = ("copy", "handle", "part", "returns", "subscription")

    def __init__(self, copy: Copy, handle: object, subscription: Subscription) -> None:
        self.copy = copy
        self.returns = copy.returns  # when it came: from then on it may go back behind our back
        self.handle = handle
        self.subscription = subscription
        self.part: Part | None = None


class Client:
    """Implements the network's `End`.

    Attributes:
        up: it may send and subscribe.
        leaving: it has said good-bye.
        over: its connection has ended.
        excused: there is a reason why the gateway may end its connection.
        quiet: it sends no heart-beats: a page in the background, for which a browser answers Pings.
    """

    protocol = ""

    def __init__(self, world: WireWorld, number: int) -> None:
        self.world = world
        self.ledger = world.ledger
        self.chance: random.Random = world.chance
        self.number = number
        self.line: Line
        self.up = self.leaving = self.over = self.excused = self.quiet = False
        self.subscriptions: list[Subscription] = []
        self.places: dict[object, int] = {}
        self.asked: list[Send] = []  # sent, and never answered by themselves
        self.asked_with: list[Send] = []  # sent, and to be answered
        self.parts: list[Part] = []
        self.ending: list[Part] = []  # their commit is asked for

    # ---- what each protocol does

    def receive(self, data: bytes) -> None:
        raise NotImplementedError

    def pump(self) -> None:
        """Give the line what it has room for."""
        raise NotImplementedError

    def send(self, address: str, payloads: list[bytes], part: Part | None = None) -> None:
        raise NotImplementedError

    def subscribe(self, queue: str) -> None:
        raise NotImplementedError

    def settle(self, deliveries: list[Delivery], how: str, part: Part | None = None) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError

    def end(self, part: Part, *, commit: bool) -> None:
        raise NotImplementedError

    def unsubscribe(self, subscription: Subscription) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Say good-bye in order."""
        raise NotImplementedError

    def demand(self) -> None:
        """Ask for as much as may come."""

    def beat(self) -> None:
        """Time has passed: say that it is alive, if that is due."""

    # ---- what a WebSocket around it says

    def refused(self, text: str) -> None:
        """No WebSocket was taken."""
        self.log(text)
        self.world.refused(self, text)

    def ended(self, code: int, reason: str) -> None:
        """The gateway has said Close."""
        self.log(f"Close {code} {reason}")
        self.world.figures[f"Close {code}"] += 1
        if code == _STORE_FAILED and not self.world.failed:
            raise ViolationError(f"client {self.number} is told of a store that failed: {reason}")

    # ---- what they share

    def log(self, text: str) -> None:
        self.world.log(f"      client {self.number} {text}")

    @property
    def underway(self) -> bool:
        """Whether a part of a message has set out, and the rest waits for something."""
        return False

    @property
    def ready(self) -> bool:
        """Whether it may be told to do something."""
        return self.up and not (self.leaving or self.over or self.line.leaving)

    def payload(self) -> bytes:
        """Return bytes that nobody else sends, no two places of which look alike."""
        world = self.world
        world.serial += 1
        size = self.chance.randint(0, world.plan.body_bytes)
        if self.chance.random() < world.wire.large:
            size = self.chance.choice([600, 1500, 5000])
        at = self.chance.randrange(len(POOL) - size)
        return b"%d:%s:" % (world.serial, self.protocol[:1].encode()) + POOL[at : at + size]

    def sending(self, address: str, payload: bytes, part: Part | None, producer: object) -> Send:
        """Write down that a message is sent."""
        key = producer if part is None else part
        place = self.places[key] = self.places.get(key, 0) + 1
        durable = self.chance.random() < self.world.plan.durable
        send = Send(payload, (self.number, key), place, durable=durable)
        chance, plan = self.chance, self.world.plan
        if chance.random() < plan.expiring:
            send.expires = self.world.now + chance.choice([1, 20, 200, 5000])
        if part is None and chance.random() < plan.later:
            send.due = self.world.now + chance.choice([1, 20, 60])
        self.ledger.ask(send, self.world.queues_of(address), part)
        return send

    def got(
        self,
        subscription: Subscription,
        payload: bytes,
        handle: object,
        *,
        marked: bool,
        first: bool = False,
        origin: str,
    ) -> None:
        """A message has been read."""
        copy = self.ledger.get(
            subscription, payload, origin, marked=marked, first=first, latest=self.world.latest
        )
        note = f"{' again' if marked else ''}{', settled' if subscription.automatic else ''}"
        self.log(f"got {payload[:10]!r} of {subscription.queue}{note}")
        if not subscription.automatic and subscription.can_settle():
            subscription.held.append(Delivery(copy, handle, subscription))

    def held(self) -> list[Delivery]:
        """Return what it may settle now."""
        return [d for s in self.subscriptions for d in s.held if d.part is None]

    def drop(self, subscription: Subscription, *, seen: bool) -> None:
        """A subscription has ended: what was held goes back."""
        subscription.open = False
        self.ledger.leave([d.copy for d in subscription.held if d.part is None], seen=seen)
        for delivery in subscription.held:
            if delivery.part is not None:
                delivery.copy.must_mark = True
        subscription.held.clear()
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    def give_back(self, part: Part) -> None:
        """What an undone transaction acknowledged is held by nobody, as one attempt more."""
        for copy, _ in part.settles:
            copy.must_mark = True
        self.forget(part)

    def forget(self, part: Part) -> None:
        """A transaction is over: what it settled is not held any more."""
        for found in self.subscriptions:
            found.held = [d for d in found.held if d.part is not part]
        for copy, _ in part.settles:
            copy.holder = None

    def closed(self) -> None:
        """The connection has ended; what was not answered never will be."""
        if self.over:
            return
        self.over, self.up = True, False
        if not (self.leaving or self.excused):
            raise ViolationError(f"client {self.number} was cut off without a reason")
        for subscription in list(self.subscriptions):
            self.drop(subscription, seen=not self.leaving)
        for part in self.parts:
            self.ledger.end_part(part, FAILED)
        for part in self.ending:
            self.ledger.end_part(part, UNKNOWN)
        for send in self.asked + self.asked_with:
            if send.state == ASKED and send.part is None:
                self.ledger.answer(send, UNKNOWN)
        self.world.left(self)
