"""A link on which the gateway sends [AMQP 2.6]: credit, drain, delivery, outcomes.

`deliver` is a hot loop: frame heads come from a template; delivery-id and size are all that vary,
so that a run is three mapped calls and one join. The delivery-tag is the delivery-id: unique for as
long as the delivery is unsettled.
"""

from __future__ import annotations

from typing import Final

from gateway.model.amqp_types import DecodeError
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import (
    ACQUIRED,
    COUNT_SHIFT,
    MAYBE_SEEN,
    REPLAYED,
    SPECIAL,
    STOMP,
    Message,
    let_go,
)
from gateway.model.ports import ConsumerFacts, Subscription
from gateway.model.sections import header_facts, with_header
from gateway.model.serial import MASK, distance
from protocols.amqp.conditions import MESSAGE_SIZE, error_of
from protocols.amqp.freshness import AS_IT_IS, Form, forms_of
from protocols.amqp.performatives import (
    RELEASED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    Transfer,
    encode_performative,
)
from protocols.amqp.ports import SessionPort
from protocols.amqp.replayed import shown_offset
from protocols.amqp.unsettled import Holder
from protocols.convert import stomp_to_amqp

_BEFORE: Final = b"\x00\x53\x14\xc0"
_NO_MAX: Final = 1 << 64
#: Bytes of a delivery, guessed before the first one; later the largest of the last run counts.
_EACH_BYTES: Final = 1 << 16
#: Bytes of deliveries that are written at once, should they be larger than was guessed.
_BURST_BYTES_MAX: Final = 4 << 20
#: What the first frame of a long delivery has around its part of the body, at most.
_SPLIT_HEAD_BYTES: Final = 8 + len(
    encode_performative(
        Transfer(
            handle=MASK,
            delivery_id=MASK,
            delivery_tag=b"1234",
            message_format=0,
            settled=True,
            more=True,
        )
    )
)


