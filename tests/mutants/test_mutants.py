"""Every planted bug is caught, each within the seeds that the suite runs anyway."""

from __future__ import annotations

import pytest

from tests.mutants.core_table import CORE_MUTANTS
from tests.mutants.plant import Mutant, planted, seeds_to_kill
from tests.mutants.table import MUTANTS
from tests.mutants.websocket_table import TABLES, WEBSOCKET_MUTANTS, run_table
from tests.mutants.wire_table import WIRE_MUTANTS
from tests.simulation.test_exhaustive import crash_points
from tests.simulation.world import run_seed

LIMIT = 2000


ALL = (*MUTANTS, *CORE_MUTANTS, *WIRE_MUTANTS, *WEBSOCKET_MUTANTS)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_the_seeds_catch(mutant: Mutant) -> None:
    assert seeds_to_kill(mutant, LIMIT) is not None, f"{mutant.name} lives after {LIMIT} seeds"


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in ALL]
    assert len(set(names)) == len(names)


def test_the_text_that_a_mutant_changes_is_there() -> None:
    """Cheap: found here in a second, not where each mutant meets its seeds."""
    for mutant in ALL:
        with planted(mutant):
            pass


def test_a_mutant_is_gone_when_its_time_is_over() -> None:
    (mutant,) = [m for m in MUTANTS if m.name == "no fdatasync"]
    killed = seeds_to_kill(mutant, LIMIT)
    assert killed is not None
    for seed in range(killed[0]):
        run_seed(seed)


def test_the_tables_find_nothing_where_nothing_is_planted() -> None:
    for number in range(len(TABLES)):
        run_table(number)


def test_a_mutant_that_changes_nothing_is_refused() -> None:
    mutant = Mutant("typo", "storage.segments:Segments.write", "self._fs.fdatasink(", "(")
    with pytest.raises(AssertionError, match="0 times"), planted(mutant):
        pass


def caught_by_sequences(mutant: Mutant) -> bool:
    with planted(mutant):
        for last in ("add", "take", "overtake"):
            try:
                crash_points(("add", last))
            except Exception:
                return True
    return False


@pytest.mark.parametrize(
    "name",
    [
        "no fdatasync",
        "removal of what was written before is cancelled",
        "directory not synced after a segment is named",
        "reported when handed over",
    ],
)
def test_the_exhaustive_sequences_catch(name: str) -> None:
    (mutant,) = [m for m in MUTANTS if m.name == name]
    assert caught_by_sequences(mutant)
