"""`$cbs`: a peer that came in by a token goes on by a later one that it puts there [AMQP-CBS].

    a link to $cbs      put-token: the body is the token     -> judged, by the gate
    a link from $cbs    the answer: status-code, status-description, correlation-id

As Azure's libraries do it. The links lead to no address: a token reaches no queue, and nothing
keeps it. One token of a connection is judged at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.model.amqp_encode import encode
from gateway.model.amqp_types import DecodeError, Described, Value
from gateway.model.amqp_values import Int, ULong
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.sections import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    VALUE,
    BodyKind,
    Sections,
    scan,
)
from gateway.model.serial import MASK, distance
from gateway.model.token import CBS_NODE, TOKEN_BYTES_MAX
from protocols.amqp.conditions import error_of
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import (
    RCV_FIRST,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_SETTLED,
    Attach,
    Error,
    Rejected,
    Target,
    Transfer,
)
from protocols.amqp.ports import SessionPort
from protocols.amqp.transfers import not_taken

#: A token, and what a client says beside it.
MESSAGE_BYTES_MAX: Final = TOKEN_BYTES_MAX + 4096
#: Answers that wait for a peer to give credit for them.
ANSWERS_MAX: Final = 16
LINKS_MAX: Final = 8
_ID_BYTES_MAX: Final = 256
_TYPES: Final = ("jwt", "amqp:jwt")
_ACCEPTED, _BAD_REQUEST, _UNAUTHORIZED, _TOO_MANY = 202, 400, 401, 429


@dataclass(frozen=True, slots=True, repr=False)
class _Request:
    """What a message asks for; `wrong` is why that is nothing."""

    token: str = ""
    message_id: Value = None
    reply_to: str | None = None
    wrong: str = ""


class CbsRequests(IncomingLink):
    """The peer's link to `$cbs`."""

    __slots__ = ("_gone",)

    def __init__(self, session: SessionPort, attach: Attach) -> None:
        count = attach.initial_delivery_count or 0
        super().__init__(session, attach.name, attach.handle, delivery_count=count)
        self.message_max = MESSAGE_BYTES_MAX
        self._gone = False

    def receive_whole(self, transfer: Transfer, body: bytes) -> None:
        """Act on a put-token."""
        delivery = transfer.delivery_id
        assert delivery is not None, "checked by the session"
        self.count_one()
        settled = bool(transfer.settled)
        error = not_taken(transfer)
        node, request = self._session.cbs, _read(body)
        if error is not None or transfer.state is not None:
            request = _Request(wrong="A token is put outside of transactions, in a plain message.")
        if request.wrong:
            self._answer(request, (delivery, settled), _BAD_REQUEST, request.wrong)
        elif node.busy:
            text = (
                "A token of this connection is being judged; send the next one behind its answer."
            )
            self._answer(request, (delivery, settled), _TOO_MANY, text)
        else:

            def done(refusal: Refusal | None) -> None:
                if self._gone:
                    return
                if refusal is None:
                    self._answer(request, (delivery, settled), _ACCEPTED, "Accepted")
                else:
                    self._answer(request, (delivery, settled), _UNAUTHORIZED, refusal.text)
                self._session.wake()

            node.renew(self._session.principal, request.token, done)
        self.grant()

    def _answer(
        self, request: _Request, delivered: tuple[int, bool], status: int, text: str
    ) -> None:
        """Say what came of a message: by its outcome, and on the link for answers."""
        session = self._session
        link = session.cbs.reply_to(request.reply_to)
        delivery, settled = delivered
        if not settled:
            if status == _ACCEPTED or link is not None:
                session.confirm(0, delivery, 1, self)
            else:
                code = Code.NOT_AUTHORIZED if status == _UNAUTHORIZED else Code.BAD_MESSAGE
                refusal = Refusal(code=code, text=text)
                session.refuse(delivery, delivery, Rejected(error=error_of(refusal)))
        if link is not None:
            link.answer(_reply(request.message_id, status, text))

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """See the Link port."""
        self._gone = True
        return super().end(closed=closed, lost=lost)


