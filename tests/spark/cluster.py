"""A Spark cluster on loopback: a master and two workers, from what the package pyspark brings."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from gateway.trial.scratch import HOST, free_ports

_CLASSES = "org.apache.spark.deploy"
#: A JVM that starts takes seconds; a machine that starves it gets a lot more.
UP_SECONDS = 120.0


@dataclass
class Cluster:
    """Where the master is, and its workers' processes.

    Attributes:
        url: for `spark.master`.
        workers: processes; each starts its executors as children.
    """

    url: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_executors(self) -> int:
        """Kill the JVMs of all executors that there are; returns how many."""
        found = [pid for worker in self.workers for pid in _children(worker.pid)]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        return len(found)

    def kill_an_executor(self) -> int:
        """Kill one executor's JVM as a lost machine would; returns its process id."""
        end = time.monotonic() + UP_SECONDS
        while time.monotonic() < end:
            for worker in self.workers:
                for pid in _children(worker.pid):
                    os.kill(pid, 9)
                    return pid
            time.sleep(0.1)
        raise AssertionError("no executor came up")


def _children(pid: int) -> list[int]:
    """Return the JVMs of executors below a worker, which is started through a shell."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(folder.name))
    return found


@contextmanager
def spark_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Start a master and two workers of one core each; ends them, and what they started."""
    port, page = free_ports(2)
    env = {**environment, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
    env["SPARK_MASTER_OPTS"] = env["SPARK_WORKER_OPTS"] = "-Dspark.ui.reverseProxy=false"
    with ExitStack() as stack:
        master = ["master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_process(folder / "master.log", master, env))
        cluster = Cluster(f"spark://{HOST}:{port}")
        for number in range(2):
            worker = ["worker.Worker", "--host", HOST, "--webui-port", "0", "--cores", "1"]
            worker += ["--memory", "640m", "--work-dir", str(folder / f"work{number}")]
            log = folder / f"worker{number}.log"
            cluster.workers.append(stack.enter_context(_process(log, [*worker, cluster.url], env)))
        _wait_for_workers(f"http://{HOST}:{page}/json/")
        yield cluster


@contextmanager
def _process(
    log: Path, arguments: list[str], env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    name, *rest = arguments
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(script), f"{_CLASSES}.{name}", *rest],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _wait_for_workers(url: str) -> None:
    end = time.monotonic() + UP_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.read().count(b'"ALIVE"') >= 3:  # the master says so of itself, too
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("the workers did not come up")
