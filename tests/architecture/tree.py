"""Modules as syntax trees, and what they import."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.rules import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
#: A distribution of its own: its modules are named from here on.
DISTRIBUTION = "gateway/spark/"


@dataclass(frozen=True, slots=True)
class Source:
    """One module: its path from the root, its text and its tree."""

    path: str
    text: str

    @property
    def module(self) -> str:
        inside = self.path.removeprefix(DISTRIBUTION)
        return inside.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

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
    """Return every Python file below these folders of the checkout; a link is the file it names."""
    return [
        Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.is_symlink()
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


def within(module: str, package: str) -> bool:
    """Whether a module is this package or lies in it."""
    return module == package or module.startswith(package + ".")


def longest(module: str, entries: Iterable[str]) -> str | None:
    """Return the longest of these entries that a module lies in."""
    return max((name for name in entries if within(module, name)), key=len, default=None)


def class_name(source: Source, node: ast.ClassDef) -> str:
    """Return the full name of a class."""
    return f"{source.module}.{node.name}"


Graph = Mapping[str, set[str]]


def import_graph(all_sources: Iterable[Source], *, types: bool) -> Graph:
    """Return which of our modules each imports when it is loaded; with what it imports for types.

    An import inside a function runs later and does not count; neither does the package that every
    submodule loads implicitly.
    """
    by_name = {source.module: source for source in all_sources}
    return {name: set(_loaded(source, by_name, types)) for name, source in by_name.items()}


def _loaded(source: Source, by_name: Mapping[str, Source], types: bool) -> Iterator[str]:
    late = {
        inner
        for _, function in functions(source.tree)
        for inner in range(function.lineno, (function.end_lineno or function.lineno) + 1)
    }
    if not types:
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


def rings(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import one another, each sorted."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(start: str, graph: Graph) -> set[str]:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return seen
