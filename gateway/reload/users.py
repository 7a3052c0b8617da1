"""What is different in another users file; never the credentials. Pure."""

from __future__ import annotations

from gateway.config.diff import Change
from gateway.config.errors import Path, show_path
from gateway.model.rows import Reach
from gateway.security.users import User, Users


def user_changes(old: Users, new: Users) -> list[Change]:
    """Return who came, went, or has other credentials or roles."""
    found: list[Change] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            was, is_now = (None if one is None else "present" for one in (before, after))
            found.append(_change((name,), was, is_now))
        else:
            found += _differences(before, after)
    return found


def _differences(before: User, after: User) -> list[Change]:
    found = []
    name = before.name
    if before.password != after.password:
        found.append(_change((name, "password"), "(not shown)", "(changed)"))
    if before.verifiers != after.verifiers:
        was, is_now = (", ".join(sorted(one.verifiers)) or None for one in (before, after))
        same = was == is_now and was is not None
        found.append(_change((name, "scram"), was, f"{is_now} (changed)" if same else is_now))
    if before.roles != after.roles:
        found.append(_change((name, "roles"), sorted(before.roles), sorted(after.roles)))
    return found


def _change(path: Path, old: object, new: object) -> Change:
    return Change(key=show_path(("users", *path)), old=old, new=new, reach=Reach.AT_ONCE)
