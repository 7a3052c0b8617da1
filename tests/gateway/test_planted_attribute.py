"""A new attribute of queues is one row: with it planted in a copy, everything that follows has it.

The copy is run in a process of its own, since the tables are made when their modules are read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import importlib.util, sys

def plant(name, before, row):
    spec = importlib.util.find_spec(name)
    source = spec.loader.get_source(name)
    assert source.count(before) == 1
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(source.replace(before, row + before), spec.origin, "exec"), module.__dict__)

plant(
    "gateway.model.attributes",
    "    consumer_priority: Annotated[",
    '    planted_size: Annotated[int, Unit.BYTES, within(0, 9_000), "bytes of it"] = 7\\n'
    '    planted_key: Annotated[str, text_problem, "its property"] = ""\\n',
)
plant(
    "gateway.addresses.settings",
    "    auto_delete_queues: Annotated[",
    '    default_planted_size: Annotated[int, DefaultOf("planted_size")] = 7\\n',
)

from gateway.config.check import HostFacts, build
from gateway.config.diff import changes
from gateway.config.errors import ConfigError
from gateway.config.sources import Layers
from gateway.model.attributes import PLAIN, changed, from_note, to_note
from tests.management.core import Core

HOST = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")

def read(size, default):
    layers = Layers()
    layers.add_file(
        f'[addresses.a]\\nqueues = [{{ name = "q", planted-size = "{size}" }}]\\n'
        f'[address-settings."#"]\\ndefault-planted-size = "{default}"\\n',
        "f.toml",
    )
    return build(layers, HOST)

def refused(*sizes):
    try:
        read(*sizes)
    except ConfigError as error:
        return [f"{problem.path}: {problem.text}" for problem in error.problems]

# The configuration: keys, readers, rules, what a reload reaches, what explains it.
config = read("1K", "2K")
assert config.addresses[0].queues[0].attributes == {"planted_size": 1024}
(told,) = [e for e in config.address_settings.explain("x") if e.key == "default-planted-size"]
assert (told.value, told.match) == (2048, "#")
beyond = "10240 is out of range; it lies between 0 and 9000"
assert refused("10K", "10K") == [
    'address-settings."#".default-planted-size: ' + beyond,
    "addresses.a.queues[0].planted-size: " + beyond,
]
assert [(c.key, c.reach.value) for c in changes(config, read("3K", "4K"))] == [
    ('address-settings."#".default-planted-size', "new-queues"),
    ("addresses.a.queues.q.planted-size", "at-once"),
]

# The API: what a body may say, what is refused, what is shown; a queue takes the default.
core = Core(*config.address_settings.entries)
status, shown = core.ask("POST", "/api/v1/queues", {"name": "q"})
assert (status, shown["plantedSize"], shown["plantedKey"]) == (201, 2048, None)
status, shown = core.ask("PATCH", "/api/v1/queues/q", {"plantedSize": 5, "plantedKey": "k"})
assert (status, shown["plantedSize"], shown["plantedKey"]) == (200, 5, "k")
for wrong in (9001, "x", None):
    status, shown = core.ask("PATCH", "/api/v1/queues/q", {"plantedSize": wrong})
    assert (status, shown["code"]) == (422, "bad-value")
    assert "plantedSize" in shown["message"]

# The journal's note.
said = changed(PLAIN, {"planted_size": 8, "planted_key": "k"})
assert to_note(said) == {"planted_size": 8, "planted_key": "k"}
assert from_note(to_note(said)) == said
try:
    from_note({"planted_size": -1})
except ValueError as error:
    assert "planted_size -1 is out of range" in str(error)
else:
    raise AssertionError
print("grown")
"""


def test_a_planted_row_is_in_configuration_api_view_note_and_reach() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "grown\n"
