"""The rules of the house: the layers, the shells, the limits, and what is still to be mended.

Everything is pure unless it is named here. `SHELLS` lists each module that touches the world with
what it takes of it; the tables under "still to be mended" only ever grow shorter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PACKAGES: Final = ("gateway", "protocols", "storage")

FUNCTION_LINES_MAX: Final = 60
FILE_LINES_MAX: Final = 600
TEST_FILE_LINES_MAX: Final = 900
LINE_MAX: Final = 100
POSITIONAL_MAX: Final = 5

#: Who may import whom among our own modules. The longest matching prefix names the layer; a layer
#: may always import itself. `*` is anything.
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "storage": (),
    "gateway": (),
    "gateway.model": (),
    "gateway.spark": (),
    "gateway.logs": (),
    "gateway.twist_plugin": (),
    "gateway.addresses": ("gateway.model",),
    "gateway.queues": ("gateway.model",),
    "gateway.paging": ("gateway.model", "gateway.addresses", "gateway.queues"),
    "gateway.selectors": ("gateway.model",),
    "gateway.streams": ("gateway.model",),
    "gateway.config": ("gateway.model", "gateway.addresses", "gateway.selectors"),
    "gateway.security": (
        "gateway.model",
        "gateway.addresses",
        "gateway.summing",
        "gateway.threads",
    ),
    "gateway.summing": (),
    "gateway.threads": (),
    "gateway.last_resort": (),
    "gateway.descriptors": ("storage",),
    "gateway.transactions": ("gateway.model", "gateway.queues"),
    "gateway.broker": (
        "gateway.model",
        "gateway.addresses",
        "gateway.queues",
        "gateway.selectors",
        "gateway.transactions",
        "gateway.streams",
        "gateway.paging",
    ),
    "gateway.disk": ("gateway.model",),
    "gateway.upkeep": (
        "gateway.broker",
        "gateway.config",
        "gateway.disk",
        "gateway.disk_watch",
        "gateway.slices",
        "gateway.told_full",
        "storage",
    ),
    "gateway.slices": (),
    "gateway.told_full": ("gateway.broker", "gateway.config"),
    "gateway.lingering": ("storage",),
    "gateway.lagging": (
        "gateway.broker",
        "gateway.compacting",
        "gateway.config",
        "gateway.model",
    ),
    "gateway.slow_store": (),
    "gateway.compacting": ("gateway.config", "gateway.model", "storage"),
    "gateway.datadir": (
        "gateway.model",
        "gateway.orphans",
        "gateway.page_rescue",
        "gateway.paged_recovery",
        "gateway.persistence",
        "storage",
    ),
    "gateway.page_rescue": (
        "gateway.model",
        "gateway.orphans",
        "gateway.paged_recovery",
        "gateway.persistence",
        "storage",
    ),
    "gateway.places": ("gateway.config",),
    "gateway.orphans": ("gateway.model", "gateway.persistence"),
    "gateway.clock": (),
    "gateway.reactor_lag": ("gateway.model",),
    "gateway.ages": ("gateway.queues",),
    "gateway.process_figures": ("gateway.model",),
    "gateway.timed_files": ("gateway.model", "storage"),
    "gateway.certificates": ("gateway.config",),
    "gateway.first_steps": ("gateway.config",),
    "gateway.heap": (),
    "gateway.steady": (),
    "gateway.disk_watch": ("gateway.broker", "gateway.disk", "storage"),
    "gateway.persistence": (
        "gateway.model",
        "gateway.paged_recovery",
        "gateway.streams",
        "storage",
    ),
    "gateway.paged_recovery": ("gateway.model", "storage"),
    "gateway.restart": ("*",),
    "gateway.scrub_plan": ("*",),
    "gateway.scrubber": ("storage",),
    "gateway.management": ("*",),
    "gateway.cli": ("*",),
    "gateway.app": ("*",),
    "gateway.core": ("*",),
    "gateway.declared": ("*",),
    "gateway.reload": ("*",),
    "gateway.service": ("*",),
    "gateway.listeners": ("*",),
    "gateway.connection_log": ("gateway.summing", "gateway.model", "protocols.shell"),
    "gateway.__main__": ("*",),
    "protocols": (),
    "protocols.sniff": (),
    "protocols.departures": (),
    "protocols.mistakes": (),
    "protocols.patience": (),
    "protocols.reads": ("protocols.departures", "protocols.patience", "protocols.unread"),
    "protocols.speaking": ("gateway.model",),
    "protocols.shell": (
        "gateway.model",
        "protocols.departures",
        "protocols.patience",
        "protocols.reads",
        "protocols.speaking",
        "protocols.timers",
        "protocols.tls",
        "protocols.unread",
    ),
    "protocols.stuck": ("gateway.model",),
    "protocols.timers": (),
    "protocols.tls": (),
    "protocols.unread": ("gateway.model",),
    "protocols.secure": ("protocols.shell", "protocols.tls"),
    "protocols.convert": ("gateway.model",),
    "protocols.amqp": (
        "gateway.model",
        "protocols.convert",
        "protocols.mistakes",
        "protocols.patience",
        "protocols.shell",
        "protocols.stuck",
    ),
    "protocols.stomp": (
        "gateway.model",
        "protocols.convert",
        "protocols.mistakes",
        "protocols.patience",
        "protocols.shell",
        "protocols.stuck",
    ),
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
    "gateway.app": "os random structlog time twisted",
    "gateway.core": "os structlog twisted",
    "gateway.service": "gc os resource signal structlog time twisted",
    "gateway.listeners": "ssl structlog twisted",
    "gateway.certificates": "ssl structlog tempfile",
    "gateway.twist_plugin": "twisted",
    "gateway.declared": "structlog",
    "gateway.reload.applying": "twisted",
    "gateway.reload.reading": "twisted",
    "gateway.reload.reloads": "structlog twisted",
    "gateway.logs": "queue structlog threading twisted zope",
    # The process and its limits: memory, descriptors, its end, its pulse.
    "gateway.heap": "ctypes os",
    "gateway.descriptors": "os resource",
    "gateway.process_figures": "os resource",
    "gateway.last_resort": "os threading time",
    "gateway.reactor_lag": "twisted",
    "gateway.steady": "structlog twisted",
    "gateway.alarm": "twisted",
    "gateway.threads": "threading twisted",
    "gateway.summing": "twisted",
    "gateway.waits": "select",
    # The store as the process runs it.
    "gateway.datadir": "fcntl os queue",
    "gateway.places": "os",
    "gateway.first_steps": "os",
    "gateway.disk_watch": "structlog twisted",
    "gateway.compacting": "structlog",
    "gateway.lagging": "structlog",
    "gateway.slow_store": "structlog",
    "gateway.restart": "structlog",
    "gateway.scrub_plan": "twisted",
    "gateway.scrubber": "structlog twisted",
    "gateway.upkeep": "structlog",
    "gateway.told_full": "structlog",
    "gateway.connection_log": "structlog",
    # Configuration is read from files and the environment in one place.
    "gateway.config.load": "os",
    # A hash of a password is worked out on a thread.
    "gateway.security.around": "structlog twisted",
    # Streams wait for rows (Deferreds).
    "gateway.streams.ports": "twisted",
    "gateway.streams.registry": "twisted",
    # HTTP.
    "gateway.management.addresses_api": "twisted",
    "gateway.management.answers": "twisted",
    "gateway.management.api_request": "twisted",
    "gateway.management.audit": "structlog",
    "gateway.management.channel": "twisted",
    "gateway.management.chunks": "twisted zope",
    "gateway.management.config_api": "twisted",
    "gateway.management.connections_api": "twisted",
    "gateway.management.diverts_api": "twisted",
    "gateway.management.durable": "twisted",
    "gateway.management.http": "twisted",
    "gateway.management.messages_api": "twisted",
    "gateway.management.queues_api": "twisted",
    "gateway.management.streams_api": "twisted",
    "gateway.management.views": "twisted",
    "gateway.management.wire": "structlog twisted",
    # Commands and the bench are processes of their own.
    "gateway.cli": (
        "click gc os pyspark queue rich select shutil signal socket ssl subprocess tempfile "
        "threading time"
    ),
    # The data source runs inside Spark.
    "gateway.spark.client": "ssl time",
    "gateway.spark.offsets": "pyspark",
    "gateway.spark.pyspark_sluicegate": "logging",
    "gateway.spark.rows": "logging pyspark",
    "gateway.spark.source": "logging os pyspark time",
    # The one transport shell under both protocols. Patience reads a clock that tests replace.
    "protocols.departures": "select twisted",
    "protocols.patience": "time",
    "protocols.secure": "ssl twisted zope",
    "protocols.shell": "twisted zope",
    "protocols.timers": "twisted",
    "protocols.tls": "ssl",
    "protocols.unread": "twisted",
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
    "gateway.app",
    "gateway.service",
    "gateway.__main__",
    "gateway.cli.amqp_client",
    "gateway.cli.bench_drive",
    "gateway.cli.bench_store",
    "gateway.cli.demo",
    "gateway.cli.demo_senders",
    "gateway.cli.scratch",
    "gateway.cli.scrub",
    "gateway.cli.slow_disk",
    "gateway.spark.client",
    "gateway.spark.source",
    # It bounds how long a process that ends may take, when nothing else of the process works.
    "gateway.last_resort",
    # Its clock is an argument; the default is the only one that is ever used outside the tests.
    "protocols.patience",
)
#: The only modules that name the reactor.
REACTOR_ALLOWED: Final = frozenset({"gateway.service", "gateway.__main__"})
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


# --- still to be mended: each of these only ever grows shorter ---

#: Modules in rings, counted by package, imports for types included.
RINGS: Final[Mapping[str, int]] = {
    "gateway.broker": 26,
    "gateway.management": 2,
    "gateway.queues": 11,
    "protocols.amqp": 17,
    "protocols.stomp": 2,
}
#: The aim for the length of a file, in lines; the modules above it.
FILE_LINES_AIM: Final = 500
LONG_FILES: Final = (
    "gateway.app",
    "gateway.broker.gateway",
    "gateway.broker.pager",
    "gateway.broker.producer",
    "gateway.listeners",
    "gateway.model.section_scan",
    "gateway.paging.backlog",
    "gateway.persistence",
    "gateway.queues.queue",
    "gateway.streams.registry",
    "protocols.amqp.connection",
    "protocols.amqp.incoming",
    "protocols.amqp.session",
    "protocols.amqp.transactions",
    "protocols.shell",
    "protocols.stomp.parser",
    "protocols.stomp.session",
    "storage.arrow_log",
    "storage.journal",
)
#: Classes that exist for one heir: an object cut into storeys.
LONE_BASES: Final = (
    "gateway.broker.choosing.Choosing",
    "gateway.broker.inventory.Inventory",
    "gateway.broker.parts.Parts",
    "gateway.broker.spread.Spread",
    "gateway.queues.conduct.Conduct",
    "gateway.queues.grouped.Grouped",
    "gateway.queues.ring.Ringed",
    "gateway.queues.seats.Seated",
    "gateway.queues.selecting.Searched",
    "gateway.queues.sharing.Sharing",
    "gateway.queues.storing.Serialized",
)
#: `raise NotImplementedError`: what a base leaves to its heirs.
UNMADE: Final[Mapping[str, int]] = {
    "gateway.cli.demo_senders": 1,
    "gateway.queues.grouped": 2,
    "gateway.queues.ring": 1,
    "gateway.queues.selecting": 3,
    "gateway.queues.storing": 1,
}
