r"""The stored form of a STOMP message: header lines, an empty line, the body bytes.

    destination:<as the sender wrote it> LF
    content-type:<value> LF                 only when given
    content-length:<bytes of the body> LF   always, always right
    priority:<0-9> LF
    persistent:<true|false> LF
    expires:<ms since the epoch, 0 never> LF
    correlation-id: reply-to: type:         in this order, those that were given
    <user headers in sent order>
    timestamp:<ms since the epoch> LF       when it was sent, if its sender did not say
    LF
    <body>

Names and values are escaped as STOMP 1.2 does (`\r \n \c \\`), so that a MESSAGE frame for a 1.2
subscriber is this form behind the broker's own headers. Headers that belong to the frame or to the
broker are never stored; a name or value that no escape can carry (NUL) is left out.

It knows no version but 1.2, no frame and no session.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Final

#: Written by the broker on MESSAGE frames, or consumed by it: a sender's copy is dropped.
BROKER_HEADERS: Final = frozenset(
    {"receipt", "transaction", "message-id", "subscription", "redelivered", "ack"}
)
#: Have a place of their own in the form; `pack` takes them as arguments.
PLACED_HEADERS: Final = frozenset(
    {"destination", "content-type", "content-length", "priority", "persistent", "expires"}
)
_RESERVED: Final = BROKER_HEADERS | PLACED_HEADERS
#: Before it stand values of the gateway's own, and escaped ones: the first is the one that counts.
_EXPIRES: Final = b"\nexpires:"
_LEADING: Final = ("correlation-id", "reply-to", "type")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"})
_SPECIAL: Final = re.compile(r"[\\\n\r:]")
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)
_MEANING: Final = {"\\": "\\", "n": "\n", "r": "\r", "c": ":"}


def escape(text: str) -> str:
    """Return `text` with CR, LF, colon and backslash escaped [STOMP 1.2 Value Encoding]."""
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


def unescape(text: str) -> str:
    """Undo `escape`; raises ValueError on an escape that STOMP 1.2 does not define."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(_meaning, text)


def _meaning(match: re.Match[str]) -> str:
    try:
        return _MEANING[match[1]]
    except KeyError:
        raise ValueError(f"undefined escape \\{match[1]}") from None


def header_line(name: str, value: str) -> str:
    """Return one stored header line, or "" when the name is empty or either holds a NUL."""
    line = f"{escape(name)}:{escape(value)}\n"
    return line if name and "\0" not in line else ""


def outline(
    destination: str,
    priority: int,
    persistent: bool,  # noqa: FBT001 - one of the three things that every message has
    *,
    content_type: str | None = None,
    expires: int = 0,
    headers: Iterable[tuple[str, str]] = (),
) -> tuple[bytes, bytes]:
    """Return what stands before and behind the digits of content-length.

    A producer repeats its headers, so that the two parts can serve many messages:
    `before + b"%d" % len(body) + behind + body` is a stored message.

    Args:
        destination: as the sender wrote it.
        priority: 0..9.
        persistent: what the message says of itself.
        content_type: left out when None.
        expires: ms since the epoch; 0 never.
        headers: all others in sent order; the broker's and those with their own place are dropped.
    """
    before = header_line("destination", destination)
    if content_type is not None:
        before += header_line("content-type", content_type)
    durable = "true" if persistent else "false"
    lines = [f"\npriority:{priority}\npersistent:{durable}\nexpires:{expires}\n"]
    leading: dict[str, str] = {}
    others: list[str] = []
    for name, value in headers:
        if name in _RESERVED:
            continue
        if name in _LEADING:
            leading.setdefault(name, value)
        else:
            others.append(header_line(name, value))
    if leading:
        lines += [header_line(name, leading[name]) for name in _LEADING if name in leading]
    lines += others
    lines.append("\n")
    return f"{before}content-length:".encode("utf-8", "replace"), "".join(lines).encode(
        "utf-8", "replace"
    )


def pack(
    destination: str,
    body: bytes,
    *,
    priority: int = 4,
    persistent: bool = False,
    content_type: str | None = None,
    expires: int = 0,
    headers: Iterable[tuple[str, str]] = (),
) -> bytes:
    """Return the stored form of one message; arguments as in `outline`."""
    before, behind = outline(
        destination,
        priority,
        persistent,
        content_type=content_type,
        expires=expires,
        headers=headers,
    )
    return b"%b%d%b%b" % (before, len(body), behind, body)


def unpack(form: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """Return the headers, unescaped and in stored order, and the body.

    Never raises. A line that is no header (bytes that did not come from `pack`) is left out.
    """
    head, _, body = form.partition(b"\n\n")
    pairs: list[tuple[str, str]] = []
    for line in head.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if colon and name:
            pairs.append((_tolerant(name), _tolerant(value)))
    return pairs, body


def with_headers(form: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the stored message with these user headers, in place of those of the same name."""
    added = dict(headers)
    head, _, body = form.partition(b"\n\n")
    kept = [
        line
        for line in head.decode("utf-8", "replace").split("\n")
        if _tolerant(line.partition(":")[0]) not in added
    ]
    lines = "\n".join(kept) + "\n" + "".join(header_line(n, v) for n, v in added.items())
    return lines.encode("utf-8", "replace") + b"\n" + body


def with_expires(form: bytes, expires: int) -> bytes:
    """Return the stored message with another end: ms since the epoch, 0 never."""
    start = form.find(_EXPIRES)
    if start < 0 or start > form.find(b"\n\n"):
        return form  # no bytes of `pack`
    digits = start + len(_EXPIRES)
    return b"%b%d%b" % (form[:digits], expires, form[form.index(b"\n", digits) :])


def with_new_headers(form: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """As `with_headers` for names that the message does not have, which is not looked at."""
    head, _, body = form.partition(b"\n\n")
    lines = "".join([header_line(name, value) for name, value in headers])
    return b"%b\n%b\n%b" % (head, lines.encode("utf-8", "replace"), body)


def without_headers(form: bytes, names: Container[str]) -> bytes:
    """Return the stored message without the user headers of these names."""
    head, _, body = form.partition(b"\n\n")
    lines = head.decode("utf-8", "replace").split("\n")
    kept = [line for line in lines if _tolerant(line.partition(":")[0]) not in names]
    return "\n".join(kept).encode("utf-8", "replace") + b"\n\n" + body


def _tolerant(text: str) -> str:
    try:
        return unescape(text)
    except ValueError:
        return text
