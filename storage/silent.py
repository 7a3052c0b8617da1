"""Stand for listeners that are not there yet. Pure."""

from __future__ import annotations

from storage.batch import Batch


def never(batch: Batch) -> bool:
    """Stand for a reason to wait."""
    return False


def ignore_ticket(ticket: int) -> None:
    """Stand for a listener to what is durable."""


def ignore_tickets(tickets: list[int]) -> None:
    """Stand for a listener to what is consumed."""


def ignore_failure(error: BaseException) -> None:
    """Stand for a listener to the end."""
