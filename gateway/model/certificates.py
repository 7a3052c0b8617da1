"""Certificates of clients: what stands in one, and the rules that say whose it is. Pure.

    certificate ──first rule that fits──> user and roles
         └──no rule fits──> nobody

A rule fits when everything fits that it asks for: subject, issuer, and one name of each kind. A
text fits when it is the same. A pattern has to fit all of a text, and can only be slow within a
bound: certificates come from elsewhere, and the search for a fit holds everybody up.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Texts that patterns are tried on; a longer one fits none.
TEXT_MAX: Final = 256
#: Names of a kind in one certificate; where there are more, no pattern is tried on them.
NAMES_MAX: Final = 100
#: Ways in which a pattern may be laid over a text: some ten milliseconds at the worst.
WAYS_MAX: Final = 2_000_000
#: Characters of a name that are told, and names of a kind.
SHOWN_MAX: Final = 200
NAMES_TOLD: Final = 3
_REPEATS: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_REFERENCE: Final = re.compile(r"\\([1-9])")
#: Writing that runs from right to left turns the rest of a line around.
_TURNING: Final = frozenset({"R", "AL", "AN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What stands in a certificate, as it stands there.

    Attributes:
        subject, issuer: in the form of RFC 4514, the narrowest part first: `CN=ann,O=Example`.
        dns, uris, emails: the other names of the subject.
        serial: in hexadecimal.
        from_ms, until_ms: dates in ms between which it holds.
    """

    subject: str
    issuer: str
    serial: str
    from_ms: int
    until_ms: int
    dns: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRule:
    r"""One `[[certificate-users]]`; empty: not asked for.

    Attributes:
        user: whose certificate it is; `\1` to `\9` stand for the groups of the one pattern.
        roles: of that user; not written: those that the users file says.
        subject: the certificate's subject, as in RFC 4514: `CN=ann,O=Example`.
        subject_matches: a pattern of it.
        issuer: who signed it, as in RFC 4514.
        dns: one of its DNS names.
        dns_matches: a pattern of one.
        uri: one of its URIs.
        uri_matches: a pattern of one.
        email: one of its mail addresses.
        email_matches: a pattern of one.
    """

    user: str
    roles: frozenset[str] | None = None
    subject: str = ""
    subject_matches: str = ""
    issuer: str = ""
    dns: str = ""
    dns_matches: str = ""
    uri: str = ""
    uri_matches: str = ""
    email: str = ""
    email_matches: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns that are written."""
        every = (self.subject_matches, self.dns_matches, self.uri_matches, self.email_matches)
        return tuple(one for one in every if one)

    def user_of(self, shown: Shown) -> str | None:
        """Return whose certificate it is; None when the rule does not fit."""
        if self.issuer and self.issuer != shown.issuer:
            return None
        kinds = (
            (self.subject, self.subject_matches, (shown.subject,)),
            (self.dns, self.dns_matches, shown.dns),
            (self.uri, self.uri_matches, shown.uris),
            (self.email, self.email_matches, shown.emails),
        )
        groups: tuple[str | None, ...] = ()
        for text, pattern, names in kinds:
            if text and text not in names:
                return None
            if pattern:
                found = _fit(pattern, names)
                if found is None:
                    return None
                groups = found.groups()
        return _REFERENCE.sub(lambda one: _group(groups, int(one[1])), self.user)


def _group(groups: Sequence[str | None], number: int) -> str:
    return (groups[number - 1] or "") if number <= len(groups) else ""


def _fit(pattern: str, names: Sequence[str]) -> re.Match[str] | None:
    """Return how a pattern fits one of these names, all of it."""
    if len(names) > NAMES_MAX:
        return None
    compiled = re.compile(pattern)
    short = (name for name in names if len(name) <= TEXT_MAX)
    return next((found for name in short if (found := compiled.fullmatch(name))), None)


def first_fit(
    rules: Iterable[CertificateRule], shown: Shown
) -> tuple[str, frozenset[str] | None] | None:
    """Return user and roles by the first rule that fits; None when none does."""
    for rule in rules:
        user = rule.user_of(shown)
        if user is not None:
            return user, rule.roles
    return None


def rule_problem(rule: CertificateRule) -> tuple[str, str] | None:
    """Return the key and the reason where a rule cannot mean anything, else None."""
    asked = (rule.subject, rule.issuer, rule.dns, rule.uri, rule.email, *rule.patterns)
    if not any(asked):
        return "", "asks for nothing, and would fit every certificate; write subject, or dns"
    wanted = [int(number) for number in _REFERENCE.findall(rule.user)]
    if not wanted:
        return None
    if len(rule.patterns) != 1:
        return "user", f"has \\{wanted[0]}, and stands for a group of the one pattern of its rule"
    groups = re.compile(rule.patterns[0]).groups
    if max(wanted) > groups:
        return "user", f"has \\{max(wanted)}, and the pattern has {groups} groups"
    return None


def checked_pattern(text: str) -> str:
    """Return a pattern that is never slow; raises ValueError with the reason.

    What would need more than `WAYS_MAX` tries on a text of `TEXT_MAX` characters is refused, and
    so is what cannot be counted: a repeated group, a look ahead or back, a reference to a group.
    """
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f'"{text}" is no pattern: {error}') from None
    ways = _Ways(text).count()
    if ways > WAYS_MAX:
        raise ValueError(
            f'"{text}" could be laid over a text in too many ways; at most two of its repeats may'
            " be without a bound (* and +): write for example [^,]{1,40}"
        )
    return text


class _Ways:
    """In how many ways a pattern may be laid over a text, at most."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def count(self) -> int:
        ways, one = 1, False
        while self._at < len(self._text):
            if (found := self._repeat()) is not None:
                if not one:
                    raise ValueError(f'"{self._text}" repeats a group, which may be slow')
                ways, one = ways * found, False
                continue
            sign = self._text[self._at]
            if sign == "|":
                ways *= 2
            one = sign not in "()|^$"
            self._skip(sign)
        return ways

    def _skip(self, sign: str) -> None:
        """Go behind one character, class, or begin or end of a group."""
        text = self._text
        if sign == "\\":
            if text[self._at + 1 : self._at + 2].isdigit():
                raise ValueError(f'"{text}" refers to a group, which may be slow')
            self._at += 2
        elif sign == "[":
            self._at += _class_length(text[self._at :])
        elif text.startswith("(?:", self._at):
            self._at += 3
        elif text.startswith("(?", self._at):
            raise ValueError(f'"{text}" has "(?", of which only "(?:" is taken')
        else:
            self._at += 1

    def _repeat(self) -> int | None:
        """Go behind a repeat, and return how many lengths it may have; None: there is none."""
        text, at = self._text, self._at
        sign = text[at]
        if sign in "*+?":
            self._at += 1
            ways = 2 if sign == "?" else TEXT_MAX
        elif (found := _REPEATS.match(text, at)) and (found[1] or found[2]):
            least = int(found[1] or 0)
            most = int(found[3] or TEXT_MAX) if found[2] else least
            ways = min(most, TEXT_MAX) - min(least, TEXT_MAX) + 1
            self._at = found.end()
        else:
            return None
        if text[self._at : self._at + 1] in ("?", "+"):
            self._at += 1  # the shortest first, or never less
        return ways


def _class_length(text: str) -> int:
    """Return the length of `[...]` at the begin of a text."""
    at = 2 if text.startswith("[^") else 1
    at += text[at] == "]"
    while text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at + 1


def escaped(text: str) -> str:
    """Return a name from a certificate as it may stand in a log: short, and only what it shows."""
    shown = "".join(one if _plain(one) else f"\\u{ord(one):04x}" for one in text[:SHOWN_MAX])
    return f"{shown}... ({len(text)} characters)" if len(text) > SHOWN_MAX else shown


def _plain(one: str) -> bool:
    return one.isprintable() and unicodedata.bidirectional(one) not in _TURNING


def facts(shown: Shown) -> Mapping[str, str]:
    """Return what the log tells of a certificate; of many names the first."""
    names = (*shown.dns[:NAMES_TOLD], *shown.uris[:NAMES_TOLD], *shown.emails[:NAMES_TOLD])
    return {
        "subject": escaped(shown.subject),
        "names": " ".join(escaped(name) for name in names),
        "issuer": escaped(shown.issuer),
        "serial": escaped(shown.serial),
    }
