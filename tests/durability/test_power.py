"""Power cuts under the real gateway: what was confirmed is there, whatever the disk had not yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durability.power import run_power_rounds, why_not

ROUNDS = 5
PAGES = 'address-settings."#".max-size-bytes="64KiB"'
#: What a confirmation of mode `write` may be ahead of the disk: the interval, and a busy machine.
WINDOW_SECONDS = 0.05 + 2.0


@pytest.fixture(scope="module", autouse=True)
def _file_system() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "settings",
    [
        ("concurrent-store-and-dispatch-queues=true",),
        ("concurrent-store-and-dispatch-queues=false",),
        (PAGES,),
    ],
    ids=["concurrent", "serialized", "pages"],
)
def test_a_power_cut_loses_nothing_that_was_confirmed(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    tally = run_power_rounds(tmp_path / "gateway", ROUNDS, settings[0], settings)
    assert tally.clean, str(tally)
    assert tally.rounds == ROUNDS
    assert tally.confirmed > ROUNDS


@pytest.mark.timeout(300)
def test_mode_write_loses_its_last_moments_and_nothing_older(tmp_path: Path) -> None:
    """The same rounds find what is lost, where something may be."""
    mode = 'address-settings."#".durability="write"'
    tally = run_power_rounds(tmp_path / "gateway", ROUNDS, "write", (mode,))
    assert [*tally.unmarked, *tally.invented, *tally.refusals] == [], str(tally)
    assert tally.lost, "rounds that lose nothing here cannot fail"
    assert len(tally.lost) < tally.confirmed
    assert tally.lost_span < WINDOW_SECONDS, str(tally)
