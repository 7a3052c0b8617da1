"""The rules as checks: each takes a module and yields what is wrong with it, with its line."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.architecture.rules import (
    AMBIENT,
    AMBIENT_ALLOWED,
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    HOT_LOOPS,
    LINE_MAX,
    MAY_IMPORT,
    NAMES_GIVEN,
    PACKAGES,
    POSITIONAL_MAX,
    REACTOR_ALLOWED,
    SHELLS,
    TEST_FILE_LINES_MAX,
    WEAK_NAME,
    WORLDLY,
)
from tests.architecture.tree import (
    Source,
    functions,
    import_graph,
    imports,
    longest,
    rings,
    within,
)


def wrong_layer(source: Source, modules: frozenset[str]) -> Iterator[str]:
    """Find imports that point against the layers; `modules` are the names of all our modules."""
    own = longest(source.module, MAY_IMPORT)
    if own is None:
        yield f"{source.path}:1 {source.module} belongs to no layer of MAY_IMPORT"
        return
    allowed = MAY_IMPORT[own]
    for line, name in imports(source):
        if name not in modules or name in PACKAGES:
            continue
        # A plain package is what its own text says; its submodules have layers of their own.
        target = longest(name, MAY_IMPORT)
        fine = target == own or "*" in allowed or any(within(name, entry) for entry in allowed)
        if not fine:
            yield f"{source.path}:{line} {own} must not import {name}"


def worldly(source: Source) -> set[str]:
    """Return what a module takes of the world."""
    return {name.split(".")[0] for _, name in imports(source)} & WORLDLY


def impure(source: Source) -> Iterator[str]:
    """Find frameworks, clocks, threads, chance, files and logs in modules that are no shell."""
    shell = longest(source.module, SHELLS)
    allowed = set(SHELLS[shell].split()) if shell is not None else set()
    for line, name in imports(source):
        root = name.split(".")[0]
        if root in WORLDLY - allowed:
            yield f"{source.path}:{line} imports {root}, and SHELLS does not name the module for it"
    if shell is not None:
        if (ast.get_docstring(source.tree) or "").rstrip().endswith("Pure."):
            yield f"{source.path}:1 says that it is pure, and stands in SHELLS"
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield f"{source.path}:{node.lineno} pure module opens a file"


def ambient(source: Source) -> Iterator[str]:
    """Find what takes time or chance from the air, and imports of the reactor."""
    if longest(source.module, AMBIENT_ALLOWED) is None:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute):
                name = ".".join(ast.unparse(node).split(".")[-2:])
                if name in AMBIENT:
                    yield f"{source.path}:{node.lineno} takes {name}: have it handed down"
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


def stale_shells(all_sources: Iterable[Source]) -> Iterator[str]:
    """Find what SHELLS allows and nobody takes."""
    taken: dict[str, set[str]] = {name: set() for name in SHELLS}
    for source in all_sources:
        if (shell := longest(source.module, SHELLS)) is not None:
            taken[shell] |= worldly(source)
    for name, roots in SHELLS.items():
        if unused := set(roots.split()) - taken[name]:
            yield f"SHELLS: {name} takes no {', '.join(sorted(unused))} any more"


def cycles(all_sources: Iterable[Source]) -> list[list[str]]:
    """Return the groups of modules that import one another when they are loaded."""
    return rings(import_graph(all_sources, types=False))


def room(module: str, rooms: frozenset[str]) -> str:
    """Return the package that a module lies in, by its full name; alone in its root it is one."""
    package = module.rpartition(".")[0]
    return package if package in rooms else module


def rooms_in_rings(all_sources: Iterable[Source]) -> list[list[str]]:
    """Return the groups of rooms that import one another, imports for types counted."""
    known = list(all_sources)
    rooms = frozenset(
        source.module
        for source in known
        if source.path.endswith("__init__.py")
        and ("." in source.module or source.module == "storage")
    )
    between: dict[str, set[str]] = {}
    for module, others in import_graph(known, types=True).items():
        here = between.setdefault(module if module in rooms else room(module, rooms), set())
        here |= {other if other in rooms else room(other, rooms) for other in others}
    for name, others in between.items():
        others.discard(name)
    return rings(between)


def modules_in_rings(all_sources: Iterable[Source]) -> Counter[str]:
    """Return how many modules of each package lie in rings, imports for types counted."""
    return Counter(
        module.rpartition(".")[0]
        for ring in rings(import_graph(all_sources, types=True))
        for module in ring
    )


def lone_bases(all_sources: Iterable[Source]) -> Iterator[str]:
    """Yield our classes that are there for one heir, by their full names.

    A class that is also made, or named anywhere else than in its heir, stands for itself.
    """
    heirs: dict[str, list[str]] = {}
    named: Counter[str] = Counter()
    where: dict[str, str] = {}
    for source in all_sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, source.module)
                for base in node.bases:
                    if isinstance(base, ast.Name):
                        heirs.setdefault(base.id, []).append(node.name)
                        named[base.id] -= 1
            elif isinstance(node, ast.Name):
                named[node.id] += 1
    for name, who in heirs.items():
        if name in where and len(who) == 1 and not named[name]:
            yield f"{where[name]}.{name}"


def unmade_bases(all_sources: Iterable[Source]) -> Counter[str]:
    """Count `raise NotImplementedError` by module."""
    return Counter(
        source.module
        for source in all_sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node)
    )
