"""Command and header lines to a `Head`, by the rules of one version; raises only FrameError.

What is refused here cannot be read safely, so every FrameError ends the connection. Its text names
the header or limit and the rule, and it carries the receipt that the frame asked for.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from gateway.model.errors import Code, Refusal
from protocols.stomp.frame import CLIENT_COMMANDS, Head
from protocols.stomp.limits import StompLimits
from protocols.stomp.versions import Version, plain, unescape

_RECEIPT: Final = re.compile(rb"\nreceipt:([^\r\n\0]{0,1024})(?=[\r\n]|$)")
#: These two are read before a version is known and are never escaped [STOMP 1.2 Value Encoding].
_GREETINGS: Final = ("CONNECT", "STOMP")
_CONTENT_LENGTH_DIGITS: Final = 10
#: How much of what a peer sent is shown back to it.
_SHOWN: Final = 60


class FrameError(Exception):
    """The bytes cannot be read as frames.

    Attributes:
        refusal: why.
        receipt: what the broken frame asked to be confirmed with, if that could be found.
        silent: True when even an answer would help an attacker (HTTP and TLS on this port).
    """

    def __init__(
        self, refusal: Refusal, receipt: bytes | None = None, *, silent: bool = False
    ) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.receipt = receipt
        self.silent = silent


def bad_frame(text: str, raw: bytes = b"") -> FrameError:
    """Return a FrameError for bytes that break the frame grammar."""
    return FrameError(Refusal(code=Code.BAD_FRAME, text=text), receipt_in(raw))


def bad_header(text: str, raw: bytes) -> FrameError:
    """Return a FrameError for a header line that breaks a rule."""
    return FrameError(Refusal(code=Code.BAD_HEADER, text=text), receipt_in(raw))


def too_large(what: str, size: int, limit: int, raw: bytes = b"") -> FrameError:
    """Return a FrameError for something above a limit in bytes."""
    text = f"{what} has {size} bytes or more; the limit is {limit}. Send less, or raise the limit."
    return FrameError(Refusal(code=Code.TOO_LARGE, text=text), receipt_in(raw))


def receipt_in(raw: bytes) -> bytes | None:
    """Return the receipt id of a head that could not be decoded, if it is plainly there."""
    match = _RECEIPT.search(raw)
    return match[1] if match else None


def shown(text: str) -> str:
    """Return what a peer sent, short and without control characters."""
    return plain(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def decode_head(raw: bytes, version: Version | None, limits: StompLimits) -> Head:
    """Decode a head without its empty line; `version` None while none is agreed.

    Raises:
        FrameError: unknown command, bad header line, bad content-length, bad UTF-8, or a limit.
    """
    check_command(raw, limits)
    text = _text(raw, version, limits)
    lines = text.split("\n")
    _check_counts(lines, raw, version, limits)
    command = lines[0]
    if command not in CLIENT_COMMANDS or (version is Version.V1_0 and command == "NACK"):
        raise bad_frame(_unknown_command(command, version), raw)
    meaning = Version.V1_0 if version is None or command in _GREETINGS else version
    headers, length = _headers(lines, meaning, raw)
    head = Head(command, headers, _length(length, raw, limits))
    if "receipt" in headers:
        head.receipt = checked_receipt(_raw_receipt(lines, meaning), meaning, raw)
    return head


def check_command(raw: bytes, limits: StompLimits) -> None:
    """Raise FrameError when the first line, whole or not, is longer than a command can be."""
    limit = limits.command_bytes_max
    if len(raw) > limit + 1 and raw.find(b"\n", 0, limit + 2) < 0:
        raise bad_frame(
            f"'{shown(raw[:_SHOWN].decode('latin-1'))}' is no command: "
            f"a command has at most {limit} bytes.",
            raw,
        )


def _text(raw: bytes, version: Version | None, limits: StompLimits) -> str:
    limit = limits.login_frame_bytes_max if version is None else limits.header_bytes_max
    if len(raw) > limit:
        raise too_large("The header block of this frame", len(raw), limit, raw)
    if b"\0" in raw:
        raise bad_frame("A NUL came before the empty line that ends the headers.", raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_header(
            f"The headers are not UTF-8: byte {error.start} of the frame is no character.", raw
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
        if "\r" in text:
            raise bad_header("A header holds a CR that does not end its line.", raw)
    return text


def _check_counts(
    lines: list[str], raw: bytes, version: Version | None, limits: StompLimits
) -> None:
    most = limits.login_headers_max if version is None else limits.headers_max
    if len(lines) - 1 > most:
        raise too_many_headers(most, raw)
    if len(raw) > limits.header_line_bytes_max:
        longest = max(map(len, raw.split(b"\n")))
        if longest > limits.header_line_bytes_max:
            raise too_large("A header line", longest, limits.header_line_bytes_max, raw)


def too_many_headers(limit: int, raw: bytes) -> FrameError:
    """Return the FrameError for a frame with more than `limit` header lines."""
    text = f"The frame has more than {limit} header lines. Send fewer, or raise the limit."
    return FrameError(Refusal(code=Code.TOO_MANY, text=text), receipt_in(raw))


def _unknown_command(command: str, version: Version | None) -> str:
    if command == "NACK":
        return "STOMP 1.0 has no NACK. Use ACK, or connect with accept-version 1.1 or 1.2."
    known = "CONNECT or STOMP" if version is None else ", ".join(sorted(CLIENT_COMMANDS))
    return f"'{shown(command)}' is no command here; commands are in capitals: {known}."


def _headers(lines: list[str], version: Version, raw: bytes) -> tuple[dict[str, str], str | None]:
    headers: dict[str, str] = {}
    length: str | None = None
    first_wins = version is Version.V1_2
    trimmed = version is Version.V1_0
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name:
            _refuse_line(line, raw)
        if trimmed:
            value = value.lstrip(" \t")
        elif "\\" in line:
            try:
                name = unescape(name, version)
                value = unescape(value, version)
            except ValueError as error:
                raise bad_header(
                    f"Header '{shown(line)}' has an {error}, which STOMP {version.text} lacks.", raw
                ) from None
        if first_wins:
            headers.setdefault(name, value)
        else:
            headers[name] = value
        if length is None and name == "content-length":
            # Of differing ones the first counts in every version: two readers of one stream must
            # never disagree about where a frame ends.
            length = value
    return headers, length


def _refuse_line(line: str, raw: bytes) -> NoReturn:
    if ":" not in line:
        raise bad_header(f"Header line '{shown(line)}' has no colon; write name:value.", raw)
    raise bad_header(f"Header line '{shown(line)}' has no name before its colon.", raw)


def _length(text: str | None, raw: bytes, limits: StompLimits) -> int:
    if text is None:
        return -1
    # isdecimal() alone would take the digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= _CONTENT_LENGTH_DIGITS):
        raise bad_header(
            f"content-length '{shown(text)}' is no number of bytes; "
            f"write 1 to {_CONTENT_LENGTH_DIGITS} digits and nothing else.",
            raw,
        )
    length = int(text)
    if length > limits.body_bytes_max:
        raise too_large("The body of this frame", length, limits.body_bytes_max, raw)
    return length


def _raw_receipt(lines: list[str], version: Version) -> bytes:
    """Return the value of the receipt header that counts, as the peer wrote it."""
    values = [line[8:] for line in lines if line.startswith("receipt:")]
    value = values[0 if version is Version.V1_2 else -1]
    return value.encode()


def checked_receipt(value: bytes, version: Version, raw: bytes) -> bytes:
    """Return a receipt id as it goes back to the peer; raises FrameError when it cannot.

    The id goes back in the escaping that it came in, so that it may hold only what the version
    defines.
    """
    if version is Version.V1_0:
        value = value.lstrip(b" \t")
    if b"\r" in value or b"\0" in value:
        raise bad_header("The receipt header holds a CR or NUL.", raw)
    try:
        unescape(value.decode("utf-8"), version)
    except UnicodeDecodeError:
        raise bad_header("The receipt header is not UTF-8.", raw) from None
    except ValueError as error:
        raise bad_header(
            f"The receipt header has an {error}, which STOMP {version.text} lacks.", raw
        ) from None
    return value
