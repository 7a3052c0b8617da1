"""The tree as it is keeps the rules, and what is still to be mended does not grow."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator

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
from tests.architecture.rules import (
    FUNCTION_LINES_MAX,
    HOT_LOOPS,
    PACKAGES,
)
from tests.architecture.tree import ROOT, Source, functions, sources, within

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


def test_every_shell_still_takes_what_it_may() -> None:
    none(stale_shells(CODE))


def test_there_are_no_import_cycles() -> None:
    assert cycles(CODE) == []


@pytest.mark.parametrize("check", OF_TESTS, ids=lambda check: check.__name__)
def test_tests_and_examples_keep(check: Check) -> None:
    judged = [
        source
        for source in TESTS + EXAMPLES
        # These spell what they look for.
        if not (check is unfinished and within(source.module, "tests.architecture"))
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


def test_rooms_import_one_way() -> None:
    assert rooms_in_rings(CODE) == []


def test_no_modules_form_a_ring() -> None:
    """Imports for types count: a back edge under `TYPE_CHECKING` is one."""
    assert modules_in_rings(CODE) == {}


def test_the_median_file_is_short() -> None:
    assert statistics.median(len(source.text.splitlines()) for source in CODE) < 150


def test_no_class_is_there_for_one_heir() -> None:
    assert sorted(lone_bases(CODE)) == []


def test_no_base_leaves_something_open() -> None:
    assert unmade_bases(CODE) == {}
