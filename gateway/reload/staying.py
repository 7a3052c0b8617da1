"""Which connections stay when there are other users. Pure.

proved by a token or a directory ──────────────> stays: the users file says nothing of it
its user is gone ──────────────────────────────> ends
what it proved itself with is another now ─────> ends: it may have been stolen
its user has other roles ──────────────────────> stays, and is judged by them
nobody proved it, and there were no users ─────> ends, unless nobody has to log in
"""

from __future__ import annotations

from typing import Final

from gateway.model.principal import By, Principal
from gateway.security.users import User, Users

GONE: Final = (
    "The users of this gateway have changed, and this connection's is none of them; log in again."
)
CHANGED: Final = "This connection's user has another password now; log in again with that."

_ELSEWHERE: Final = frozenset({By.TOKEN, By.DIRECTORY})


def why_to_end(
    principal: Principal, before: Users, after: Users, *, was_open: bool, anonymous: bool
) -> str | None:
    """Return why a connection ends, for its client; None: it stays.

    Args:
        principal: for whom it acts.
        before: the users by which it was let in.
        after: those there are now.
        was_open: there were no users, so that nobody's password was asked for.
        anonymous: its listener lets in who gives no user.
    """
    user = principal.user
    if principal.by in _ELSEWHERE:
        return None
    if not user:
        return None if anonymous or not was_open else GONE
    if was_open or (user in before and user not in after):
        return GONE
    if user in before and _other_proof(principal.by, before[user], after[user]):
        return CHANGED
    return None


def _other_proof(by: By, before: User, after: User) -> bool:
    if by not in (By.PASSWORD, By.SCRAM):
        return False
    scram = by is By.SCRAM and before.verifiers != after.verifiers
    return scram or before.password != after.password
