"""The rules of the house: the layers, the shells, the limits, and what is still to be mended.

Everything is pure unless it is named here. `SHELLS` lists each module that touches the world with
what it takes of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PACKAGES: Final = ("gateway", "protocols", "storage")

FUNCTION_LINES_MAX: Final = 60
FILE_LINES_MAX: Final = 500
TEST_FILE_LINES_MAX: Final = 900
LINE_MAX: Final = 100
POSITIONAL_MAX: Final = 5

#: Which room may import which. The longest matching prefix names the room; a room may always import
#: itself. `*` is anything. A room stands below those that may import it: there is no way back.
MAY_IMPORT: Final[Mapping[str, tuple[str, ...]]] = {
    # Bytes on disk.
    "storage": (),
    # Words and values that all share, and what they are judged by.
    "gateway": (),
    "gateway.model": (),
    "gateway.addresses": ("gateway.model",),
    "gateway.selectors": ("gateway.model",),
    "gateway.config": ("gateway.addresses", "gateway.model", "gateway.selectors"),
    # The queue core.
    "gateway.queues": ("gateway.model",),
    "gateway.paging": ("gateway.addresses", "gateway.model", "gateway.queues"),
    "gateway.decoding": ("gateway.model",),
    "gateway.streams": ("gateway.decoding", "gateway.model", "gateway.selectors"),
    "gateway.broker.ports": (
        "gateway.model",
        "gateway.queues",
    ),
    "gateway.broker.directory": (
        "gateway.addresses",
        "gateway.broker.ports",
        "gateway.model",
        "gateway.paging",
        "gateway.queues",
        "gateway.selectors",
    ),
    "gateway.broker.pressure": (
        "gateway.addresses",
        "gateway.broker.directory",
        "gateway.broker.ports",
        "gateway.model",
        "gateway.paging",
        "gateway.queues",
    ),
    "gateway.broker.routing": (
        "gateway.addresses",
        "gateway.broker.directory",
        "gateway.broker.ports",
        "gateway.broker.pressure",
        "gateway.model",
        "gateway.paging",
        "gateway.queues",
    ),
    "gateway.broker.operations": (
        "gateway.addresses",
        "gateway.broker.directory",
        "gateway.broker.ports",
        "gateway.broker.pressure",
        "gateway.broker.routing",
        "gateway.model",
        "gateway.paging",
        "gateway.queues",
    ),
    "gateway.broker.consuming": (
        "gateway.broker.directory",
        "gateway.broker.operations",
        "gateway.broker.ports",
        "gateway.broker.pressure",
        "gateway.model",
        "gateway.queues",
        "gateway.selectors",
    ),
    "gateway.broker": (
        "gateway.addresses",
        "gateway.broker.consuming",
        "gateway.broker.directory",
        "gateway.broker.operations",
        "gateway.broker.ports",
        "gateway.broker.pressure",
        "gateway.broker.routing",
        "gateway.model",
        "gateway.queues",
    ),
    # What the core stands on: the process, time, the log, the disk, the store.
    "gateway.process": ("gateway.config", "gateway.model", "storage"),
    "gateway.time": ("gateway.model",),
    "gateway.logs.lines": (),
    "gateway.logs": (
        "gateway.broker",
        "gateway.config",
        "gateway.model",
        "gateway.quotas",
        "protocols.transport.shell",
    ),
    "gateway.disk.judging": ("gateway.model",),
    "gateway.disk": ("gateway.broker", "gateway.disk.judging", "gateway.model", "storage"),
    "gateway.store": (
        "gateway.broker",
        "gateway.config",
        "gateway.model",
        "gateway.paging",
        "gateway.queues",
        "gateway.streams",
        "storage",
    ),
    "gateway.security": (
        "gateway.addresses",
        "gateway.logs.summing",
        "gateway.model",
        "gateway.process.threads",
    ),
    "gateway.tokens": (
        "gateway.config",
        "gateway.logs.summing",
        "gateway.model",
        "gateway.security",
    ),
    "gateway.directory.settings": (),
    "gateway.directory": (
        "gateway.directory.settings",
        "gateway.logs.summing",
        "gateway.model",
        "gateway.process.threads",
        "gateway.security",
    ),
    "gateway.sink": (
        "gateway.addresses",
        "gateway.broker",
        "gateway.model",
    ),
    "gateway.core": (
        "gateway.broker",
        "gateway.config",
        "gateway.disk",
        "gateway.logs",
        "gateway.model",
        "gateway.process",
        "gateway.sink",
        "gateway.store",
        "gateway.streams",
        "gateway.time",
        "storage",
    ),
    "gateway.quotas": ("gateway.addresses", "gateway.model"),
    "gateway.audit.events": (),
    "gateway.audit": ("gateway.audit.events", "storage.files"),
    # The doors.
    "gateway.listening": (
        "gateway.config",
        "gateway.logs",
        "gateway.model",
        "gateway.process",
        "gateway.quotas",
        "gateway.security",
        "gateway.time",
        "protocols",
    ),
    "gateway.reload": (
        "gateway.broker",
        "gateway.config",
        "gateway.core",
        "gateway.listening",
        "gateway.model",
        "gateway.quotas",
        "gateway.security",
        "gateway.tokens",
        "protocols.amqp",
        "protocols.transport",
    ),
    "gateway.management": (
        "gateway.addresses",
        "gateway.broker",
        "gateway.config",
        "gateway.decoding",
        "gateway.disk",
        "gateway.listening",
        "gateway.logs",
        "gateway.model",
        "gateway.queues",
        "gateway.quotas",
        "gateway.reload",
        "gateway.selectors",
        "gateway.sink",
        "gateway.store",
        "gateway.streams",
        "gateway.time",
        "gateway.tokens.realm",
        "protocols.transport",
        "protocols.websocket",
    ),
    # The whole, and the commands.
    "gateway.doctor": (
        "gateway.config",
        "gateway.listening.certificates",
        "gateway.model",
        "gateway.security",
    ),
    "gateway.assembly": ("*",),
    "gateway.trial": (),
    "gateway.demo": ("gateway.trial",),
    "gateway.cli": ("*",),
    "gateway.bench": ("*",),
    "gateway.__main__": ("gateway.cli",),
    "gateway.twist_plugin": (),
    "pyspark_sluicegate.options": (),
    "pyspark_sluicegate.archive": ("pyspark_sluicegate.options",),
    "pyspark_sluicegate": (
        "pyspark_sluicegate.archive",
        "pyspark_sluicegate.options",
        "pyspark_sluicegate.stored",
    ),
    "pyspark_sluicegate.pipelines": (
        "pyspark_sluicegate",
        "pyspark_sluicegate.archive",
        "pyspark_sluicegate.options",
        "pyspark_sluicegate.stored",
    ),
    "pyspark_sluicegate.stored": (),
    # Bytes to calls and back.
    "protocols": (),
    "protocols.transport.sniff": (),
    "protocols.convert": ("gateway.model",),
    "protocols.stuck": ("gateway.model",),
    "protocols.mistakes": (),
    "protocols.transport": ("gateway.model",),
    "protocols.amqp": (
        "gateway.model",
        "protocols.convert",
        "protocols.mistakes",
        "protocols.stuck",
        "protocols.transport",
    ),
    "protocols.stomp": (
        "gateway.model",
        "protocols.convert",
        "protocols.mistakes",
        "protocols.stuck",
        "protocols.transport",
    ),
    "protocols.websocket": ("gateway.model", "protocols.transport"),
}

#: What touches the world: frameworks, threads, clocks, chance, sockets, processes, files, terminals
#: and logs. A module that imports one of these has to stand in SHELLS.
WORLDLY: Final = frozenset(
    [
        "asyncio",
        "click",
        "concurrent",
        "ctypes",
        "fcntl",
        "gc",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "pyspark",
        "queue",
        "random",
        "resource",
        "rich",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "twisted",
        "zope",
    ]
)

#: The shells, and what each may take of the world. An entry that takes less by now fails, so that
#: the list shrinks with the code. A package stands for what lies in it.
SHELLS: Final[Mapping[str, str]] = {
    # The composition: the clock, chance, the reactor and the log are made here and handed down.
    "gateway.assembly.auditing": "structlog",
    "gateway.assembly.adopting": "os structlog subprocess",
    "gateway.assembly.ambient": "os random structlog time",
    "gateway.assembly.access": "structlog",
    "gateway.assembly.app": "structlog twisted",
    "gateway.core.blocking": "twisted",
    "gateway.core.core": "os structlog twisted",
    "gateway.assembly.service": "gc os resource signal structlog time twisted",
    "gateway.listening.listeners": "structlog twisted",
    "gateway.listening.connections": "structlog twisted",
    "gateway.listening.counted": "twisted",
    "gateway.listening.tls": "ssl structlog twisted",
    "gateway.listening.certificates": "ssl structlog",
    "gateway.listening.contexts": "ssl tempfile",
    "gateway.twist_plugin": "twisted",
    "gateway.core.declared": "structlog",
    "gateway.reload.applying": "twisted",
    "gateway.reload.reading": "twisted",
    "gateway.directory.asking": "secrets ssl",
    "gateway.directory.realm": "structlog twisted",
    "gateway.reload.reloads": "structlog twisted",
    "gateway.reload.users_file": "os structlog twisted",
    "gateway.logs.lines": "queue structlog threading twisted zope",
    # The process and its limits: memory, descriptors, its end, its pulse.
    "gateway.doctor.facts": "os",
    "gateway.process.dumps": "resource",
    "gateway.process.heap": "ctypes os",
    "gateway.process.descriptors": "os resource",
    "gateway.process.figures": "os resource",
    "gateway.process.last_resort": "os threading time",
    "gateway.time.lag": "twisted",
    "gateway.time.recurring": "twisted",
    "gateway.time.steady": "structlog twisted",
    "gateway.time.alarm": "twisted",
    "gateway.process.threads": "threading twisted",
    "gateway.logs.summing": "twisted",
    "gateway.time.waits": "select",
    # The store as the process runs it.
    "gateway.store.datadir": "fcntl os queue",
    "gateway.process.places": "os",
    "gateway.assembly.first_steps": "os",
    "gateway.disk.watching": "structlog twisted",
    "gateway.store.compacting": "structlog",
    "gateway.store.lagging": "structlog",
    "gateway.store.hanging": "structlog",
    "gateway.store.restart": "structlog",
    "gateway.store.scrub_plan": "twisted",
    "gateway.store.scrubber": "structlog twisted",
    "gateway.core.upkeep": "structlog",
    "gateway.logs.fullness": "structlog",
    "gateway.logs.connections": "structlog",
    "gateway.logs.quotas": "structlog",
    # Configuration is read from files and the environment in one place.
    "gateway.config.load": "os",
    # The trail is written on a thread.
    "gateway.audit.keys": "os",
    "gateway.audit.thread": "queue threading",
    # A hash of a password is worked out on a thread.
    "gateway.security.around": "structlog twisted",
    # Keys of issuers are fetched over the network.
    "gateway.tokens.fetching": "structlog twisted",
    "gateway.tokens.issuing": "structlog",
    "gateway.security.refusals": "structlog",
    # Streams wait for rows (Deferreds).
    "gateway.streams.blocks": "twisted",
    "gateway.streams.finding": "twisted",
    "gateway.streams.ports": "twisted",
    "gateway.streams.registry": "twisted",
    "gateway.streams.replays": "twisted",
    "gateway.streams.saver": "twisted",
    "gateway.streams.sealing": "twisted",
    "gateway.streams.subscribers": "twisted",
    "gateway.streams.tap": "twisted",
    # The sink waits for threads, the journal and room.
    "gateway.sink.durable": "twisted",
    "gateway.sink.places": "twisted",
    "gateway.sink.ports": "twisted",
    "gateway.sink.publication": "twisted",
    "gateway.sink.sink": "structlog twisted",
    # HTTP.
    "gateway.management.addresses_api": "twisted",
    "gateway.management.answers": "twisted",
    "gateway.management.api_request": "twisted",
    "gateway.management.audit": "structlog",
    "gateway.management.channel": "twisted",
    "gateway.management.door": "twisted",
    "gateway.management.chunks": "twisted zope",
    "gateway.management.config_api": "twisted",
    "gateway.management.connections_api": "twisted",
    "gateway.management.diverts_api": "twisted",
    "gateway.management.http": "twisted",
    "gateway.management.messages_api": "twisted",
    "gateway.management.queues_api": "twisted",
    "gateway.management.sink_api": "twisted",
    "gateway.management.stream_patterns": "twisted",
    "gateway.management.streams_api": "twisted",
    "gateway.management.views": "twisted",
    "gateway.management.wire": "structlog twisted",
    # Commands and the bench are processes of their own.
    "gateway.cli": "click fcntl logging os rich select signal socket ssl time",
    "gateway.bench": (
        "click gc os pyspark queue resource rich select selectors signal socket ssl "
        "subprocess tempfile threading time"
    ),
    "gateway.demo": "click os pyspark rich tempfile threading time",
    "gateway.trial": "os shutil signal socket ssl subprocess tempfile time",
    # The data source runs inside Spark.
    "pyspark_sluicegate.pipelines.dead_letters": "pyspark",
    "pyspark_sluicegate.pipelines.files_source": "pyspark secrets",
    "pyspark_sluicegate.archive.committing": "logging",
    "pyspark_sluicegate.pipelines.letters_source": "pyspark",
    "pyspark_sluicegate.pipelines.redriving": "pyspark",
    "pyspark_sluicegate.pipelines.rollup": "pyspark",
    "pyspark_sluicegate.pipelines.running": "logging os pyspark signal time",
    "pyspark_sluicegate.pipelines.to_kafka": "pyspark",
    "pyspark_sluicegate.archive.writing": "tempfile",
    "pyspark_sluicegate.pipelines.archive": "os pyspark secrets time",
    "pyspark_sluicegate.pipelines.arguments": "os",
    "pyspark_sluicegate.archived": "logging pyspark",
    "pyspark_sluicegate.history": "pyspark",
    "pyspark_sluicegate.missing": "logging",
    "pyspark_sluicegate.client": "ssl time",
    "pyspark_sluicegate.offsets": "pyspark",
    "pyspark_sluicegate.pacing": "socket time",
    "pyspark_sluicegate.pushdown": "pyspark",
    "pyspark_sluicegate.registering": "os pyspark",
    "pyspark_sluicegate.rows": "logging pyspark",
    "pyspark_sluicegate.sink": "logging pyspark",
    "pyspark_sluicegate.source": "logging os pyspark time",
    # The one transport shell under both protocols. Patience reads a clock that tests replace.
    "protocols.transport.departures": "select twisted",
    "protocols.transport.outgoing": "twisted zope",
    "protocols.transport.patience": "time",
    "protocols.transport.secure": "ssl twisted zope",
    "protocols.transport.shell": "twisted",
    "protocols.transport.timers": "twisted",
    "protocols.transport.tls": "ssl",
    "protocols.transport.unread": "twisted",
    # Files, and the threads that wait for the disk.
    "storage.files": "os",
    "storage.lock": "fcntl os",
    "storage.ballast": "threading",
    "storage.page_reads": "queue threading",
    "storage.spares": "threading",
    "storage.writer": "queue threading",
}

#: What takes the clock or chance from the air, called or handed on.
AMBIENT: Final = frozenset(
    [
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.sleep",
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "random.random",
        "random.randint",
        "random.choice",
        "random.shuffle",
        "random.sample",
        "random.randrange",
        "random.Random",
        "random.SystemRandom",
        "uuid.uuid1",
        "uuid.uuid4",
        "os.urandom",
        "os.getrandom",
    ]
)
#: Where a clock or a source of chance is made, to be handed down from there; and what runs in a
#: process of its own.
AMBIENT_ALLOWED: Final = (
    "gateway.assembly.ambient",
    "gateway.assembly.service",
    "gateway.__main__",
    "gateway.cli.amqp_client",
    "gateway.bench.archive",
    "gateway.bench.drive",
    "gateway.bench.history",
    "gateway.bench.spark",
    "gateway.bench.spark_write",
    "gateway.bench.store",
    "gateway.bench.tabs",
    "gateway.bench.tabs_held",
    "gateway.bench.tenants",
    "gateway.demo.command",
    "gateway.demo.senders",
    "gateway.trial.scratch",
    "gateway.cli.audit",
    "gateway.cli.doctor",
    "gateway.cli.scrub",
    "gateway.bench.slow_disk",
    "pyspark_sluicegate.pacing",
    "pyspark_sluicegate.client",
    "pyspark_sluicegate.sink",
    "pyspark_sluicegate.pipelines.archive",
    "pyspark_sluicegate.pipelines.running",
    "pyspark_sluicegate.source",
    # It bounds how long a process that ends may take, when nothing else of the process works.
    "gateway.process.last_resort",
    # Its clock is an argument; the default is the only one that is ever used outside the tests.
    "protocols.transport.patience",
)
#: The only modules that name the reactor.
REACTOR_ALLOWED: Final = frozenset({"gateway.assembly.service", "gateway.__main__"})
WEAK_NAME = re.compile(
    r"(Manager|Handler|Processor|Helper|Util|Utils|Impl|Engine|Component|Data|Info)$"
)
#: Names that the interface of someone else's library prescribes.
NAMES_GIVEN: frozenset[str] = frozenset()

#: Functions that may be longer than FUNCTION_LINES_MAX, each with its reason: a loop over the
#: messages of a run, whose body would cost a call per message if it were cut.
HOT_LOOPS: Mapping[str, str] = {
    "protocols.stomp.parser.Parser._frames": (
        "each of its steps is taken once for each message; a call would cost more than the step"
    ),
}
