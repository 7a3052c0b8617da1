"""The rules of the house, checked on the syntax tree of every module.

Layers point one way, pure modules stay pure, nothing takes the clock or chance from the air, and no
function or file grows past its limit. The checks take sources as text, so that the second half of
this file can plant each kind of violation and see it found.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gateway", "protocols", "storage")

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
TEST_FILE_LINES_MAX = 900
LINE_MAX = 100
POSITIONAL_MAX = 5

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

#: Modules that hold no framework, clock, thread, chance or log.
PURE = re.compile(
    r"^(gateway\.(model|addresses|queues|paging|selectors)(\.\w+)?"
    r"|gateway\.(broker|transactions|disk)"
    r"|gateway\.config\.(?!files?$|load(er)?$)\w+"
    r"|gateway\.streams\.(stream|streams|subscription|offsets?|plan)"
    r"|gateway\.management\.(router|metrics)"
    r"|protocols\.(sniff|convert)"
    r"|protocols\.(amqp|stomp)\.\w+"
    r"|storage\.(errors|record|recovery|batch|compaction|cursor))$"
)
IMPURE_IMPORTS = frozenset(
    [
        "twisted",
        "socket",
        "ssl",
        "select",
        "selectors",
        "threading",
        "multiprocessing",
        "asyncio",
        "concurrent",
        "subprocess",
        "time",
        "random",
        "secrets",
        "structlog",
        "logging",
    ]
)
#: Calls that take the clock or chance from the air, wherever they stand in our packages.
AMBIENT_CALLS = frozenset(
    [
        "time.time",
        "time.time_ns",
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
        "uuid.uuid1",
        "uuid.uuid4",
        "os.urandom",
    ]
)
#: Where a clock or a source of chance is made, to be handed down from there; and the bench's client
#: process, which needs a date for STOMP's `expires`.
AMBIENT_ALLOWED = frozenset(
    {"gateway.app", "gateway.service", "gateway.__main__", "gateway.cli.bench_drive"}
)
REACTOR_ALLOWED = frozenset({"gateway.service", "gateway.__main__"})
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


@dataclass(frozen=True, slots=True)
class Source:
    """One module: its path from the root, its text and its tree."""

    path: str
    text: str

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    @property
    def in_packages(self) -> bool:
        return self.path.split("/")[0] in PACKAGES


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def sources(*folders: str) -> list[Source]:
    """Return every Python file below these folders of the checkout."""
    return [
        Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and full name of all that a module imports, `from x import y` as `x` and `x.y`."""
    parts = source.module.split(".")
    package = parts if source.path.endswith("__init__.py") else parts[:-1]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, name
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def layer(module: str) -> str | None:
    """Return the longest entry of MAY_IMPORT that a module lies in."""
    fitting = [name for name in MAY_IMPORT if _within(module, name)]
    return max(fitting, key=len) if fitting else None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def wrong_layer(source: Source, modules: frozenset[str]) -> Iterator[str]:
    """Find imports that point against the layers; `modules` are the names of all our modules."""
    own = layer(source.module)
    if own is None:
        yield f"{source.path}:1 {source.module} belongs to no layer of MAY_IMPORT"
        return
    allowed = MAY_IMPORT[own]
    for line, name in imports(source):
        if name not in modules or name in PACKAGES:
            continue
        # A plain package is what its own text says; its submodules have layers of their own.
        target = layer(name)
        fine = target == own or "*" in allowed or any(_within(name, entry) for entry in allowed)
        if not fine:
            yield f"{source.path}:{line} {own} must not import {name}"


def impure(source: Source) -> Iterator[str]:
    """Find frameworks, clocks, threads, chance and logs in modules that must have none."""
    if not PURE.match(source.module):
        return
    for line, name in imports(source):
        if name.split(".")[0] in IMPURE_IMPORTS:
            yield f"{source.path}:{line} pure module imports {name}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield f"{source.path}:{node.lineno} pure module opens a file"


def ambient(source: Source) -> Iterator[str]:
    """Find calls that take time or chance from the air, and imports of the reactor."""
    if source.module not in AMBIENT_ALLOWED:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                name = ".".join(ast.unparse(node.func).split(".")[-2:])
                if name in AMBIENT_CALLS:
                    yield f"{source.path}:{node.lineno} calls {name}"
    if source.module not in REACTOR_ALLOWED:
        for line, name in imports(source):
            if name == "twisted.internet.reactor":
                yield f"{source.path}:{line} imports the reactor"


def large_files(source: Source) -> Iterator[str]:
    """Find files above the limit of lines."""
    count = len(source.text.splitlines())
    most = FILE_LINES_MAX if source.in_packages else TEST_FILE_LINES_MAX
    if count > most:
        yield f"{source.path}:1 has {count} lines; the limit is {most}"


