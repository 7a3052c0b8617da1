"""`sluicegate doctor` beside a running gateway, and without one."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gateway.doctor.findings import KINDS
from gateway.trial.scratch import HOST, ScratchGateway
from tests.audit.test_live import RIGHT, add_user, sluicegate

ROOT = Path(__file__).resolve().parents[2]


def findings(gateway: ScratchGateway, *options: str, stdin: str = "") -> tuple[int, dict[str, str]]:
    done = sluicegate(
        "doctor", "--json", "--data", str(gateway.data), "--url", gateway.url, *options,
        stdin=stdin,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {one["code"]: one["text"] for one in found}


def test_it_asks_files_process_and_gateway(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    add_user(gateway, "ann", RIGHT)
    status, found = findings(gateway)
    assert status == 0
    assert {"no-security-settings", "audit-without-key", "not-asked"} <= found.keys()
    with gateway:
        login = ("--user", "ann", "--password-stdin")
        status, found = findings(gateway, *login, stdin=RIGHT + "\n")
        assert status == 0
        assert "not-asked" not in found
        assert "core-dumps-on" not in found  # the gateway has switched them off
        status, found = findings(gateway, *login, "--strict", stdin=RIGHT + "\n")
        assert status == 1
        (gateway.data / "users.toml").chmod(0o644)
        status, found = findings(gateway, "--offline")
        assert status == 1
        assert "644" in found["file-readable-by-others"]
        assert "not-asked" not in found


def test_what_it_reads_is_what_a_gateway_answers(tmp_path: Path) -> None:
    with ScratchGateway(tmp_path) as gateway:
        for path, keys in (
            ("/readyz", {"status"}),
            ("/api/v1/config", {"needsRestart", "refused", "file"}),
            ("/api/v1/clock", {"distrusted", "aheadSeconds", "brokerTimeMs"}),
            ("/api/v1/scrub", {"damage"}),
        ):
            _, answer = gateway.request("GET", path)
            assert isinstance(answer, dict)
            assert keys <= answer.keys(), path
        status, found = findings(gateway)
        assert (status, found.keys() & {"no-users", "not-asked", "clock-skewed"}) == (
            0,
            {"no-users"},
        )


def test_it_tells_people_what_to_do(tmp_path: Path) -> None:
    done = sluicegate(
        "doctor", "--offline", "--data", str(tmp_path), "--set", "allow-insecure=true",
        "--set", 'acceptors.all.endpoint="tcp:5672"',
    )  # fmt: skip
    assert done.returncode == 1
    assert "unsafe" in done.stdout
    assert "open-to-the-network: acceptors.all" in done.stdout
    assert "try: `sluicegate user add NAME`" in done.stdout
    assert HOST not in done.stdout


def test_every_finding_has_its_anchor() -> None:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(KINDS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in KINDS)
    assert all(kind.remedy and kind.why for kind in KINDS.values())
