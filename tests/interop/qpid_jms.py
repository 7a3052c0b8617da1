"""Fetch Qpid JMS and compile what the tests run with it: `python -m tests.interop.qpid_jms`.

`jms/ivy.xml` names each library with its version, `jms/jars.sha256` what must come. They are
fetched by Apache Ivy, which PySpark has among its own libraries, so that Java is all a machine
needs; `jms/Peer.java` is compiled by one of the fetched libraries, as a Java runtime has no
compiler. All of it goes below `jms/jars`, and is taken from there the next time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gateway.trial.java import NoJavaError, java_home

FOLDER = Path(__file__).resolve().parent / "jms"
JARS = FOLDER / "jars"
FETCH_SECONDS = 180
COMPILE_SECONDS = 60
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"


class NoJmsError(Exception):
    """Qpid JMS cannot be had here; the text says why."""


def install() -> list[str]:
    """Return the command that starts the peer; fetches and compiles what is not there yet.

    Raises NoJmsError.
    """
    java = _java()
    if not _complete(JARS):
        _fetch(java)
    classes = JARS / "classes"
    stamp = classes / "source.sha256"
    source = FOLDER / "Peer.java"
    wanted = _digest(source)
    if not stamp.exists() or stamp.read_text("ascii") != wanted:
        options = ["-17", "-nowarn", "-d", str(classes), "-cp", _path()]
        _run([java, "-cp", _path(), COMPILER, *options, str(source)], COMPILE_SECONDS)
        stamp.write_text(wanted, "ascii")
    # A peer that lives for seconds: what starts soon is better than what runs fast later.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    return [java, *quick, "-cp", os.pathsep.join([str(classes), _path()]), "Peer"]


def _java() -> str:
    try:
        home = java_home()
    except NoJavaError as error:
        raise NoJmsError(str(error)) from error
    found = str(home / "bin" / "java") if home is not None else shutil.which("java")
    assert found is not None, "a Java without a home is on the PATH"
    return found


def _expected() -> dict[str, str]:
    lines = (FOLDER / "jars.sha256").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _path() -> str:
    return os.pathsep.join(str(JARS / name) for name in sorted(_expected()))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _complete(folder: Path) -> bool:
    return all((folder / name).exists() for name in _expected())


def _fetch(java: str) -> None:
    """Fetch the libraries into a folder beside, and move them when each is what it must be."""
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise NoJmsError("there is no Ivy: PySpark, which has it, is not installed")
    with tempfile.TemporaryDirectory(prefix="jms-") as scratch:
        came = Path(scratch) / "came"
        options = ["-ivy", str(FOLDER / "ivy.xml"), "-cache", str(Path(scratch) / "cache")]
        pattern = f"{came}/[artifact]-[revision].[ext]"
        _run([java, "-jar", str(found[-1]), *options, "-retrieve", pattern], FETCH_SECONDS)
        for name, digest in _expected().items():
            path = came / name
            if not path.exists() or _digest(path) != digest:
                raise NoJmsError(f"{name} is not what jars.sha256 says")
        JARS.mkdir(exist_ok=True)
        for name in _expected():
            shutil.move(came / name, JARS / name)


def _run(command: list[str], seconds: float) -> None:
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=seconds, cwd=FOLDER
        )
    except subprocess.CalledProcessError as error:
        told = (error.stdout + error.stderr).strip()[-2000:]
        raise NoJmsError(f"{' '.join(command[:3])} ... failed: {told}") from error
    except subprocess.TimeoutExpired as error:
        raise NoJmsError(f"{' '.join(command[:3])} ... did not end in {seconds} s") from error


def main() -> int:
    try:
        install()
    except NoJmsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
