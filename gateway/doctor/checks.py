"""What is unsafe or unhealthy of a configuration and of what was asked for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.config.endpoints import Endpoint
from gateway.config.tree import MANAGEMENT, Config
from gateway.doctor.facts import Facts
from gateway.doctor.findings import Finding
from gateway.model.objects import Kind as ObjectKind
from gateway.security.verifiers import ITERATIONS

SKEW_SECONDS: Final = 5
#: What `sluicegate user add` makes.
ARGON2_KIB: Final = 19_456
ARGON2_TIMES: Final = 2
#: Descriptors that the gateway needs beside those of its clients.
OWN_DESCRIPTORS: Final = 100
_OTHERS_READ: Final = 0o044
_OTHERS_WRITE: Final = 0o022
_OTHERS: Final = 0o077
_ARGON2: Final = re.compile(r"m=(\d+),t=(\d+)")


def judge(config: Config, facts: Facts) -> list[Finding]:
    """Return what is found of a configuration and its files."""
    return [
        *_doors(config, facts),
        *_users(config, facts),
        *_files(facts),
        *_certificates(facts),
        *_audit(config, facts),
        *_limits(config),
        *_process(config, facts),
    ]


def _found(code: str, about: str, text: str) -> Finding:
    return Finding(code=code, about=about, text=text)


def _listeners(config: Config) -> Iterator[tuple[str, Endpoint, bool, frozenset[str]]]:
    """Yield path, endpoint, whether anybody is let in, and the origins that are allowed."""
    for one in config.acceptors:
        path = f"acceptors.{one.name}"
        yield path, one.endpoint, one.allow_anonymous, one.allowed_origins
    if config.management.enabled:
        management = config.management
        yield MANAGEMENT, management.endpoint, False, management.allowed_origins


def _doors(config: Config, facts: Facts) -> Iterator[Finding]:
    exposed = False
    for path, endpoint, anonymous, origins in _listeners(config):
        if not endpoint.loopback:
            reach = f"{endpoint.shown} is reachable from other machines"
            if not facts.users:
                exposed = True
                yield _found("open-to-the-network", path, f"{reach}, and there are no users")
            if not endpoint.tls:
                exposed = True
                yield _found("plain-text-to-the-network", path, f"{reach} without TLS")
            if anonymous and facts.users:
                exposed = True
                yield _found("anonymous-from-the-network", path, f"{reach}, and needs no login")
            if path == MANAGEMENT and config.metrics.enabled and not facts.users:
                yield _found("metrics-open", path, f"{reach}, and `/metrics` needs no login")
        elif anonymous and facts.users:
            yield _found("anonymous-allowed", path, f"{endpoint.shown} needs no login")
        if "*" in origins:
            yield _found("any-origin", f"{path}.allowed-origins", "`*` is any site")
    if config.allow_insecure and not exposed:
        yield _found("allow-insecure", "allow-insecure", "is true, and no listener needs it")


def _users(config: Config, facts: Facts) -> Iterator[Finding]:
    if not facts.users:
        if not facts.problems:
            yield _found("no-users", config.users_file, "has no users")
        return
    if not config.security_settings:
        names = ", ".join(sorted(facts.users)[:5])
        yield _found("no-security-settings", "security-settings", f"no table; users: {names}")
    elif not any(config.api_roles.admin & user.roles for user in facts.users.values()):
        names = ", ".join(sorted(config.api_roles.admin))
        yield _found("no-administrator", config.users_file, f"no user has a role of: {names}")
    for user in facts.users.values():
        cost = _ARGON2.search(user.password.reveal())
        if cost and (int(cost[1]) < ARGON2_KIB or int(cost[2]) < ARGON2_TIMES):
            text = f"argon2 with {cost[1]} KiB and {cost[2]} passes"
            yield _found("weak-password-hash", f"users.{user.name}", text)
        for mechanism, verifier in user.verifiers.items():
            if verifier.iterations < ITERATIONS:
                text = f"{mechanism} with {verifier.iterations} iterations of {ITERATIONS}"
                yield _found("weak-password-hash", f"users.{user.name}", text)


def _files(facts: Facts) -> Iterator[Finding]:
    for about, text in facts.problems:
        yield _found("file-unusable", about, text)
    for file in facts.files:
        shown = f"{file.path} has mode {file.mode:o}"
        if file.directory:
            if file.mode & _OTHERS:
                yield _found("directory-open-to-others", file.about, shown)
            continue
        if file.mode & _OTHERS_WRITE:
            yield _found("file-writable-by-others", file.about, shown)
        if file.secret and file.mode & _OTHERS_READ:
            yield _found("file-readable-by-others", file.about, shown)


def _certificates(facts: Facts) -> Iterator[Finding]:
    for one in facts.certificates:
        code = one.event.replace(".", "-").replace("_", "-")
        yield _found(code, one.listener, one.text)


def _audit(config: Config, facts: Facts) -> Iterator[Finding]:
    audit = config.audit
    if audit.enabled is False and facts.users:
        yield _found("audit-off", "audit.enabled", "is false, and there are users")
    elif audit.key_file is None and (facts.users or audit.enabled):
        yield _found("audit-without-key", "audit.key-file", "is not written")


def _limits(config: Config) -> Iterator[Finding]:
    free, used = config.min_disk_free, config.max_disk_usage
    if free == -1 and used in (-1, None):
        yield _found("disk-limit-off", "min-disk-free", "is -1, and max-disk-usage says nothing")
    for kind in ObjectKind:
        if getattr(config, f"user_max_{kind.value}") == -1:
            yield _found("user-limit-off", f"user-max-{kind.value}", "is -1")


def _process(config: Config, facts: Facts) -> Iterator[Finding]:
    process = facts.process
    if process is None:
        return
    about = f"process {process.number}"
    if process.root:
        yield _found("runs-as-root", about, "the gateway runs as root")
    if process.dumps:
        yield _found("core-dumps-on", about, "a crash would write its memory")
    wanted = sum(one.connections_allowed for one in config.acceptors)
    wanted += config.management.connections_allowed + OWN_DESCRIPTORS
    if process.descriptors is not None and process.descriptors < wanted:
        text = f"may have {process.descriptors} open files, and {wanted} are allowed for"
        yield _found("few-descriptors", about, text)


# ---- what a running gateway says


def judge_running(said: Mapping[str, Mapping[str, Any]], now_ms: int) -> list[Finding]:
    """Return what is found of the answers of a running gateway, by path."""
    return list(_running(said, now_ms))


def _running(said: Mapping[str, Mapping[str, Any]], now_ms: int) -> Iterator[Finding]:
    ready = said.get("/readyz", {})
    told = str(ready.get("message", ready.get("code", "")))
    if ready.get("status") != "ready" and ready:
        yield _found("not-ready", "/readyz", told)
    elif ready.get("code"):
        yield _found("under-pressure", "/readyz", told)
    if ready.get("auditFails"):
        yield _found("audit-fails", "/readyz", str(ready["auditFails"]))
    for stream in ready.get("archiveLags") or ():
        yield _found("archive-lags", "/readyz", f"the archive of {stream} is far behind")
    config = said.get("/api/v1/config", {})
    for key in config.get("needsRestart") or ():
        yield _found("not-in-force", str(key), "has another value in the file")
    refused = config.get("refused")
    if refused:
        texts = [str(one.get("message", "")) for one in refused.get("problems", ())]
        yield _found("reload-refused", str(config.get("file") or ""), "; ".join(texts[:5]))
    clock = said.get("/api/v1/clock", {})
    ahead = clock.get("aheadSeconds", 0)
    if clock.get("distrusted"):
        text = f"the wall clock is {ahead} s ahead of broker time"
        yield _found("clock-distrusted", "/api/v1/clock", text)
    wall_ms = clock.get("brokerTimeMs", now_ms) + ahead * 1000
    skew = (wall_ms - now_ms) / 1000
    if abs(skew) > SKEW_SECONDS:
        text = f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this one"
        yield _found("clock-skewed", "the gateway", text)
    for one in said.get("/api/v1/scrub", {}).get("damage") or ():
        place = f"{one.get('file')} at offset {one.get('offset')}"
        yield _found("stored-data-damaged", place, str(one.get("what", "")))
