"""The checks find what they are for: each kind of violation is planted and found."""

from __future__ import annotations

import pytest

from tests.architecture.checks import (
    ambient,
    cycles,
    impure,
    large_files,
    lone_bases,
    long_functions,
    modules_in_rings,
    printing,
    rooms_in_rings,
    stale_shells,
    too_many_positional,
    undocumented,
    unfinished,
    unmade_bases,
    weakly_named,
    wide_lines,
    wrong_layer,
)
from tests.architecture.test_tree import CODE, MODULES, Check
from tests.architecture.tree import Source


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
        ("gateway/spark/pyspark_sluicegate/offsets.py", "from gateway.model import errors"),
        ("protocols/amqp/session.py", "from protocols.stomp.session import StompSession"),
        ("protocols/stomp/session.py", "from gateway.broker import Gateway"),
        ("protocols/transport/sniff.py", "def f():\n    from gateway.model import errors"),
        ("gateway/broker/gateway.py", "from protocols.transport import sniff"),
    ],
)
def test_an_import_against_the_layers_is_found(path: str, line: str) -> None:
    modules = MODULES | {
        "gateway.broker",
        "gateway.queues.queue",
        "protocols.stomp.session",
        "protocols.transport.sniff",
        "storage.journal",
    }
    assert len({text.split(" ")[0] for text in wrong_layer(planted(path, line), modules)}) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("gateway/queues/queue.py", "from gateway.model import errors"),
        ("gateway/store/persistence.py", "from storage import errors"),
        ("gateway/assembly/app.py", "from protocols.transport import sniff"),
        ("protocols/amqp/session.py", "from protocols.amqp import frames"),
        ("storage/files.py", "import os"),
    ],
)
def test_an_import_along_the_layers_is_fine(path: str, line: str) -> None:
    modules = MODULES | {"protocols.transport.sniff", "protocols.amqp.frames"}
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
        (impure, "gateway/broker/gateway.py", "import time"),
        (impure, "gateway/broker/gateway.py", "if TYPE_CHECKING:\n    import twisted"),
        (impure, "storage/aside.py", "import threading"),
        (impure, "storage/files.py", "import threading"),
        (impure, "gateway/a_new_room/thing.py", "from os import path"),
        (ambient, "gateway/broker/gateway.py", "def f():\n    return time.monotonic()"),
        (ambient, "storage/writer.py", "def f(clock=time.monotonic): ..."),
        (ambient, "gateway/cli/run.py", "import time\nnow = time.time()"),
        (ambient, "storage/files.py", "import os\nx = os.urandom(4)"),
        (ambient, "gateway/logs/lines.py", "import datetime\nx = datetime.datetime.now()"),
        (ambient, "gateway/listening/listeners.py", "from twisted.internet import reactor"),
        (large_files, "storage/files.py", "x = 1\n" * 500),
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
        (impure, "protocols/transport/shell.py", "from twisted.internet import defer"),
        (ambient, "gateway/assembly/ambient.py", "import os\nx = os.urandom(4)"),
        (ambient, "gateway/__main__.py", "from twisted.internet import reactor"),
        (large_files, "tests/storage/test_files.py", "x = 1\n" * 700),
        (long_functions, "storage/files.py", "def f():\n" + "    x = 1\n" * 59),
        (too_many_positional, "storage/files.py", "def f(a, b, c, d, e, *, g, h): ..."),
        (weakly_named, "storage/files.py", "class Database: ..."),
    ],
)
def test_what_is_allowed_is_not_found(check: Check, path: str, line: str) -> None:
    assert list(check(planted(path, line))) == []


def test_a_shell_that_says_it_is_pure_is_found() -> None:
    shell = Source("protocols/transport/timers.py", '"""Timers. Pure."""\nimport twisted\n')
    assert list(impure(shell)) == [
        "protocols/transport/timers.py:1 says that it is pure, and stands in SHELLS"
    ]


def test_a_shell_that_takes_less_by_now_is_found() -> None:
    here = [
        planted("storage/lock.py", "import os"),
        *(s for s in CODE if s.path != "storage/lock.py"),
    ]
    assert list(stale_shells(here)) == ["SHELLS: storage.lock takes no fcntl any more"]


def test_a_missing_docstring_is_found() -> None:
    assert list(undocumented(Source("storage/files.py", "x = 1\n")))


def test_a_cycle_is_found_and_a_late_import_is_none() -> None:
    first = planted("storage/a.py", "from storage import b")
    second = planted("storage/b.py", "from storage.c import thing")
    third = planted("storage/c.py", "import storage.a")
    assert cycles([first, second, third]) == [["storage.a", "storage.b", "storage.c"]]
    late = planted("storage/c.py", "def f():\n    import storage.a")
    assert cycles([first, second, late]) == []


def test_a_ring_through_imports_for_types_is_found() -> None:
    first = planted("storage/a.py", "from storage import b")
    second = planted("storage/b.py", "if TYPE_CHECKING:\n    from storage.a import A")
    assert cycles([first, second]) == []
    assert modules_in_rings([first, second]) == {"storage": 2}


def test_rooms_that_import_one_another_are_found() -> None:
    rooms = [Source(f"gateway/{name}/__init__.py", '"""A room."""') for name in "ab"]
    there = planted("gateway/a/x.py", "from gateway.b import y")
    back = planted("gateway/b/z.py", "if TYPE_CHECKING:\n    from gateway.a.x import X")
    other = planted("gateway/b/y.py")
    assert rooms_in_rings([*rooms, there, other]) == []
    assert rooms_in_rings([*rooms, there, other, back]) == [["gateway.a", "gateway.b"]]


def test_a_class_with_one_heir_is_found() -> None:
    base = planted("storage/a.py", "class A: ...", "class P: ...")
    heir = planted("storage/b.py", "class B(A): ...", "class Q(P): ...", "x: P")
    assert list(lone_bases([base, heir])) == ["storage.a.A"]
    assert list(lone_bases([base, heir, planted("storage/c.py", "class C(A): ...")])) == []


def test_what_a_base_leaves_open_is_found() -> None:
    base = planted("storage/a.py", "def f():\n    raise NotImplementedError")
    assert unmade_bases([base]) == {"storage.a": 1}
