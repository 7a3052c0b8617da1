"""What the doctor asks of files and of the process: modes, users, certificates, limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.config.listeners import tls_listeners
from gateway.config.tree import Config
from gateway.listening.certificates import check_listener
from gateway.security.around import read_users
from gateway.security.users import Users, UsersError

_NUMBER: Final = re.compile(r"process ([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or directory that is there: its path, its key, its mode; whether it has a secret."""

    path: str
    about: str
    mode: int
    secret: bool = True
    directory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """What a listener's own check finds of its certificates: an event of the log, and the fact."""

    listener: str
    event: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The process of a gateway: who runs it, and its limits; None: there is no such limit."""

    number: int
    root: bool
    descriptors: int | None
    dumps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the checks judge; `problems` are files that cannot be used, by what they are for."""

    users: Users
    files: tuple[FileFacts, ...] = ()
    certificates: tuple[CertificateFacts, ...] = ()
    process: ProcessFacts | None = None
    problems: tuple[tuple[str, str], ...] = field(default_factory=tuple)


def gather(config: Config, owner: str | None, now_ms: int) -> Facts:
    """Ask files and process; `owner` is what the lock of the data directory says."""
    problems: list[tuple[str, str]] = []
    users: Users = {}
    try:
        users = read_users(config.users_file, required=config.users_file_required)
    except UsersError as error:
        problems.append((config.users_file, str(error)))
    certificates = []
    for listener, endpoint in tls_listeners(config):
        source = endpoint.source
        assert source is not None, "a TLS listener has a source"
        for found in check_listener(source, listener, now_ms=now_ms):
            text = ", ".join(f"{name} {value}" for name, value in found.facts.items())
            if found.event == "certificate.refused":
                problems.append((listener, found.facts["reason"]))
            else:
                certificates.append(
                    CertificateFacts(listener=listener, event=found.event, text=text)
                )
    return Facts(
        users=users,
        files=tuple(_files(config)),
        certificates=tuple(certificates),
        process=_process(owner),
        problems=tuple(problems),
    )


def _files(config: Config) -> Iterator[FileFacts]:
    paths = [(config.users_file, "authentication", True)]
    if config.file is not None:
        paths.append((config.file, "the configuration", False))
    if config.audit.key_file is not None:
        paths.append((config.audit.key_file, "audit.key-file", True))
    if config.ldap.password_file:
        paths.append((config.ldap.password_file, "ldap.password-file", True))
    for listener, endpoint in tls_listeners(config):
        if endpoint.source is not None and endpoint.source.key:
            paths.append((endpoint.source.key, listener, True))
    for path, about, secret in paths:
        mode = _mode(path)
        if mode is not None:
            yield FileFacts(path=path, about=about, mode=mode, secret=secret)
    places = (
        (config.data_directory, "data-directory"),
        (config.journal_directory, "journal-directory"),
        (config.paging_directory, "paging-directory"),
    )
    for path, about in places:
        mode = _mode(path)
        if mode is not None:
            yield FileFacts(path=path, about=about, mode=mode, directory=True)


def _mode(path: str) -> int | None:
    try:
        return Path(path).stat().st_mode & 0o7777
    except OSError:
        return None


def _process(owner: str | None) -> ProcessFacts | None:
    found = None if owner is None else _NUMBER.search(owner)
    if found is None:
        return None
    proc = Path("/proc") / found[1]
    try:
        status = (proc / "status").read_text("ascii", "replace")
        limits = (proc / "limits").read_text("ascii", "replace")
        pattern = Path("/proc/sys/kernel/core_pattern").read_text("ascii", "replace")
    except OSError:
        return None
    user = re.search(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE)
    files = re.search(r"^Max open files\s+(\d+|unlimited)", limits, re.MULTILINE)
    cores = re.search(r"^Max core file size\s+(\d+|unlimited)", limits, re.MULTILINE)
    return ProcessFacts(
        number=int(found[1]),
        root=user is not None and user[1] == "0",
        descriptors=int(files[1]) if files and files[1].isdigit() else None,
        dumps=_dumps(proc, cores[1] if cores else "0", piped=pattern.startswith("|")),
    )


def _dumps(proc: Path, cores: str, *, piped: bool) -> bool:
    """Whether a crash writes memory. A pipe gets it whatever the limit, less what is filtered."""
    try:
        kept = int((proc / "coredump_filter").read_text("ascii").strip() or "0", 16)
    except (OSError, ValueError):
        kept = 1
    return kept != 0 and (piped or cores != "0")


def effective_root() -> bool:
    """Whether this very command runs as root."""
    return os.geteuid() == 0
