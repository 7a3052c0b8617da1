"""What the gateway refuses, and how it says so.

A refusal carries one stable code (the same in the client's error, the log, the API and the metric)
and one text for people: what was refused, which limit or rule, its value, what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Code(Enum):
    """Stable reason codes. The value is what clients, logs, API and metrics show."""

    ADDRESS_FULL = "address-full"
    MEMORY_FULL = "memory-full"
    DISK_FULL = "disk-full"
    PAGE_FULL = "page-full"
    NOT_FOUND = "not-found"
    NOT_AUTHORIZED = "not-authorized"
    TOKEN_EXPIRED = "token-expired"  # noqa: S105 - a code, no token
    ALREADY_EXISTS = "already-exists"
    DUPLICATE_ID = "duplicate-id"
    BAD_NAME = "bad-name"
    BAD_VALUE = "bad-value"
    BAD_SELECTOR = "bad-selector"
    BAD_HEADER = "bad-header"
    BAD_FRAME = "bad-frame"
    BAD_MESSAGE = "bad-message"
    TOO_LARGE = "too-large"
    TOO_MANY = "too-many"
    ROUTING_MISMATCH = "routing-mismatch"
    MAX_CONSUMERS = "max-consumers"
    IN_USE = "in-use"
    NOT_IMPLEMENTED = "not-implemented"
    QUEUE_DELETED = "queue-deleted"
    SLOW_CONSUMER = "slow-consumer"
    CONVERSION = "conversion"
    OPERATOR = "closed-by-operator"
    QUOTA_REACHED = "quota-reached"
    STORE_BUSY = "store-busy"
    STORE_FAILED = "store-failed"
    SHUTTING_DOWN = "shutting-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done.

    Attributes:
        code: stable, for programs.
        text: one or two sentences for people.
        transient: True when the same request may work later (room comes back).
        wait: seconds until then, where it is known better than by the code [gateway.model.retry].
    """

    code: Code
    text: str
    transient: bool = False
    wait: float | None = None


#: What clients are told when the gateway stops.
STOPPING: Final = Refusal(
    code=Code.SHUTTING_DOWN,
    text="The gateway is shutting down; connect again later.",
    transient=True,
)


class RefusedError(Exception):
    """Raised by cold paths of the broker port (attach, create, configure); carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @classmethod
    def of(cls, code: Code, text: str, *, transient: bool = False) -> RefusedError:
        return cls(Refusal(code=code, text=text, transient=transient))
