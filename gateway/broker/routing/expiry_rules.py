"""The expiry that an address gives to what is sent to it; STOMP messages tell it. Pure."""

from __future__ import annotations

from gateway.addresses.settings import AddressSettings
from gateway.model import stomp_form
from gateway.model.bounds import NO_LIMIT
from gateway.model.message import EXPIRES, STOMP
from gateway.model.run import Run


def apply_expiry_rules(
    settings: AddressSettings, flags: int, expires: int, now_ms: int
) -> tuple[int, int]:
    """Return flags and expiry after the address' expiry-delay, min-, max- and no-expiry."""
    if settings.no_expiry:
        return flags & ~EXPIRES, 0
    if not flags & EXPIRES:
        delay = next(
            (
                d
                for d in (
                    settings.expiry_delay,
                    settings.max_expiry_delay,
                    settings.min_expiry_delay,
                )
                if d != NO_LIMIT
            ),
            NO_LIMIT,
        )
        return (flags, 0) if delay == NO_LIMIT else (flags | EXPIRES, now_ms + delay)
    if settings.max_expiry_delay != NO_LIMIT:
        expires = min(expires, now_ms + settings.max_expiry_delay)
    if settings.min_expiry_delay != NO_LIMIT:
        expires = max(expires, now_ms + settings.min_expiry_delay)
    return flags, expires


def with_end(run: Run, flags: int, expires: int) -> Run:
    """Return a run with other flags and another end, which its STOMP messages tell."""
    if expires == run.expires or not flags & STOMP:
        return run.marked(flags, expires)
    bodies = [stomp_form.with_expires(body, expires) for body in run.bodies]
    return Run(bodies, flags, expires, run.due)