def wide_lines(source: Source) -> Iterator[str]:
    """Find lines above the limit of characters."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > LINE_MAX:
            yield f"{source.path}:{number} has {len(line)} characters; the limit is {LINE_MAX}"


def long_functions(source: Source) -> Iterator[str]:
    """Find functions above the limit of lines."""
    for name, node in functions(source.tree):
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > FUNCTION_LINES_MAX and f"{source.module}.{name}" not in HOT_LOOPS:
            yield (
                f"{source.path}:{node.lineno} {name} has {size} lines; "
                f"the limit is {FUNCTION_LINES_MAX}"
            )


def functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function with its dotted name inside its module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def too_many_positional(source: Source) -> Iterator[str]:
    """Find functions with more positional parameters than a reader of a call can tell apart."""
    for name, node in functions(source.tree):
        count = len(node.args.posonlyargs) + len(node.args.args)
        first = (node.args.posonlyargs + node.args.args)[:1]
        count -= bool(first and first[0].arg in ("self", "cls"))
        if count > POSITIONAL_MAX:
            yield (
                f"{source.path}:{node.lineno} {name} takes {count} positional parameters; "
                f"the limit is {POSITIONAL_MAX}"
            )


def undocumented(source: Source) -> Iterator[str]:
    """Find modules that do not say what they are."""
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield f"{source.path}:1 has no module docstring"


def weakly_named(source: Source) -> Iterator[str]:
    """Find classes whose name says nothing."""
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.ClassDef)
            and WEAK_NAME.search(node.name)
            and f"{source.module}.{node.name}" not in NAMES_GIVEN
        ):
            yield f"{source.path}:{node.lineno} class {node.name}: name what it does"


def printing(source: Source) -> Iterator[str]:
    """Find print calls: commands use click.echo, everything else has no terminal."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{source.path}:{node.lineno} calls print"


