"""Start the order board: a gateway, a worker, a Spark query, a page server. `make web` runs this.

    python examples/web [--port 8080]

All listen on loopback. Ctrl-C ends all of them; when one ends by itself, all end, and its last
words are shown. `k` and Enter kill the gateway by SIGKILL, and start it again the next time. `w`
and Enter have the worker stand still, and go on the next time. The page shows what that does.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from board import PASSCODE, say
from parts import POLL_SECONDS, Part, PartFailedError, progress, tail, wait_until_ready

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # a checkout that is not installed

from gateway.trial.java import NoJavaError, spark_environment  # noqa: E402  (after the path)
from gateway.trial.scratch import (  # noqa: E402
    HOST,
    GatewayFailedError,
    ScratchGateway,
    free_ports,
    importing_environment,
)

FOLDER = Path(__file__).resolve().parent


class Gateway:
    """The board's gateway: with users, killed and started again when asked."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.inner = ScratchGateway(
            folder / "gateway", settings=given.set, config=FOLDER / "gateway.toml"
        )
        self.inner.port = given.gateway_port or self.inner.port
        self.inner.management_port = given.management_port or self.inner.management_port
        self._killed = False

    def add_user(self, name: str) -> str:
        """Let a user in, with a password that nobody has chosen; returns it."""
        password = secrets.token_urlsafe(24)
        self.inner.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "gateway", "user", "add", name]
        subprocess.run(
            [*command, "--password-stdin", "--replace", "--data", str(self.inner.data)],
            input=f"{password}\n",
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
            env=importing_environment(),
        )
        return password

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it; it does not hear the Ctrl-C that the launcher hears."""
        with deaf():
            self.inner.start()
        try:
            yield
        finally:
            self.inner.stop()

    def kill(self) -> None:
        """End it by SIGKILL, or start it again."""
        if self._killed:
            with deaf():
                self.inner.start()
            say("gateway: is back, with everything that it had confirmed")
        else:
            self.inner.kill()
            say("gateway: killed (SIGKILL); k and Enter start it again")
        self._killed = not self._killed

    def check(self) -> None:
        """Raise PartFailedError when it ended by itself."""
        if not self._killed and not self.inner.running():
            raise PartFailedError(f"The gateway ended by itself.{tail(self.inner.log)}")


@contextmanager
def deaf() -> Iterator[None]:
    """Have processes that are started meanwhile ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def python_path() -> dict[str, str]:
    """Return an environment in which Spark finds Java and the data source of this checkout."""
    env = spark_environment(importing_environment())
    if importlib.util.find_spec("pyspark_sluicegate") is None:
        env["PYTHONPATH"] += os.pathsep + str(ROOT / "gateway" / "spark")
    return env


def perform(stack: ExitStack, given: argparse.Namespace) -> None:
    """Start everything, then watch it until somebody ends it."""
    folder = Path(
        given.data or stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-web-"))
    )
    folder.mkdir(parents=True, exist_ok=True)
    gateway = Gateway(folder, given)
    page_passcode, board_passcode = gateway.add_user("page"), gateway.add_user("board")
    stack.enter_context(gateway.running())
    port = gateway.inner.port
    say(f"gateway: AMQP, STOMP and WebSocket on {HOST}:{port}, API {gateway.inner.url}")

    ours = {**importing_environment(), PASSCODE: board_passcode}

    def begin(name: str, *arguments: str, env: dict[str, str] = ours) -> Part:
        part = Part(name, folder / f"{name.replace(' ', '-')}.log", *arguments, env=env)
        stack.callback(part.stop)
        return part

    page = given.port or free_ports(1)[0]
    to_gateway = ("--port", str(port), "--login", "board")
    server = begin(
        "page server",
        str(FOLDER / "server.py"),
        *("--port", str(page), "--gateway-port", str(port), "--login", "page"),
        env={**ours, PASSCODE: page_passcode},
    )
    worker = begin("worker", str(FOLDER / "worker.py"), *to_gateway)
    spark = begin(
        "Spark query",
        str(FOLDER / "totals.py"),
        *("--url", gateway.inner.url, "--login", "board", "--run", run_name(folder)),
        *("--checkpoint", str(folder / "checkpoint")),
        env={**python_path(), PASSCODE: board_passcode},
    )
    wait_until_ready([server, worker], lambda _: None)
    say(f"\n    Open http://{HOST}:{page}/\n")
    wait_until_ready([spark], progress("Spark starts; orders are safe already, totals come soon:"))
    say("\nSpark reads the orders. Ctrl-C ends everything.")
    say("k and Enter kill the gateway, or start it again.")
    say("w and Enter have the worker stand still, or go on.\n")
    watch(gateway, worker, [server, worker, spark])


def run_name(folder: Path) -> str:
    """Return the name of the checkpoint's totals: another one for each new folder."""
    file = folder / "run"
    if not file.exists():
        file.write_text(secrets.token_hex(8), "utf-8")
    return file.read_text("utf-8")


def watch(gateway: Gateway, worker: Part, parts: Sequence[Part]) -> None:
    """Do what is typed, until a part ends."""
    typed: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            typed.put(line.strip())

    threading.Thread(target=read, daemon=True, name="keyboard").start()
    while True:
        with contextlib.suppress(queue.Empty):
            word = typed.get(timeout=POLL_SECONDS)
            if word == "k":
                gateway.kill()
            elif word == "w":
                worker.pause()
        gateway.check()
        for part in parts:
            part.check()


def require_libraries() -> None:
    """Refuse by name when a library is not installed."""
    names = {"stomp": "stomp.py", "pyspark": "pyspark"}
    missing = [names[module] for module in names if importlib.util.find_spec(module) is None]
    if missing:
        text = f"The order board needs {' and '.join(missing)}: "
        raise SystemExit(text + "pip install 'sluicegate[client,spark]'.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, help="of the page; a free one when it is left out")
    parser.add_argument("--gateway-port", type=int, help="for AMQP, STOMP and WebSocket")
    parser.add_argument("--management-port", type=int, help="for the HTTP API")
    parser.add_argument("--data", help="a folder to go on with; a new one, deleted at the end")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the gateway"
    )
    given = parser.parse_args()

    require_libraries()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            stack.callback(say, "Everything is stopped.")
            perform(stack, given)
    except KeyboardInterrupt:
        return
    except (PartFailedError, GatewayFailedError, NoJavaError) as error:
        raise SystemExit(f"\n{error}\nThe order board has ended.") from error


if __name__ == "__main__":
    main()
