"""docs/reference is what the code says: `make reference` writes it again."""

from __future__ import annotations

import ast

import pytest

from gateway.cli.main import COMMANDS
from gateway.config import schema
from pyspark_sluicegate.meanings import COLUMN_MEANINGS, OPTION_MEANINGS
from pyspark_sluicegate.options import COLUMNS
from tests.architecture.tree import sources
from tests.reference import configuration, http_api, spark_source
from tests.reference.pages import FOLDER, render

PAGES = render()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name], "make reference writes it"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {page.name for page in FOLDER.iterdir()} == PAGES.keys()


def test_the_tables_of_the_spark_source_are_what_the_code_says() -> None:
    page = spark_source.PAGE.read_text("utf-8")
    assert page == spark_source.render(page), "make reference writes them"


def test_every_option_and_column_of_the_spark_source_has_a_meaning_and_no_other() -> None:
    assert list(OPTION_MEANINGS) == list(spark_source.every_option())
    assert list(COLUMN_MEANINGS) == list(COLUMNS)


def test_the_reference_has_every_table_of_the_configuration() -> None:
    every = {id(one) for one in vars(schema).values() if isinstance(one, schema.Table)}
    assert every == {id(one.keys) for one in configuration.SECTIONS}


def test_the_reference_has_every_command() -> None:
    assert [
        name for name in COMMANDS if f"## sluicegate {name}\n" not in PAGES["commands.md"]
    ] == []


def test_the_reference_has_every_route() -> None:
    """As many as the sources add: a module that nobody calls here would be missed."""
    added = [
        node
        for source in sources("gateway/management")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value in {"GET", "POST", "PATCH", "PUT", "DELETE"}
    ]
    found = http_api.routes().found
    assert len(found) == len(added) > 40
    assert [t for _, t, *_ in found if f"`{t}`" not in PAGES["http.md"]] == []
