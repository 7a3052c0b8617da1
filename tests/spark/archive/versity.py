"""Build an S3 server whose objects are files: `python -m tests.spark.archive.versity`.

moto, which most tests have, forgets everything when it ends. versitygw keeps objects in a folder,
and conditions of puts by locks, so that it can be killed and started again. It is a module of Go:
`versitygw/go.mod` names its version, `versitygw/go.sum` what must come. It is built where Go is,
once, below `versitygw/bin`; tests take it from there and fetch nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "versitygw"
BINARY = FOLDER / "bin" / "versitygw"
STAMP = BINARY.with_suffix(".sha256")
COMMAND = "github.com/versity/versitygw/cmd/versitygw"
ANSWER_SECONDS = 30
#: Two minutes on two busy cores, most of it for libraries of clouds that it can stand before.
BUILD_SECONDS = 900


class NoVersityError(Exception):
    """There is no versitygw here; the text says why and how to get it."""


def built() -> Path:
    """Return the program that was built before; raises NoVersityError."""
    if not BINARY.exists() or not STAMP.exists() or STAMP.read_text("ascii") != _wanted():
        raise NoVersityError(
            "no versitygw, an S3 server that can be killed, was built here: where Go is, `make "
            "test` builds it, or by hand `python -m tests.spark.archive.versity`"
        )
    return BINARY


def build() -> Path:
    """Build it unless it is there; returns the program. Raises NoVersityError."""
    try:
        return built()
    except NoVersityError:
        pass
    go = find_go()
    # The Go that is here: another one is not fetched because a module would like it.
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(BINARY)]
    BINARY.parent.mkdir(exist_ok=True)
    try:
        subprocess.run(
            [*command, COMMAND], cwd=FOLDER, env=env, check=True, capture_output=True, text=True,
            timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise NoVersityError(f"go build failed: {error.stderr.strip()[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NoVersityError(f"go build did not end in {BUILD_SECONDS} s") from error
    STAMP.write_text(_wanted(), "ascii")
    return BINARY


def find_go() -> str:
    """Return the command `go`, new enough for the module; raises NoVersityError."""
    found = re.search(r"^go (\d+)\.(\d+)", (FOLDER / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert found is not None, "go.mod names no version of Go"
    least = (int(found[1]), int(found[2]))
    go = shutil.which("go")
    if go is None:
        raise NoVersityError(f"versitygw needs Go {least[0]}.{least[1]}, and no go is on the PATH")
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, check=True, text=True,
            timeout=ANSWER_SECONDS, env={**os.environ, "GOTOOLCHAIN": "local"}, cwd=FOLDER.parent,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NoVersityError(f"{go} does not tell its version: {error}") from error
    version = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if version is None or (int(version[1]), int(version[2])) < least:
        raise NoVersityError(
            f"versitygw needs Go {least[0]}.{least[1]}, and {go} is {answer.stdout.strip()}"
        )
    return go


def _wanted() -> str:
    """Return what a build was made of, in short."""
    parts = ((FOLDER / name).read_bytes() for name in ("go.mod", "go.sum"))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main() -> int:
    """Build it; exit status 1 with the reason where that cannot be."""
    try:
        build()
    except NoVersityError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
