"""From a file, the environment and `--set` to a `Config`: what touches the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Final

from gateway.config.check import HostFacts, build
from gateway.config.errors import ConfigError, Problem
from gateway.config.sources import Layers
from gateway.config.tree import Config

#: What is there without an `[acceptors.*]` table; `--set` edits it, a file's tables replace it.
DEFAULT_ACCEPTORS: Final = {
    "all": {"endpoint": "tcp:5672:interface=127.0.0.1", "protocols": ["AMQP", "STOMP", "WS"]},
    "stomp": {"endpoint": "tcp:61613:interface=127.0.0.1", "protocols": ["STOMP"]},
}
SERVICE_DATA: Final = "/var/lib/sluicegate"
_CGROUP_LIMIT: Final = FilePath("/sys/fs/cgroup/memory.max")


def load(
    file: str | None,
    sets: Sequence[str] = (),
    *,
    environment: Mapping[str, str],
    host: HostFacts,
    data_directory: str | None = None,
) -> Config:
    """Read and check a configuration; raises ConfigError with every problem.

    Args:
        file: path of a TOML file, or None for the defaults.
        sets: `KEY=VALUE` texts, later ones win.
        environment: where `SLUICEGATE__...` variables are looked for.
        host: facts of this machine.
        data_directory: of `--data`; wins over everything, relative to the working directory.
    """
    layers = Layers()
    layers.tree["acceptors"] = {name: dict(table) for name, table in DEFAULT_ACCEPTORS.items()}
    if file is not None:
        layers.add_file(_read(file), file)
        file = os.path.join(host.working_directory, file)  # noqa: PTH118 - stays a text
    layers.add_environment(environment)
    for text in sets:
        layers.add_set(text)
    if data_directory is not None:
        layers.tree["data-directory"] = os.path.abspath(data_directory)  # noqa: PTH100
        layers.origins[("data-directory",)] = "--data"
    return build(layers, host, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a process has its configuration from, as it was told at its start.

    Options and environment are those of the start, so that they win over the file each time.
    """

    file: str | None
    sets: tuple[str, ...]
    data_directory: str | None
    environment: Mapping[str, str]
    host: HostFacts

    @classmethod
    def of(cls, file: str | None, sets: Sequence[str], data_directory: str | None) -> Source:
        """Return the source that a command line names, with this process' environment."""
        environment = dict(os.environ)
        return cls(
            file=file,
            sets=tuple(sets),
            data_directory=data_directory,
            environment=environment,
            host=host_facts(environment),
        )

    def read(self) -> Config:
        """Read and check it; raises ConfigError with every problem. Blocks."""
        return load(
            self.file,
            self.sets,
            environment=self.environment,
            host=self.host,
            data_directory=self.data_directory,
        )


def _read(file: str) -> str:
    try:
        return FilePath(file).read_text(encoding="utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 at byte {error.start}"
    raise ConfigError([Problem(where=file, path="", text=problem)])


def host_facts(environment: Mapping[str, str]) -> HostFacts:
    """Ask the machine."""
    return HostFacts(
        memory_bytes=_memory_bytes(),
        working_directory=os.getcwd(),  # noqa: PTH109
        data_directory=default_data_directory(environment),
    )


def default_data_directory(environment: Mapping[str, str]) -> str:
    """Return where data goes: what systemd gives a service, else the user's data folder (XDG)."""
    if environment.get("STATE_DIRECTORY"):
        return environment["STATE_DIRECTORY"].split(":")[0]
    if "INVOCATION_ID" in environment or not environment.get("HOME"):
        return SERVICE_DATA
    home = environment.get("XDG_DATA_HOME") or f"{environment['HOME']}/.local/share"
    return f"{home}/sluicegate"


def _memory_bytes() -> int:
    """Return the memory of the machine or of our control group, whichever is smaller."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory
