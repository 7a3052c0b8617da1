"""The pages for people agree with the tree: the map, the glossary, the decisions."""

from __future__ import annotations

import re

from gateway import __version__
from tests.architecture.rules import MAY_IMPORT, PACKAGES
from tests.architecture.test_tree import none
from tests.architecture.tree import ROOT, sources

DOCS = ROOT / "docs"
MAP = (DOCS / "architecture.md").read_text("utf-8")
GLOSSARY = (DOCS / "glossary.md").read_text("utf-8")
PAGES = sorted((DOCS / "decisions").glob("[0-9]*.md"))
#: A path of the tree in backticks, with a folder in it.
NAMED = re.compile(r"`([a-z_]+/[a-z_/]*[a-z_]+\.py)`")
STATUS = re.compile(r"Status: (accepted(?:; .+ replaced by (.+))?|replaced by (.+))")
LINK = re.compile(r"\[(\d{3})\]\((\d{3}-[a-z0-9-]+\.md)\)")


def rows(page: str) -> list[list[str]]:
    """Return the cells of the first table of a page."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def may_import(names: tuple[str, ...]) -> str:
    if names == ("*",):
        return "any room"
    return ", ".join(f"`{name}`" for name in names) or "no room"


def test_the_map_has_every_room_and_its_rule() -> None:
    drawn = {room.strip("`"): (purpose, rule) for room, purpose, rule in rows(MAP)}
    assert list(drawn) == list(MAY_IMPORT)
    assert [room for room, (purpose, _) in drawn.items() if not purpose] == []
    assert {room: rule for room, (_, rule) in drawn.items()} == {
        room: may_import(names) for room, names in MAY_IMPORT.items()
    }
    packages = {s.module for s in sources(*PACKAGES) if s.path.endswith("__init__.py")}
    assert packages <= drawn.keys()


def test_modules_that_pages_name_exist() -> None:
    text = {page: page.read_text("utf-8") for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]}
    # The changelog may speak of what is gone.
    none(
        f"{page.relative_to(ROOT)}: {path}"
        for page, said in sorted(text.items())
        if page.name != "CHANGELOG.md"
        for path in NAMED.findall(said)
        if not (ROOT / path).exists()
    )


def test_the_glossary_says_where_each_word_lives() -> None:
    told = rows(GLOSSARY)
    words = [word for word, _, _ in told]
    assert len(words) >= 40
    assert len(set(words)) == len(words)
    none(word for word, meaning, _ in told if not meaning.endswith("."))
    none(word for word, _, where in told if not (ROOT / where.strip("`")).is_file())
    none(word for word, _, where in told if not NAMED.fullmatch(where))


def test_decisions_are_numbered_and_titled_without_a_gap() -> None:
    assert [int(page.name[:3]) for page in PAGES] == list(range(1, len(PAGES) + 1))
    assert len(PAGES) >= 80
    for number, page in enumerate(PAGES, 1):
        title, empty, status, *_, text = page.read_text("utf-8").splitlines()
        assert title.startswith(f"# {number}. "), page.name
        assert empty == "", page.name
        assert STATUS.fullmatch(status), page.name
        assert text, page.name


def test_a_decision_that_is_replaced_names_a_later_one_which_names_it() -> None:
    replaced = 0
    for page in PAGES:
        found = STATUS.search(page.read_text("utf-8"))
        assert found is not None
        for said in filter(None, found.groups()[1:]):
            link = LINK.fullmatch(said)
            assert link is not None, page.name
            assert link[2].startswith(link[1]), page.name
            assert link[1] > page.name[:3]
            assert page.name in (DOCS / "decisions" / link[2]).read_text("utf-8")
            replaced += 1
    assert replaced >= 4


def test_the_index_has_every_decision() -> None:
    listed = rows((DOCS / "decisions" / "README.md").read_text("utf-8"))
    assert [int(number) for number, _, _ in listed] == list(range(1, len(PAGES) + 1))
    for page, (_, title, status) in zip(PAGES, listed, strict=True):
        heading, _, said, *_ = page.read_text("utf-8").splitlines()
        assert title == f"[{heading.partition('. ')[2]}]({page.name})"
        assert re.sub(LINK, lambda found: str(int(found[1])), said) == f"Status: {status}"


def test_decisions_that_the_tree_names_exist() -> None:
    texts = {source.path: source.text for source in sources(*PACKAGES, "tests", "examples")}
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    texts |= {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in pages}
    named = re.compile(r"\bdecisions? (\d+)\b", re.IGNORECASE)
    none(
        f"{path}: decision {number}"
        for path, text in sorted(texts.items())
        for number in named.findall(text)
        if not 1 <= int(number) <= len(PAGES)
    )
    none(path for path, text in texts.items() if re.search(r"\bDESIGN [0-9]", text))


def test_sentences_have_a_subject_with_a_name() -> None:
    """No sentence begins with a pronoun that does the work of a noun."""
    bare = re.compile(r"(?:^|[.:;!?] )(?:Who|What|who|what)(?:ever)? [a-z]+", re.MULTILINE)
    written = (
        "architecture",
        "glossary",
        "limits",
        "operating",
        "performance",
        "stomp",
        "streams",
        "tls",
    )
    pages = [*(DOCS / f"{name}.md" for name in written), *(DOCS / "decisions").glob("*.md")]
    pages += [ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "CHANGELOG.md"]
    none(
        f"{page.name}: {found[0]}"
        for page in pages
        for found in bare.finditer(page.read_text("utf-8"))
    )


def test_the_changelog_has_versions_with_a_date_and_the_sections_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert [
        one for one in versions if not re.fullmatch(r"\[[0-9.]+\] - \d{4}-\d\d-\d\d", one)
    ] == []
    assert f"[{__version__}]" in {one.split(" ")[0] for one in versions}
    order = ["Added", "Changed", "Fixed", "Security"]
    for part in text.split("\n## ")[1:]:
        sections = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert sections == [name for name in order if name in sections]
        assert sections
        before, *_ = part.partition("### ")
        assert "\n- " not in before, "a bullet without a section"
