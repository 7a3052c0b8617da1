"""Reading the configuration again, and judging it before anything changes.

What is read on a thread may block: file, users file. What the core would refuse is asked on the
reactor (`gateway.core.declared.contradictions`). Wrong is also what would open the gateway to
strangers: the same rules as at a start, for what would then be in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from twisted.internet.defer import Deferred

from gateway.config.diff import Change, changes, in_force
from gateway.config.errors import ConfigError, Problem
from gateway.config.exposure import exposure_problems
from gateway.config.listeners import tls_listeners
from gateway.config.lockout import lockout_problem, other_realms
from gateway.config.tree import AddressConfig, Config
from gateway.core.core import Core
from gateway.core.declared import contradictions
from gateway.listening.certificates import check_files
from gateway.listening.contexts import CertificateError
from gateway.model.definitions import DivertDefinition
from gateway.reload.users import user_changes
from gateway.security.around import load_users
from gateway.security.users import Users, UsersError
from gateway.tokens.issuing import Issuers, Issuing

#: Declared queues that are looked at in one turn: about a millisecond.
_CHECK_STEP: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was read, and what comes of it.

    Attributes:
        read: as the file has it.
        held: what will be in force, which is less where something needs a restart.
        users: all of them.
        issuers: of tokens, all of them, with their keys.
        addresses: those declared that are new, or others than before.
        diverts: the same.
        changes: from what is in force now.
        of_users: from which of them on they are of the users file.
    """

    read: Config
    held: Config
    users: Users
    issuers: Issuers
    addresses: tuple[AddressConfig, ...]
    diverts: tuple[DivertDefinition, ...]
    changes: tuple[Change, ...]
    of_users: int


def read_again(read: Callable[[], Config], now: Config, users: Users, issuing: Issuing) -> Wanted:
    """Read everything and compare it with what is in force. Blocks; any thread.

    Raises ConfigError with everything that is wrong.
    """
    config = read()
    held = in_force(now, config)
    found, problems = read_users(held, users, now)
    known = {problem.path for problem in problems}
    problems += [
        problem
        for problem in exposure_problems(config, has_users=bool(found) or other_realms(config))
        if problem.path not in known
    ]
    problems += _certificate_problems(now, config)
    issuers: Issuers = {}
    try:
        issuers = issuing.read(held.tokens, held.origins)
    except ConfigError as error:
        problems += error.problems
    if now.tokens and not (users or found or other_realms(held)):
        text = (
            "has no issuer any more, and without users anybody is let in; a start may do that, a"
            " reload does not"
        )
        problems.append(Problem(where=config.file or "", path="tokens", text=text))
    if now.security_settings and not config.security_settings:
        text = (
            "is not there any more, and without it every user may do everything; a start may do"
            " that, a reload does not"
        )
        problems.append(Problem(where=config.file or "", path="security-settings", text=text))
    if problems:
        raise ConfigError(problems)
    of_config = changes(now, config)
    addresses, diverts = frozenset(now.addresses), frozenset(now.diverts)
    return Wanted(
        read=config,
        held=held,
        users=found,
        issuers=issuers,
        addresses=tuple(a for a in held.addresses if a not in addresses),
        diverts=tuple(d for d in held.diverts if d not in diverts),
        changes=(*of_config, *user_changes(users, found)),
        of_users=len(of_config),
    )


def _certificate_problems(now: Config, config: Config) -> list[Problem]:
    """Return what a start would refuse of certificates that the file did not name before.

    Those that it did are looked at whenever they change, and the log has what is wrong with them.
    """
    known = {endpoint.source for _, endpoint in tls_listeners(now)}
    problems = []
    for path, endpoint in tls_listeners(config):
        source = endpoint.source
        if source is None or source in known:
            continue
        try:
            check_files(source)
        except CertificateError as error:
            key = source.key_of(path, error.part)
            where = config.origins.get(key, "")
            problems.append(Problem(where=where, path=key, text=str(error)))
    return problems


def read_users(config: Config, users: Users, now: Config) -> tuple[Users, list[Problem]]:
    """Return the users of the file, and what is wrong with there being those instead of `users`.

    `config` is what will be in force, `now` what is.

    Raises ConfigError for a file that cannot be used. Blocks; any thread.
    """
    path = config.users_file
    try:
        found = load_users(path, required=config.users_file_required)
    except UsersError as error:
        raise ConfigError([Problem(where=path, path="", text=str(error))]) from None
    elsewhere = other_realms(config)
    problems = exposure_problems(config, has_users=bool(found) or elsewhere)
    if (users or other_realms(now)) and not found and not elsewhere:
        text = (
            "has no users any more, and without users anybody is let in; a start may do that, a"
            " reload does not"
        )
        problems.append(Problem(where=path, path="", text=text))
    old, new = ([user.roles for user in one.values()] for one in (users, found))
    locked_out = lockout_problem(config, new, before=(now, old))
    if locked_out is not None:
        problems.append(replace(locked_out, where=path))
    return found, problems


async def check_against(core: Core, wanted: Wanted, pause: Callable[[], Deferred[None]]) -> None:
    """Raise ConfigError for what contradicts what exists; only what is new is asked about."""
    held = wanted.held
    problems: list[Problem] = []
    steps = contradictions(core, held, wanted.addresses, wanted.diverts)
    for count, problem in enumerate(steps, 1):
        if problem is not None:
            problems.append(problem)
        if count % _CHECK_STEP == 0:
            await pause()
    taps = {tap.stream.name: tap.stream.address for tap in core.registry.all()}
    for stream in held.streams:
        there = taps.get(stream.name, stream.address)
        if there != stream.address:
            path = f"streams.{stream.name}"
            text = f"the stream {stream.name} taps {there}, not {stream.address}; delete it first"
            problems.append(Problem(where=held.origins.get(path, ""), path=path, text=text))
    if problems:
        raise ConfigError(problems)