def unfinished(source: Source) -> Iterator[str]:
    """Find notes that promise work instead of doing it."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{source.path}:{number} leaves a note: {line.strip()[:60]}"


def cycles(all_sources: Iterable[Source]) -> list[list[str]]:
    """Return groups of modules that import one another when they are loaded, each sorted.

    An import inside a function runs later and is no cycle; neither is the package that every
    submodule loads implicitly.
    """
    by_name = {source.module: source for source in all_sources}
    graph = {name: set(_loaded(source, by_name)) for name, source in by_name.items()}
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def _loaded(source: Source, by_name: Mapping[str, Source]) -> Iterator[str]:
    late = {
        inner
        for _, function in functions(source.tree)
        for inner in range(function.lineno, (function.end_lineno or function.lineno) + 1)
    }
    late |= _type_checking_lines(source.tree)
    for line, name in imports(source):
        inside = name != source.module and not source.module.startswith(name + ".")
        if line not in late and name in by_name and inside:
            yield name


def _type_checking_lines(tree: ast.Module) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in node.body
        for line in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
    }


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return seen


# --- the tree as it is ---

CODE = sources(*PACKAGES)
TESTS = sources("tests")
EXAMPLES = sources("examples")
MODULES = frozenset(source.module for source in CODE)

Check = Callable[[Source], Iterator[str]]
OF_CODE: tuple[Check, ...] = (
    impure,
    ambient,
    large_files,
    wide_lines,
    long_functions,
    too_many_positional,
    undocumented,
    weakly_named,
    printing,
    unfinished,
)
OF_TESTS: tuple[Check, ...] = (undocumented, unfinished, large_files, wide_lines)


def none(findings: Iterable[str]) -> None:
    """Fail with one line for each finding."""
    if listed := list(findings):
        pytest.fail("\n".join(listed), pytrace=False)


@pytest.mark.parametrize("check", OF_CODE, ids=lambda check: check.__name__)
def test_code_keeps(check: Check) -> None:
    none(finding for source in CODE for finding in check(source))


def test_layers_point_one_way() -> None:
    none(finding for source in CODE for finding in wrong_layer(source, MODULES))


def test_there_are_no_import_cycles() -> None:
    assert cycles(CODE) == []


@pytest.mark.parametrize("check", OF_TESTS, ids=lambda check: check.__name__)
def test_tests_and_examples_keep(check: Check) -> None:
    mine = Path(__file__).name
    judged = [
        source
        for source in TESTS + EXAMPLES
        # This file has to spell what it looks for.
        if not (check is unfinished and source.path.endswith(mine))
    ]
    none(finding for source in judged for finding in check(source))


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {(ROOT / source.path).parent for source in TESTS}
    assert not [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()]


def test_every_hot_loop_exists_and_is_long() -> None:
    sizes = {
        f"{source.module}.{name}": (node.end_lineno or 0) - node.lineno + 1
        for source in CODE
        for name, node in functions(source.tree)
    }
    stale = [name for name in HOT_LOOPS if sizes.get(name, 0) <= FUNCTION_LINES_MAX]
    assert not stale, "these are short enough by now, or gone: take them off the list"


def test_packages_say_that_they_are_typed() -> None:
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").exists()] == []


# --- the checks find what they are for ---


def planted(path: str, *lines: str) -> Source:
    return Source(path, "\n".join(('"""A module."""', *lines)) + "\n")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("storage/journal.py", "from gateway.model import errors"),
        ("gateway/model/message.py", "import gateway.queues.queue"),
        ("gateway/model/message.py", "from ..queues import queue"),
        ("gateway/queues/queue.py", "from storage import journal"),
        ("gateway/streams/stream.py", "from storage.journal import Journal"),
        ("gateway/spark/pyspark_sluicegate.py", "from gateway.model import errors"),
        ("protocols/amqp/session.py", "from protocols.stomp.session import StompSession"),
        ("protocols/stomp/session.py", "from gateway.broker import Gateway"),
        ("protocols/sniff.py", "def f():\n    from gateway.model import errors"),
        ("gateway/broker.py", "from protocols import sniff"),
    ],
)
def test_an_import_against_the_layers_is_found(path: str, line: str) -> None:
    modules = MODULES | {
        "gateway.broker",
        "gateway.queues.queue",
        "protocols.stomp.session",
        "protocols.sniff",
        "storage.journal",
    }
    assert len({text.split(" ")[0] for text in wrong_layer(planted(path, line), modules)}) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("gateway/queues/queue.py", "from gateway.model import errors"),
        ("gateway/persistence.py", "from storage import errors"),
        ("gateway/app.py", "from protocols import sniff"),
        ("protocols/amqp/session.py", "from protocols.amqp import frames"),
        ("storage/files.py", "import os"),
    ],
)
def test_an_import_along_the_layers_is_fine(path: str, line: str) -> None:
    modules = MODULES | {"protocols.sniff", "protocols.amqp.frames"}
    assert list(wrong_layer(planted(path, line), modules)) == []


def test_a_module_outside_every_layer_is_found() -> None:
    assert list(wrong_layer(planted("helpers/things.py"), MODULES))


@pytest.mark.parametrize(
    ("check", "path", "line"),
    [
        (impure, "gateway/queues/ring.py", "import time"),
        (impure, "gateway/model/message.py", "from twisted.internet import defer"),
        (impure, "protocols/stomp/parser.py", "def f():\n    import socket"),
        (impure, "storage/record.py", "def f():\n    return open('x')"),
        (ambient, "gateway/cli/run.py", "import time\nnow = time.time()"),
        (ambient, "storage/files.py", "import os\nx = os.urandom(4)"),
        (ambient, "gateway/logs.py", "import datetime\nx = datetime.datetime.now()"),
        (ambient, "gateway/listeners.py", "from twisted.internet import reactor"),
        (large_files, "storage/files.py", "x = 1\n" * 600),
        (wide_lines, "storage/files.py", "x = '" + "y" * 100 + "'"),
        (
            long_functions,
            "storage/files.py",
            "class A:\n    def f(self):\n" + "        x = 1\n" * 60,
        ),
        (too_many_positional, "storage/files.py", "def f(a, b, c, d, e, f): ..."),
        (
            too_many_positional,
            "storage/files.py",
            "class A:\n    def f(self, a, b, c, d, e, f): ...",
        ),
        (weakly_named, "storage/files.py", "class FileManager: ..."),
        (printing, "gateway/cli/run.py", "print('x')"),
        (unfinished, "gateway/cli/run.py", "x = 1  # TODO later"),
    ],
)
def test_a_planted_violation_is_found(check: Check, path: str, line: str) -> None:
    assert list(check(planted(path, line)))


@pytest.mark.parametrize(
    ("check", "path", "line"),
    [
        (impure, "protocols/shell.py", "from twisted.internet import defer"),
        (ambient, "gateway/app.py", "import os\nx = os.urandom(4)"),
        (ambient, "gateway/__main__.py", "from twisted.internet import reactor"),
        (large_files, "tests/storage/test_files.py", "x = 1\n" * 700),
        (long_functions, "storage/files.py", "def f():\n" + "    x = 1\n" * 59),
        (too_many_positional, "storage/files.py", "def f(a, b, c, d, e, *, g, h): ..."),
        (weakly_named, "storage/files.py", "class Database: ..."),
    ],
)
def test_what_is_allowed_is_not_found(check: Check, path: str, line: str) -> None:
    assert list(check(planted(path, line))) == []


def test_a_missing_docstring_is_found() -> None:
    assert list(undocumented(Source("storage/files.py", "x = 1\n")))


def test_a_cycle_is_found_and_a_late_import_is_none() -> None:
    first = planted("storage/a.py", "from storage import b")
    second = planted("storage/b.py", "from storage.c import thing")
    third = planted("storage/c.py", "import storage.a")
    assert cycles([first, second, third]) == [["storage.a", "storage.b", "storage.c"]]
    late = planted("storage/c.py", "def f():\n    import storage.a")
    assert cycles([first, second, late]) == []