class CbsReplies(OutgoingLink):
    """The peer's link from `$cbs`; what it is sent is settled."""

    __slots__ = ("_waiting", "address")

    def __init__(self, session: SessionPort, attach: Attach) -> None:
        super().__init__(session, attach.name, attach.handle, settled=True)
        target = attach.target
        self.address = target.address if isinstance(target, Target) else None
        self._waiting: list[bytes] = []

    def answer(self, message: bytes) -> None:
        """Send an answer once the peer has given credit for it; of many the oldest is dropped."""
        self._waiting.append(message)
        del self._waiting[:-ANSWERS_MAX]
        self._send()

    def _send(self) -> None:
        session = self._session
        while self._waiting and self.credit > 0 and session.remote_incoming_window > 0:
            first = session.next_outgoing_delivery
            self._split_one(self._waiting.pop(0), first)
            session.sent(first, 1, 0)
            self.delivered += 1
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) & MASK

    def flow(self, delivery_count: int | None, credit: int, *, drain: bool) -> None:
        """See OutgoingLink."""
        ahead = distance(self.delivery_count, delivery_count or 0)
        self.credit = max(0, credit + min(0, ahead))
        self._send()
        if drain and self.credit:
            self.delivery_count = (self.delivery_count + self.credit) & MASK
            self.credit = 0
            self._session.write_flow(self, drain=True)

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """See the Link port."""
        if self in self._session.cbs.replies:
            self._session.cbs.replies.remove(self)
        return super().end(closed=closed, lost=lost)


def attach_requests(session: SessionPort, attach: Attach) -> CbsRequests:
    """Open a link to `$cbs`, and answer its attach. Raises RefusedError."""
    session.cbs.check()
    link = CbsRequests(session, attach)
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_RECEIVER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=attach.source,
            target=attach.target,
            max_message_size=link.message_max,
        )
    )
    return link


def attach_replies(session: SessionPort, attach: Attach) -> CbsReplies:
    """Open a link from `$cbs`, and answer its attach. Raises RefusedError."""
    session.cbs.check()
    if len(session.cbs.replies) >= LINKS_MAX:
        text = f"{LINKS_MAX} links of this connection read {CBS_NODE} already; that is the limit."
        raise RefusedError.of(Code.TOO_MANY, text)
    link = CbsReplies(session, attach)
    session.cbs.replies.append(link)
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_SENDER,
            snd_settle_mode=SND_SETTLED,
            rcv_settle_mode=RCV_FIRST,
            source=attach.source,
            target=attach.target,
            initial_delivery_count=0,
        )
    )
    return link


def _read(body: bytes) -> _Request:
    """Return what a message asks for."""
    try:
        sections = scan(body)
        return _request_of(sections)
    except DecodeError as broken:
        return _Request(wrong=f"The message cannot be read: {broken}.")


def _request_of(sections: Sections) -> _Request:
    """Return what the sections of a message ask for. Raises DecodeError."""
    said = sections.application_properties
    message_id, reply_to = sections.message_id, sections.reply_to
    if isinstance(message_id, bytes | str) and len(message_id) > _ID_BYTES_MAX:
        return _Request(wrong=f"The message-id has more than {_ID_BYTES_MAX} bytes.")
    kind = said.get("type")

    def wrong(text: str) -> _Request:
        return _Request(message_id=message_id, reply_to=reply_to, wrong=text)

    if said.get("operation") != "put-token":
        return wrong("The application property 'operation' must be put-token.")
    if kind not in _TYPES:
        return wrong("The application property 'type' must be jwt: no other token is taken.")
    if sections.body_kind is BodyKind.VALUE:
        token = sections.value()
    else:
        token = None
    if not isinstance(token, str) or not token:
        return wrong("The body must be the token, as a string.")
    return _Request(token=token.strip(), message_id=message_id, reply_to=reply_to)


def _reply(message_id: Value, status: int, text: str) -> bytes:
    """Return an answer to the message of that id."""
    properties: list[Value] = [None, None, None, None, None, message_id]
    said: dict[Value, Value] = {"status-code": Int(status), "status-description": text}
    return b"".join(
        encode(Described(ULong(code), value))
        for code, value in (
            (PROPERTIES, properties),
            (APPLICATION_PROPERTIES, said),
            (VALUE, None),
        )
    )
