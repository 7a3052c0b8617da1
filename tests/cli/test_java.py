"""The search for a Java that Spark can use, with scripts in the place of Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gateway.trial import java
from gateway.trial.java import LACKING, NoJavaError, java_home, major_version, write_shim


def fake_java(folder: Path, version: str) -> Path:
    """Write a `bin/java` below a folder that claims this version; returns the folder."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    script.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _nothing_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25.0.2", 25)]
)
def test_a_java_tells_its_version(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(fake_java(tmp_path, version) / "bin" / "java") == major


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert major_version(tmp_path / "java") == 0
    (tmp_path / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "java").chmod(0o755)
    assert major_version(tmp_path / "java") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.1")
    path = fake_java(tmp_path / "path", "21.0.1") / "bin"
    assert java_home({"JAVA_HOME": str(home), "PATH": str(path)}) == home


def test_the_java_on_the_path_needs_no_java_home(tmp_path: Path) -> None:
    path = fake_java(tmp_path / "path", "21.0.1") / "bin"
    assert java_home({"PATH": str(path)}) is None


def test_an_unfit_java_home_is_overruled_by_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    good = fake_java(tmp_path / "good", "17.0.2")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == good


def test_no_java_is_named_with_what_was_looked_at(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    older = fake_java(tmp_path / "older", "1.8.0")
    with pytest.raises(NoJavaError) as caught:
        java_home({"JAVA_HOME": str(old), "PATH": str(older / "bin")})
    text = str(caught.value)
    for part in ("Java 17 or later", f"{old} (Java 11)", "(Java 8)", "sluicegate[java]"):
        assert part in text
    with pytest.raises(NoJavaError, match="neither JAVA_HOME nor a java on the PATH"):
        java_home({"PATH": str(tmp_path)})


def test_the_packaged_java_runs_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "a folder" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    real.chmod(0o755)
    monkeypatch.setattr(java, "packaged_java", lambda: real)
    home = java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    assert home == tmp_path / "cache"
    given = ["-Xmx1g", LACKING, "a b", "--add-modules=jdk.other", ""]
    answer = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split("\n")[:-1] == [
        "<-Xmx1g>",
        "<a b>",
        "<--add-modules=jdk.other>",
        "<>",
    ]


def test_the_written_java_is_left_alone_while_it_fits(tmp_path: Path) -> None:
    home = write_shim(Path("/opt/one/java"), tmp_path)
    before = (home / "bin" / "java").stat().st_ino
    write_shim(Path("/opt/one/java"), tmp_path)
    assert (home / "bin" / "java").stat().st_ino == before
    write_shim(Path("/opt/two/java"), tmp_path)
    assert "/opt/two/java" in (home / "bin" / "java").read_text()
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]
