"""Whoever keeps the record of logins, refusals and changes."""

from __future__ import annotations

from typing import Final, Protocol


class Auditor(Protocol):
    """Keeps what it is told, in order."""

    def note(self, event: str, **facts: object) -> None:
        """Record an event of the catalogue, such as `permission.refused`, with its facts.

        Never a secret, nor the body of a message. Costs no waiting, and raises nothing.
        """


class _Silent:
    """Keeps nothing."""

    def note(self, event: str, **facts: object) -> None:
        """See Auditor."""


#: Where nothing is recorded.
SILENT: Final[Auditor] = _Silent()
