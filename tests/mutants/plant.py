"""Planting: a function's source with one piece replaced takes the function's place for a while.

A mutant names a function and a piece of its text. When the text is not there exactly once, planting
fails: a mutant that no longer mutates anything must not pass for one that was caught. The new code
goes into the old function object, so that every module that imported it runs the mutant.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType

from tests.simulation.world import run_seed


@dataclass(frozen=True, slots=True)
class Mutant:
    """`target` is "module:Class.function"; in its source `old` becomes `new`.

    `run` is what should catch it, given a seed; `first` is where its seeds begin: one that would
    take hundreds is begun a little before the seed that catches it.
    """

    name: str
    target: str
    old: str
    new: str
    run: Callable[[int], object] = run_seed
    first: int = 0


def function_of(target: str) -> FunctionType:
    """Return the function that a target names."""
    module_name, _, path = target.partition(":")
    found: object = importlib.import_module(module_name)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget
    assert isinstance(found, FunctionType), f"{target} is no function"
    return found


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Run the mutant in place of the function that it was made from."""
    function = function_of(mutant.target)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.old) == 1, (
        f"{mutant.name}: {mutant.old!r} is {source.count(mutant.old)} times in {mutant.target}"
    )
    scope: dict[str, object] = {}
    code = compile(source.replace(mutant.old, mutant.new), f"<mutant: {mutant.name}>", "exec")
    exec(code, function.__globals__, scope)
    changed = scope[function.__name__]
    changed = changed.fget if isinstance(changed, property) else changed
    assert isinstance(changed, FunctionType)
    before = function.__code__
    function.__code__ = changed.__code__
    try:
        yield
    finally:
        function.__code__ = before


def seeds_to_kill(mutant: Mutant, limit: int) -> tuple[int, str] | None:
    """Return how many seeds it took until the mutant was caught and by what, None if it lives."""
    with planted(mutant):
        for seed in range(mutant.first, mutant.first + limit):
            try:
                mutant.run(seed)
            except Exception as error:
                return seed - mutant.first + 1, f"{type(error).__name__}: {error}".splitlines()[0]
    return None
