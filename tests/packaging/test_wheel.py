"""The wheel: what is in it, and that it serves from an environment that has nothing else of ours.

The environment is made empty and gets the wheel by pip. Its dependencies are those of the
environment that runs the tests, seen through a `.pth` file, so that the test needs no network; the
checkout itself is not on its path.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, free_ports

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def run(
    *command: object, cwd: Path, check: bool = True, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env or clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    script = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    name = run(sys.executable, "-c", script, folder, cwd=ROOT).stdout.split()[-1]
    return folder / name


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; returns its folder of commands."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).stdout.strip()
    others = dependencies_folder(tmp_path_factory.mktemp("dependencies"))
    Path(site, "dependencies.pth").write_text(f"{others}\n")
    return folder / "bin"


def dependencies_folder(folder: Path) -> Path:
    """Link all that is installed here, but for our own distribution and the extra [client]."""
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        ours = "sluicegate" in entry.name or entry.suffix == ".pth" or entry.name == "twisted"
        extra = entry.name.split(".")[0] in {"cproton", "cproton_ffi", "proton", "stomp"}
        if not ours and not extra:
            (folder / entry.name).symlink_to(entry)
    # Twisted's plugin folder may hold our plugin from this environment; the wheel brings its own.
    twisted = Path(sysconfig.get_path("purelib"), "twisted")
    (folder / "twisted" / "plugins").mkdir(parents=True)
    for entry in twisted.iterdir():
        if entry.name != "plugins":
            (folder / "twisted" / entry.name).symlink_to(entry)
    for entry in (twisted / "plugins").iterdir():
        if "sluicegate" not in entry.name and entry.suffix == ".py":
            (folder / "twisted" / "plugins" / entry.name).symlink_to(entry)
    return folder


def test_the_wheel_holds_the_packages_and_the_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in (
        "gateway/__init__.py",
        "gateway/py.typed",
        "protocols/py.typed",
        "storage/py.typed",
        "twisted/plugins/sluicegate_plugin.py",
    ):
        assert name in names
    # Either would hide Twisted's own package behind ours.
    assert not names & {"twisted/__init__.py", "twisted/plugins/__init__.py"}
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"gateway", "protocols", "storage", "twisted"}
    # A Spark program has a distribution of its own.
    assert not [name for name in names if name.startswith("gateway/spark")]


def test_the_wheel_names_licence_command_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(info).decode()
        commands = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
        licences = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    assert "License-Expression: Apache-2.0" in metadata
    for extra in ("spark", "client", "java", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    assert "sluicegate = gateway.cli.main:main" in commands
    assert len(licences) == 1


def test_the_command_is_there(environment: Path, tmp_path: Path) -> None:
    assert run(environment / "sluicegate", "version", cwd=tmp_path).stdout.startswith("sluicegate ")


def test_twist_lists_the_plugin_and_its_options(environment: Path, tmp_path: Path) -> None:
    twist = (environment / "python", "-m", "twisted", "sluicegate", "--help")
    assert "--config" in run(*twist, cwd=tmp_path).stdout
    listed = run(environment / "python", "-m", "twisted", "--help", cwd=tmp_path).stdout
    assert "AMQP 1.0 and STOMP" in " ".join(listed.split())


@contextmanager
def serving(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answers(process: subprocess.Popen[str], port: int, path: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return True
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    return False


@pytest.mark.parametrize("form", ["twist", "sluicegate"])
def test_it_serves_and_stops(environment: Path, tmp_path: Path, form: str) -> None:
    port, management = free_ports(2)
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'data-directory = "{tmp_path / "data"}"\n'
        f'[acceptors.all]\nendpoint = "tcp:{port}:interface={HOST}"\n'
        f'[management]\nendpoint = "tcp:{management}:interface={HOST}"\n'
    )
    python = str(environment / "python")
    command = {
        "twist": [python, "-m", "twisted", "sluicegate", "--config", str(config)],
        "sluicegate": [str(environment / "sluicegate"), "run", "-c", str(config)],
    }[form]
    with serving(command, tmp_path) as process:
        ready = answers(process, management, "/readyz", 20)
        if ready:
            url = f"amqp://{HOST}:{port}"
            sent = run(environment / "sluicegate", "send", "a", "hi", "--url", url, cwd=tmp_path)
            assert sent.stdout == "1 message sent to a\n"
            once = ("receive", "a", "--limit", "1", "--url", url)
            assert run(environment / "sluicegate", *once, cwd=tmp_path).stdout == "hi\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert ready, out
    # twist stops the service, then ends by the signal that it was sent.
    assert process.returncode == (-signal.SIGTERM if form == "twist" else 0), out
    stopped = [line for line in out.splitlines() if "gateway.stopped" in line]
    assert [json.loads(line)["clean"] for line in stopped] == [True], out
