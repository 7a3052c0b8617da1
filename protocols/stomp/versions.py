r"""The three versions of STOMP: which one is spoken, and what each may write in a header.

    version   escapes               repeated header   value padding   NACK   ERROR
    1.0       none                  last wins         left trimmed    no     stays open
    1.1       \n \c \\              last wins         kept            yes    stays open
    1.2       \n \c \\ \r           first wins        kept            yes    closes

Pure tables; knows no frame and no connection.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from gateway.model import stomp_form


class Version(IntEnum):
    """A version of the protocol; later ones compare greater."""

    V1_0 = 10
    V1_1 = 11
    V1_2 = 12

    @property
    def text(self) -> str:
        """The version as `accept-version` and `version` write it."""
        return f"{self // 10}.{self % 10}"


SUPPORTED: Final = ",".join(version.text for version in Version)
_BY_TEXT: Final = {version.text: version for version in Version}
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)
_MEANING_1_1: Final = {"\\": "\\", "n": "\n", "c": ":"}
_ESCAPES_1_1: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c"})


def negotiate(accepted: str | None) -> Version | None:
    """Return the highest version of the comma list `accepted`; None when it names none of ours.

    Without the header the peer speaks 1.0 [STOMP 1.2 Protocol Negotiation].
    """
    if accepted is None:
        return Version.V1_0
    known = [_BY_TEXT[word] for word in map(str.strip, accepted.split(",")) if word in _BY_TEXT]
    return max(known, default=None)


def unescape(text: str, version: Version) -> str:
    r"""Return what an escaped name or value means; raises ValueError on an undefined escape.

    `\r` is defined from 1.2 on, `\t` never [STOMP 1.2 Value Encoding]. 1.0 has no escapes.
    """
    if version is Version.V1_2:
        return stomp_form.unescape(text)
    if version is Version.V1_0 or "\\" not in text:
        return text
    return _ESCAPED.sub(_meaning_1_1, text)


def _meaning_1_1(match: re.Match[str]) -> str:
    try:
        return _MEANING_1_1[match[1]]
    except KeyError:
        raise ValueError(f"undefined escape \\{match[1]}") from None


def escape_value(text: str, version: Version) -> str | None:
    """Return `text` as a header value; None when this version has no way to write it [T11]."""
    if "\0" in text:
        return None
    if version is Version.V1_2:
        return stomp_form.escape(text)
    if "\r" in text:
        return None
    if version is Version.V1_1:
        return text.translate(_ESCAPES_1_1)
    return None if "\n" in text else text


def escape_name(text: str, version: Version) -> str | None:
    """Return `text` as a header name; None when this version has no way to write it [T11]."""
    if not text or (version is Version.V1_0 and ":" in text):
        return None
    return escape_value(text, version)


def plain(text: str) -> str:
    """Return `text` on one line without control characters, for texts of ours in any version."""
    return "".join(c if c.isprintable() else " " for c in text)
