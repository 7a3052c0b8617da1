"""Proton's own example programs in C and C++: found on the machine or fetched, and compiled.

Debian and Ubuntu have the sources as `libqpid-proton<N>-dev-examples`, with the libraries and
headers beside them. What is installed is taken; else apt fetches the packages into a scratch
folder and they are unpacked there: nothing is installed and no rights are needed. A machine that
has neither cannot run these tests, and `NoExamplesError` says what is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

#: Behind the root where the packages are unpacked, `/` where they are installed.
EXAMPLES = Path("usr/share/proton/examples")
LIBRARIES = ("core", "proactor", "cpp")
FETCH_SECONDS = 60
COMPILE_SECONDS = 60


class NoExamplesError(Exception):
    """The examples are neither installed nor to be had here; the text says why."""


class Examples:
    """Compiled examples, by the path of their source below the examples' folder."""

    def __init__(self, scratch: Path) -> None:
        """Find or fetch the sources; raises NoExamplesError."""
        self._scratch = scratch
        self._root = Path("/")
        if not _complete(self._root):
            self._root = scratch / "root"
            _fetch(scratch)
        if not _complete(self._root):
            raise NoExamplesError("the packages that apt has do not hold Proton's examples")

    def program(self, source: str) -> Path:
        """Return the program made from a source, such as `c/send.c`."""
        path = self._root / EXAMPLES / source
        made = self._scratch / source.replace("/", "-").rpartition(".")[0]
        if not made.exists():
            compiler = "g++" if path.suffix == ".cpp" else "cc"
            libraries = [_library(self._root, name) for name in LIBRARIES]
            # The old kind of tag: it also counts for what the libraries themselves need.
            paths = {f"-Wl,--disable-new-dtags,-rpath,{library.parent}" for library in libraries}
            include = f"-I{self._root / 'usr/include'}"
            command = [compiler, "-w", include, str(path), *map(str, libraries), *sorted(paths)]
            subprocess.run(
                [*command, "-lpthread", "-o", str(made)], check=True, timeout=COMPILE_SECONDS
            )
        return made


def _complete(root: Path) -> bool:
    parts = [root / EXAMPLES / "c/send.c", root / EXAMPLES / "cpp/client.cpp"]
    parts += [root / "usr/include/proton/proactor.h", root / "usr/include/proton/message.hpp"]
    try:
        for name in LIBRARIES:
            _library(root, name)
    except NoExamplesError:
        return False
    return all(part.exists() for part in parts)


def _library(root: Path, name: str) -> Path:
    found = sorted((root / "usr/lib").rglob(f"libqpid-proton-{name}.so*"))
    if not found:
        raise NoExamplesError(f"there is no libqpid-proton-{name}")
    return found[0]


def _fetch(scratch: Path) -> None:
    for tool in ("apt-get", "apt-cache", "dpkg", "cc", "g++"):
        if shutil.which(tool) is None:
            raise NoExamplesError(
                "Proton's examples are not installed (libqpid-proton*-dev-examples and "
                f"libqpid-proton-cpp*-dev), and without {tool} they cannot be fetched"
            )
    listed = _run(["apt-cache", "search", "--names-only", "^libqpid-proton"], scratch)
    pattern = r"^(libqpid-proton(?:-\w+)?\d+(?:-dev(?:-examples)?)?) "
    names = re.findall(pattern, listed, re.MULTILINE)
    if not any(name.endswith("-examples") for name in names):
        raise NoExamplesError("apt knows no package of Proton's examples (after apt-get update)")
    packages = scratch / "packages"
    packages.mkdir()
    _run(["apt-get", "download", *names], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(scratch / "root")], scratch)


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=FETCH_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise NoExamplesError(f"{' '.join(command[:2])} failed: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise NoExamplesError(f"{' '.join(command[:2])} did not end") from error
    return done.stdout
