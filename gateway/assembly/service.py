"""Running the gateway: `sluicegate run` and `twist sluicegate` share it.

With `__main__` the only place that names the reactor. Exit statuses: 0 clean stop, 64
configuration, 69 a port that cannot be had, 70 a fault of ours, 74 data directory or disk, 75
already running.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

import structlog
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ReactorNotRunning
from twisted.python import usage

from gateway import __version__
from gateway.assembly.app import GatewayService, build
from gateway.assembly.first_steps import first_steps
from gateway.config.errors import ConfigError
from gateway.config.load import Source
from gateway.config.tree import Config, LogFormat, LoggingConfig
from gateway.core.core import EX_IOERR, Reactor
from gateway.listening.certificates import keep_quiet_about_names
from gateway.listening.listeners import ListenError
from gateway.logs.lines import LineWriter, bridge_twisted, configure
from gateway.process.dumps import keep_memory_out_of_dumps
from gateway.process.heap import keep_heap
from gateway.process.last_resort import FATAL_SECONDS, LastResort, cause_of
from gateway.process.places import check_directories, describe_os_error
from gateway.reload.reloads import Again
from gateway.time.steady import tell_gaps, use_steady_time
from protocols.transport.patience import SHARE_SECONDS
from storage.errors import LockedError, StorageError

EX_CONFIG: Final = 64
EX_RUNNING: Final = 75
#: Messages are many, live short and have no cycles: looking for cycles every 700 objects, as Python
#: does by default, is work for nothing.
GC_THRESHOLDS: Final = (100_000, 50, 100)
#: How long a thread waits before it is given its turn. The reactor lets go and takes again at the
#: end of each turn, which begins the wait of others anew: a writer that has to wait for longer than
#: the share of a busy peer [protocols.transport.patience] comes to the disk by chance alone.
SWITCH_SECONDS: Final = SHARE_SECONDS * 0.8

_log = structlog.get_logger()

#: From a signal to the end: the disk may hang for 120 s before that is a fault, then as above.
STOP_SECONDS: Final = 150.0

Say = Callable[[str], None]
#: code, text, exit status.
Complain = Callable[[str, str, int], None]
#: Reads and checks the configuration; raises ConfigError.
Read = Callable[[], Config]


def run_gateway(config: Config, *, read: Read, say: Say, complain: Complain) -> int:
    """Run until a signal or a fatal error; returns the exit status.

    Args:
        config: read and checked.
        read: reads it once more, when a reload is asked for.
        say: takes the lines of the start banner.
        complain: is told why the gateway ended, when it did not end cleanly.
    """
    from twisted.internet import reactor  # noqa: PLC0415 - importing it installs it

    harden()
    sys.unraisablehook = keep_quiet_about_names(sys.unraisablehook)
    any_reactor: Reactor = reactor
    use_steady_time(any_reactor, time.monotonic)
    writer = set_up_logging(config)
    bridge_twisted()
    try:
        last = LastResort()
    except RuntimeError as error:
        complain("cannot-run", f"The gateway cannot start: {cause_of(error)}.", os.EX_SOFTWARE)
        return os.EX_SOFTWARE
    run = Run(reactor, complain, last)
    try:
        if run.start(config, lambda service: _ready(service, say), again_of(read, writer)):
            any_reactor.run()
    finally:
        writer.close()
    return run.status


class Run:
    """One life of the gateway in a reactor; `status` is its exit status.

    `last` sees to it that the process ends in time: a disk that hangs holds whoever waits for it.
    """

    def __init__(self, reactor: Reactor, complain: Complain, last: LastResort) -> None:
        self.status = 0
        self._last = last
        self._reactor = reactor
        self._complain = complain

    def start(
        self, config: Config, on_ready: Callable[[GatewayService], None], again: Again
    ) -> bool:
        """Build and start the gateway, to stop with the reactor; False when it cannot start.

        From here on SIGHUP has it read its configuration `again`.
        """
        gc.set_threshold(*GC_THRESHOLDS)  # a store of many objects has none to collect
        try:
            check_directories(config)
            service = build(self._reactor, config, self.fatal, again, alarm=self._last.failed)
            hear_hang_up(self._reactor, service.reloads.hear, self._stop_reactor)
            service.on_ready = lambda: self._ready(service, on_ready)
            self._reactor.addSystemEventTrigger("before", "shutdown", self._stop, service)
            service.startService()
        except (ConfigError, ListenError) as error:
            self._fail("bad-configuration", str(error), EX_CONFIG)
        except LockedError as error:
            self._fail("already-running", str(error), EX_RUNNING)
        except StorageError as error:
            self._fail("bad-data-directory", str(error), EX_IOERR)
        except OSError as error:
            self._fail("bad-data-directory", describe_os_error(error, config), EX_IOERR)
        except MemoryError as error:
            self._fail("cannot-run", f"The gateway cannot start: {cause_of(error)}.", EX_IOERR)
        return self.status == 0

    def _ready(self, service: GatewayService, on_ready: Callable[[GatewayService], None]) -> None:
        tell_gaps(self._reactor)
        on_ready(service)

    def fatal(self, status: int, text: str) -> None:
        """The gateway cannot go on: say why once, and stop."""
        self._last.arm(FATAL_SECONDS, status)
        if self.status == 0:
            self.status = status
            try:
                self._fail("store-failed" if status == EX_IOERR else "cannot-run", text, status)
                self._last.told = True
            finally:
                self._reactor.callWhenRunning(self._stop_reactor)

    def _fail(self, code: str, text: str, status: int) -> None:
        self.status = status
        self._complain(code, text, status)

    def _stop_reactor(self) -> None:
        try:
            self._reactor.stop()
        except ReactorNotRunning:
            # A signal was quicker.
            return

    def _stop(self, service: GatewayService) -> Deferred[None]:
        # Whoever asks a second time does not want to wait for the drain.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self._last.arm(STOP_SECONDS, EX_IOERR)
        return service.stopService()


def _ready(service: GatewayService, say: Say) -> None:
    tune()
    for line in banner(service):
        say(line)


def tune() -> None:
    """Tell who looks after memory and threads what this process is like, once all is set up."""
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_heap()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def make_uuid() -> bytes:
    """Return 16 bytes that no other journal file has."""
    return os.urandom(16)


def harden() -> None:
    """Keep files private, memory out of core dumps, and room for many connections."""
    os.umask(0o077)
    keep_memory_out_of_dumps()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hear_hang_up(reactor: Reactor, reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """Answer SIGHUP by reading the configuration again: by default it would end the process.

    Where it means that the terminal is gone the gateway stops, in order.
    """
    on_terminal = sys.stderr.isatty()

    def told(*_: object) -> None:
        gone = on_terminal and not sys.stderr.isatty()
        reactor.callFromThread(stop if gone else reload)

    signal.signal(signal.SIGHUP, told)


def again_of(read: Read, writer: LineWriter) -> Again:
    """Return how a reload reads the configuration, and changes the log."""
    return Again(read=read, relog=lambda logging: set_log(writer, logging))


def set_up_logging(config: Config) -> LineWriter:
    """Send log lines to standard error: for people on a terminal, else JSON, unless told."""
    writer = LineWriter(sys.stderr)
    set_log(writer, config.logging)
    return writer


def set_log(writer: LineWriter, logging: LoggingConfig) -> None:
    """Write what `[logging]` says, as it says, from now on."""
    terminal = sys.stderr.isatty()
    human = logging.format is LogFormat.HUMAN or (logging.format is LogFormat.AUTO and terminal)
    configure(
        writer.write,
        wall=time.time,
        level=logging.level.value,
        human=human,
        colours=terminal and not os.environ.get("NO_COLOR"),
    )


def banner(service: GatewayService) -> list[str]:
    """Return what a person sees when the gateway is ready."""
    config = service.config
    fresh = service.core is not None and not service.core.recovered.get("records")
    limit = f"{config.global_max_size >> 20} MiB" if config.global_max_size >= 0 else "none"
    login = "any login or none" if service.gate.open else "login needed"
    data = _short(config.data_directory) + (" (new)" if fresh else "")
    lines = [f"sluicegate {__version__}  data {data}   limits: memory {limit}{_disk_kept(service)}"]
    rows = []
    for acceptor, listener in zip(config.acceptors, service.acceptors, strict=True):
        names = ", ".join(sorted(_SHOWN[p.value] for p in acceptor.protocols))
        reach = "this machine only" if acceptor.endpoint.loopback else "reachable from elsewhere"
        if acceptor.endpoint.tls:
            reach = f"TLS, {reach}"
        anonymous = acceptor.allow_anonymous and not service.gate.open
        rows.append((names, listener.address, reach, "any login or none" if anonymous else login))
    if service.management is not None:
        scheme = "https" if config.management.endpoint.tls else "http"
        rows.append(("management", f"{scheme}://{service.management.address}", "", ""))
    wide = [max(len(row[n]) for row in rows) for n in range(2)] if rows else [0, 0]
    for names, address, reach, who in rows:
        facts = ", ".join(part for part in (reach, who) if part)
        lines.append(f"  {names:<{wide[0]}}  {address:<{wide[1]}}  {facts}".rstrip())
    speak_amqp = [
        (acceptor.endpoint, listener.address)
        for acceptor, listener in zip(config.acceptors, service.acceptors, strict=True)
        if any(p.value == "AMQP" for p in acceptor.protocols)
    ]
    return lines + first_steps(speak_amqp, login=not service.gate.open)


def _disk_kept(service: GatewayService) -> str:
    """Return how much of the disk stays free, and whether that is so."""
    if service.core is None:
        return ""
    monitor = service.core.disk.monitor
    if monitor.floor < 0:
        return ", disk none"
    full = " (FULL: nothing can be sent)" if monitor.full else ""
    return f", disk keeps {monitor.floor >> 20} MiB free{full}"


_SHOWN: Final = {"AMQP": "AMQP 1.0", "STOMP": "STOMP", "WS": "WebSocket"}


def _short(path: str) -> str:
    home = os.environ.get("HOME", "")
    return f"~{path[len(home) :]}" if home and path.startswith(home + "/") else path


# ---- twist


class Options(usage.Options):
    """Options of `twist sluicegate`; the same as those of `sluicegate run`."""

    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, "The configuration file."],
        ["data", None, None, "The data directory; wins over the file."],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sets: list[str] = []
        self.gateway: Config
        self.read: Read

    def opt_set(self, assignment: str) -> None:
        """One setting, KEY=VALUE: a dotted key and a TOML value. May be repeated."""
        self.sets.append(assignment)

    def postOptions(self) -> None:
        """Read the configuration; what is wrong with it is wrong usage."""
        source = Source.of(self["config"], self.sets, self["data"])
        self.read = source.read
        try:
            self.gateway = source.read()
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None


class TwistService(Service):
    """The gateway as `twist` runs it: what cannot start ends the process with our exit status."""

    def __init__(self, config: Config, read: Read) -> None:
        from twisted.internet import reactor  # noqa: PLC0415 - importing it installs it

        self._reactor: Reactor = reactor
        self._config = config
        self._read = read
        self._writer = set_up_logging(config)
        self._run = Run(reactor, self._complain, LastResort())

    def startService(self) -> None:
        """Start; raises SystemExit with our status when that cannot be."""
        super().startService()  # type: ignore[no-untyped-call]
        use_steady_time(self._reactor, time.monotonic)
        again = again_of(self._read, self._writer)
        if not self._run.start(self._config, lambda _: tune(), again):
            self._writer.close()
            raise SystemExit(self._run.status)
        self._reactor.addSystemEventTrigger("after", "shutdown", self._leave)

    def _leave(self) -> None:
        self._writer.close()
        if self._run.status:
            # twist always exits with 0 after a stop; scripts are promised more than that.
            os._exit(self._run.status)

    def stopService(self) -> Deferred[Any]:
        """The reactor's shutdown stops the gateway; see `Run.start`."""
        return maybeDeferred(super().stopService)

    @staticmethod
    def _complain(code: str, text: str, _: int) -> None:
        sys.stderr.write(f"error: {code}: {text}\n")


def makeService(options: Options) -> TwistService:
    """Return the service that `twist sluicegate` runs."""
    return TwistService(options.gateway, options.read)