class OutgoingLink:
    """Implements the Consumer port for one link."""

    __slots__ = (
        "_constants",
        "_each",
        "_ended_for_good",
        "_entered",
        "_form",
        "_lingering",
        "_session",
        "_settled",
        "attempted",
        "credit",
        "default_outcome",
        "delivered",
        "delivery_count",
        "draining",
        "durable_name",
        "handle",
        "message_max",
        "name",
        "number",
        "sole",
        "subscription",
        "temporary",
    )

    def __init__(
        self,
        session: SessionPort,
        name: str,
        handle: int,
        *,
        settled: bool,
        message_max: int | None = None,
    ) -> None:
        self._session = session
        self._settled = settled
        self.name = name
        self.handle = handle
        self.number = session.next_consumer()
        self.delivered = 0
        self.credit = 0
        self.delivery_count = 0
        self.draining = False
        self.message_max = message_max or _NO_MAX
        self._each = _EACH_BYTES
        self._form = AS_IT_IS  # how the bodies of the last run began
        self.default_outcome: Outcome | None = None
        self.durable_name: str | None = None
        self.sole = False  # nobody else may consume its durable subscription
        self.temporary: str | None = None
        self.subscription: Subscription | None = None
        self.attempted: set[int] = set()  # by seq: given back in a transaction that was undone
        self._entered = 0  # by transactions, for deliveries that they hold
        self._lingering: Subscription | None = None  # of a closed link, for them
        self._ended_for_good = False  # its durable subscription goes when none of them needs it
        # list8: size, 5 fields, handle as uint; then delivery-id as uint
        self._constants = (
            b"".join(
                (
                    b"\x02\x00",
                    session.channel.to_bytes(2, "big"),
                    _BEFORE + bytes([19, 5]),
                    b"\x70" + handle.to_bytes(4, "big") + b"\x70",
                )
            ),
            b"\x43" + (b"\x41" if settled else b"\x42"),
        )

    # ---- the Consumer port

    def room(self) -> int:
        """See the Consumer port."""
        session = self._session
        if session.principal.ended:
            return 0
        if session.remote_incoming_window < self.credit:
            return session.room(session.remote_incoming_window, self._each)
        return session.room(self.credit, self._each)

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        """See the Consumer port. Hot."""
        session = self._session
        count = len(messages)
        first = session.next_outgoing_delivery
        if any_flags & (SPECIAL | STOMP):
            now_ms = session.now_ms()
            bodies = [self._dressed(m, now_ms) for m in messages]
        else:
            bodies = [m.body for m in messages]
        form = self._form
        shown = form.rest(bodies)
        if shown is None:
            form, shown = self._find_form(bodies)
        head = form.head
        sizes = list(map(len, shown))
        largest = max(sizes)
        if largest + len(head) > self.message_max:
            form, head, shown = AS_IT_IS, b"", bodies  # too large only by what it would say
            sizes = list(map(len, shown))
            largest = max(sizes)
            if largest > self.message_max:
                self._refuse_large(messages, largest)
                return
        self._each = each = largest + form.frames.bytes_each
        if largest * count > _BURST_BYTES_MAX and count > 1:
            count = self._bounded(messages, sizes)
            messages, shown, sizes = messages[:count], shown[:count], sizes[:count]
        if each > session.frame_max or count > session.remote_incoming_window:
            frames = 0
            count = self._split([head + body for body in shown] if head else shown, first)
            if count < len(messages):
                assert self.subscription is not None, "delivered before attached"
                self.subscription.release(messages[count:], unseen=True)
                if not count:
                    return  # another link of the session took the window since room() was asked
                messages = messages[:count]
        else:
            frames = count
            session.write_run(form.frames.join(*self._constants, shown, sizes, first))
        session.sent(first, count, frames)
        self.delivered += count
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & MASK
        if self._settled:
            assert self.subscription is not None, "delivered before attached"
            self.subscription.acknowledge(messages)
        else:
            session.unsettled.add(first, messages, self)
            if any_flags & REPLAYED:
                let_go(messages)

    def removed(self, refusal: Refusal) -> None:
        """See the Consumer port."""
        if self.subscription is not None:
            self._session.detach(self, error_of(refusal))

    def facts(self) -> ConsumerFacts:
        """See the Consumer port."""
        return self._session.facts(self.name)

    def expelled(self, refusal: Refusal) -> None:
        """See the Consumer port."""
        self._session.expel(refusal)

    def exhausted(self) -> None:
        """See the Consumer port."""
        if self.draining:
            self.finish_drain()
            self._session.wake()

    # ---- not so hot

    def _find_form(self, bodies: list[bytes]) -> tuple[Form, list[bytes]]:
        """Return the form that bodies of a run have in common, and what follows the head in each.

        Where they differ, each gets its header here.
        """
        forms = forms_of(bodies)
        self._form = form = forms[0] if forms.count(forms[0]) == len(forms) else AS_IT_IS
        rest = form.rest(bodies)
        if rest is not None:
            return form, rest
        return AS_IT_IS, [f.head + b[f.cut :] for f, b in zip(forms, bodies, strict=True)]

    def _dressed(self, message: Message, now_ms: int) -> bytes:
        """Return the message as this delivery shows it: converted, its past in its header."""
        flags = message.flags
        body = message.body
        if flags & STOMP:
            assert self.subscription is not None, "delivered before attached"
            body = stomp_to_amqp(body, flags, self.subscription.address, now_ms=now_ms)
        if flags & REPLAYED:
            return shown_offset(body, message.seq)
        attempts = flags >> COUNT_SHIFT
        try:
            if attempts or flags & MAYBE_SEEN:
                # One that may have been seen before a crash counts as one attempt for the reader:
                # many clients look at nothing else.
                return with_header(body, delivery_count=attempts or 1, first_acquirer=False)
            if flags & ACQUIRED:
                said = header_facts(body).delivery_count
                return with_header(body, delivery_count=said, first_acquirer=False)
        except DecodeError:
            pass  # accepted as opaque bytes with a broken header: they go out as they came
        return body

    def _refuse_large(self, messages: list[Message], size: int) -> None:
        assert self.subscription is not None, "delivered before attached"
        self.subscription.release(messages, unseen=True)
        # A message above what the peer's link takes is the link's end [AMQP 2.7.3].
        text = f"A message of {size} bytes is above the max-message-size of link {self.name!r}"
        description = f"{text}, which is {self.message_max}; attach with more or none."
        self._session.detach(self, Error(condition=MESSAGE_SIZE, description=description))

    def _bounded(self, messages: list[Message], sizes: list[int]) -> int:
        """Return how many may be written at once, one at least; the others go back.

        Fewer would have been asked for, had their size been known.
        """
        size = 0
        for index, one in enumerate(sizes):
            size += one
            if size > _BURST_BYTES_MAX and index:
                assert self.subscription is not None, "delivered before attached"
                self.subscription.release(messages[index:], unseen=True)
                return index
        return len(sizes)

    def _split(self, bodies: list[bytes], first: int) -> int:
        """Write deliveries that take several frames; returns how many were begun.

        None is begun with the window shut: its id would be used, and if the link goes before its
        turn comes, the peer would miss one [AMQP 2.6.12]. Only the rest of a long one waits.
        """
        session = self._session
        for index, body in enumerate(bodies):
            if session.remote_incoming_window <= 0:
                return index
            self._split_one(body, (first + index) & MASK)
        return len(bodies)

    def _split_one(self, body: bytes, delivery: int) -> None:
        session = self._session
        room = session.frame_max - _SPLIT_HEAD_BYTES
        parts = [body[i : i + room] for i in range(0, len(body), room)] or [b""]
        for index, part in enumerate(parts):
            more = index < len(parts) - 1
            if index == 0:
                transfer = Transfer(
                    handle=self.handle,
                    delivery_id=delivery,
                    delivery_tag=delivery.to_bytes(4, "big"),
                    message_format=0,
                    settled=self._settled,
                    more=more,
                )
            else:
                transfer = Transfer(handle=self.handle, more=more)
            session.write_transfer(self, transfer, part)

    # ---- flow

    def flow(self, delivery_count: int | None, credit: int, *, drain: bool) -> None:
        """The receiver says how many more it takes, counted from its own view [AMQP 2.6.7]."""
        # Without a count the receiver has not seen our attach, which said 0.
        ahead = distance(self.delivery_count, delivery_count or 0)
        self.credit = max(0, credit + min(0, ahead))
        self.draining = drain
        if drain:
            self.drain()
        elif self.subscription is not None and self.credit:
            self.subscription.ready()

    def drain(self) -> None:
        """Send all that is there and fits, at once."""
        before = -1
        while self.draining and self.credit and self.credit != before:
            before = self.credit
            if self.subscription is None:
                return
            self.subscription.dispatch_now()

    def finish_drain(self) -> None:
        """Give the unused credit back, and tell the peer that a drain is through [AMQP 2.6.7]."""
        if not self.draining or self.subscription is None:
            return
        if self.credit and self.room() <= 0:
            return  # not everything that is there could go out yet
        if self.credit and self.subscription.keeps_searching():
            return  # nor is everything known that is for this link
        self.delivery_count = (self.delivery_count + self.credit) & MASK
        self.credit = 0
        self.draining = False
        self._session.write_flow(self, drain=True)

    # ---- outcomes

    def settle(self, outcome: Outcome | None, messages: list[Message]) -> int:
        """Apply an outcome to deliveries; returns the ticket after which it cannot be undone."""
        subscription = self.subscription
        if subscription is None:
            return 0
        match outcome if outcome is not None else self.default_outcome:
            case Accepted():
                if self.attempted:
                    self.forget_attempts(messages)
                return subscription.acknowledge(messages)
            case Rejected():
                if self.attempted:
                    self.forget_attempts(messages)
                return subscription.reject(messages)
            case Modified(delivery_failed=failed, undeliverable_here=here, message_annotations=add):
                if add:
                    subscription.annotate(messages, add, self.annotated_max)
                return self._release(subscription, messages, failed=failed, here=here)
            case _:
                return self._release(subscription, messages, failed=False, here=False)

    @property
    def annotated_max(self) -> int:
        """Bytes that a message may have once the receiver's annotations are in it."""
        return min(self.message_max, self._session.limits.max_message_size)

    def _release(
        self, subscription: Subscription, messages: list[Message], *, failed: bool, here: bool
    ) -> int:
        return max(
            [
                subscription.release(part, failed=tried, undeliverable_here=here, delayed=True)
                for part, tried in self.by_attempt(messages, failed=failed)
            ]
        )

    def by_attempt(
        self, messages: list[Message], *, failed: bool
    ) -> list[tuple[list[Message], bool]]:
        """Split what goes back by whether that counts as an attempt; usually it is one part."""
        attempted = self.attempted
        again = [m for m in messages if m.seq in attempted] if attempted else []
        if not again or failed:
            self.forget_attempts(again)
            return [(messages, failed)]
        once = [m for m in messages if m.seq not in attempted]
        self.forget_attempts(again)
        return [(again, True), (once, False)] if once else [(again, True)]

    def forget_attempts(self, messages: list[Message]) -> None:
        """These are not held any more, or it is counted that they were undone."""
        if self.attempted:
            self.attempted.difference_update([m.seq for m in messages])

    # ---- transactions and the end

    def delivered_on(self, link: object) -> bool:
        """See the Holder port."""
        return link is self

    def _has_deliveries_of(self, owner: Holder) -> bool:
        return owner.delivered_on(self)

    def enter(self) -> Subscription:
        """A transaction holds deliveries of this link, whose subscription stays until `leave`."""
        assert self.subscription is not None, "nothing was delivered on it"
        self._entered += 1
        return self.subscription

    def leave(self) -> None:
        """The transaction has settled them, or has given them back."""
        self._entered -= 1
        if self._lingering is not None and not self._entered:
            lingering, self._lingering = self._lingering, None
            lingering.close()
            self._session.link_left(self)
            if self._ended_for_good:
                self._unsubscribe()

    @property
    def lingers(self) -> bool:
        """Whether it is closed, but for its subscription."""
        return self._lingering is not None

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """See the Link port: a durable subscription goes once no transaction needs it."""
        self.close(lost=lost)
        if self.lingers:
            self._ended_for_good = closed
        elif closed:
            return self._unsubscribe()
        return None

    def _unsubscribe(self) -> Error | None:
        """Delete the durable subscription of a closed link."""
        try:
            if self.durable_name is not None:
                session = self._session
                session.broker.delete_subscription(self.durable_name, session.principal)
        except RefusedError as refused:
            if refused.refusal.code not in (Code.NOT_FOUND, Code.IN_USE):
                return error_of(refused.refusal)
        return None

    def close(self, *, lost: bool) -> None:
        """Give everything back and end the subscription; `lost`: the connection was cut.

        What a transaction holds stays there, and the subscription with it.
        """
        subscription, self.subscription = self.subscription, None
        if subscription is None:
            return
        self.credit = 0
        messages = self._session.unsettled.pop_link(self)
        for part, tried in self.by_attempt(messages, failed=lost) if messages else ():
            subscription.release(part, failed=tried)
        if self._entered:
            self._session.unsettled.drop(self._has_deliveries_of)
            self._lingering = subscription
        else:
            subscription.close()


def outcome_of(state: DeliveryState | None) -> Outcome | None:
    """Return the outcome that a state is; None for what ends nothing [AMQP 3.4].

    A terminal state of a kind that is not known here counts as released.
    """
    match state:
        case None | Received():
            return None
        case Accepted() | Rejected() | Modified():
            return state
        case _:
            return RELEASED
