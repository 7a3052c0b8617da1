r"""MESSAGE frames of one subscription, a run at a time.

    MESSAGE LF subscription:<id> LF redelivered:<true|false> LF [ack:<n> LF] message-id:<n> LF
    [x-stream-offset:<offset> LF] <stored form: header lines, empty line, body> NUL LF

The broker's headers come first, so that they are the ones that count whatever the sender wrote
[T12]. The stored form needs no work for a 1.2 subscriber; older ones get its header block in their
own escaping when it has an escape in it. <n> is the subscription's key and a number that goes up by
one, so that its text comes from a table of a thousand endings.

It knows how a message looks, not when it may be sent.
"""

from __future__ import annotations

from typing import Final, Protocol

from gateway.model import stomp_form
from gateway.model.message import COUNT_SHIFT, EXPIRES, MAYBE_SEEN, REPLAYED, STOMP, Message
from protocols.stomp.frame import END
from protocols.stomp.versions import Version, escape_name, escape_value


class Convert(Protocol):
    """Turns a message that was not sent by STOMP into its stored STOMP form; never raises."""

    def __call__(
        self, body: bytes, flags: int, address: str, *, expires: int | None = None
    ) -> bytes: ...


#: Any of these flags makes `redelivered` true.
SEEN: Final = MAYBE_SEEN | (0xFFFF << COUNT_SHIFT)
_ENDINGS_COUNT: Final = 1000
_ENDINGS: Final = [b"%03d\n" % n for n in range(_ENDINGS_COUNT)]


class MessageFrames:
    """Writes the frames of one subscription.

    Attributes:
        overhead: bytes of a frame beside the stored form, for windows that count bytes.
        next_number: number of the next message.
        sizes: bytes of each frame that `render` has returned last, where they are wanted.
    """

    __slots__ = (
        "_ack",
        "_address",
        "_apart",
        "_convert",
        "_first",
        "_key",
        "_leads",
        "_thousands",
        "_version",
        "next_number",
        "overhead",
        "sizes",
    )

    def __init__(
        self,
        version: Version,
        subscription: str,
        key: bytes,
        *,
        with_ack: bool,
        address: str,
        convert: Convert,
        apart: bool = False,
    ) -> None:
        """Prepare the templates.

        Args:
            version: decides escapes; 1.2 has the `ack` header.
            subscription: the subscription's id.
            key: what the numbers of this subscription start with; no other one has it.
            with_ack: whether the subscriber acknowledges.
            address: given to `convert`.
            convert: for messages in another form.
            apart: `sizes` are wanted.
        """
        self._version = version
        self._key = key
        self._ack = with_ack and version is Version.V1_2
        self._address = address
        self._convert = convert
        self._apart = apart
        self.sizes: list[int] = []
        self._thousands = -1
        self._leads: tuple[bytes, bytes, bytes] = (b"", b"", b"")
        name = escape_value(subscription, version)
        assert name is not None, "the id came in a frame of this version"
        self._first = b"MESSAGE\nsubscription:" + name.encode() + b"\nredelivered:"
        self.next_number = 1
        # "false" LF, "message-id:" <n> LF, NUL LF, and "ack:" <n> LF; four digits are the rule.
        number_bytes = len(key) + 5
        self.overhead = len(self._first) + 20 + number_bytes + self._ack * (5 + number_bytes)

    def render(self, messages: list[Message], any_flags: int) -> bytes:
        """Return the frames of `messages`; they get the next numbers in order."""
        bodies = [m.body if m.flags & STOMP else self._converted(m) for m in messages]
        if self._version is not Version.V1_2:
            bodies = [rewritten(b, self._version) if b"\\" in b else b for b in bodies]
        if any_flags & REPLAYED and messages[0].flags & REPLAYED:  # all of them, or none
            bodies = [
                b"x-stream-offset:%d\n%b" % (m.seq, b)
                for m, b in zip(messages, bodies, strict=True)
            ]
        number = self.next_number
        self.next_number = number + len(bodies)
        if self._apart:
            self.sizes = []
        thousands, low = divmod(number, _ENDINGS_COUNT)
        if thousands == self._thousands and low + len(bodies) <= _ENDINGS_COUNT:
            return self._piece(low, bodies, messages, any_flags)
        pieces = []
        done = 0
        while done < len(bodies):
            thousands, low = divmod(number + done, _ENDINGS_COUNT)
            self._turn_to(thousands)
            count = _ENDINGS_COUNT - low
            part = slice(done, done + count)
            pieces.append(self._piece(low, bodies[part], messages[part], any_flags))
            done += count
        return b"".join(pieces)

    def end_of_browse(self) -> bytes:
        """Return the frame that ends a browse; it is no message, and not to be acknowledged."""
        name = escape_value(self._address, self._version) or ""
        lines = b"false\nmessage-id:%b-end\nbrowser:end\ndestination:" % self._key
        return self._first + lines + name.encode() + b"\n\n" + END

    def _converted(self, message: Message) -> bytes:
        flags = message.flags
        # A stream keeps a message as it was sent: that one says itself when it expires.
        expires = message.expires if flags & EXPIRES else None if flags & REPLAYED else 0
        return self._convert(message.body, flags, self._address, expires=expires)

    def _turn_to(self, thousands: int) -> None:
        """Write the templates for the next thousand numbers."""
        self._thousands = thousands
        number = b"%b-%d" % (self._key, thousands)
        middle = b"message-id:" + number
        if self._ack:
            fresh = self._first + b"false\nack:" + number
            seen = self._first + b"true\nack:" + number
        else:
            fresh = self._first + b"false\n" + middle
            seen = self._first + b"true\n" + middle
        # Each frame but the first carries the end of the one before it.
        self._leads = (END + fresh, END + seen, middle)

    def _piece(
        self, low: int, bodies: list[bytes], messages: list[Message], any_flags: int
    ) -> bytes:
        count = len(bodies)
        fresh, seen, middle = self._leads
        if any_flags & SEEN:
            leads = [seen if m.flags & SEEN else fresh for m in messages]
        else:
            leads = [fresh] * count
        if self._apart:
            # A lead has the END of the frame before, which is as long as its own.
            more = len(_ENDINGS[0]) + self._ack * (len(middle) + len(_ENDINGS[0]))
            if any_flags & SEEN:
                self.sizes += [len(a) + more + len(b) for a, b in zip(leads, bodies, strict=True)]
            else:
                more += len(fresh)
                self.sizes += [more + len(body) for body in bodies]
        leads[0] = leads[0][len(END) :]
        endings = _ENDINGS[low : low + count]
        width = 5 if self._ack else 3
        parts = [middle] * (width * count)
        parts[0::width] = leads
        parts[1::width] = endings
        if self._ack:
            parts[3::width] = endings
        parts[width - 1 :: width] = bodies
        parts.append(END)
        return b"".join(parts)


def rewritten(form: bytes, version: Version) -> bytes:
    r"""Return a stored message with its header block in the escaping of an older version.

    A header that the version cannot write is left out: CR from 1.1 down, LF and a colon in a name
    in 1.0, which has no escapes at all [T11].
    """
    block, _, body = form.partition(b"\n\n")
    if b"\\" not in block:
        return form
    if version is Version.V1_1 and b"\\r" not in block:
        return form
    lines = []
    for name, value in stomp_form.unpack(block + b"\n\n")[0]:
        safe_name = escape_name(name, version)
        safe_value = escape_value(value, version)
        if safe_name is not None and safe_value is not None:
            lines.append(f"{safe_name}:{safe_value}\n")
    return "".join(lines).encode("utf-8", "replace") + b"\n" + body
