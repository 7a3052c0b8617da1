"""Each finding of the doctor: what brings it about, and that a safe gateway has none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.check import HostFacts
from gateway.config.load import load
from gateway.config.tree import Config
from gateway.doctor.checks import judge, judge_running
from gateway.doctor.facts import CertificateFacts, Facts, FileFacts, ProcessFacts, gather
from gateway.doctor.findings import KINDS
from gateway.listening import self_check
from gateway.security.secret import Secret
from gateway.security.users import User

#: The events of the listeners' own check.
CERTIFICATE_WORDS = set(
    re.findall(r'"certificate\.(\w+)"', Path(self_check.__file__).read_text("utf-8"))
)
STRONG = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaA"
WEAK = "$argon2id$v=19$m=1024,t=1,p=1$c2FsdHNhbHQ$aGFzaA"


def config(*sets: str) -> Config:
    host = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")
    return load(None, sets, environment={}, host=host)


def user(stored: str = STRONG, roles: frozenset[str] = frozenset()) -> User:
    return User(name="ann", password=Secret(stored), roles=roles)


def codes(made: Config, facts: Facts) -> set[str]:
    return {one.code for one in judge(made, facts)}


SAFE = Facts(users={"ann": user()})
BASE = codes(config(), SAFE)
OPEN = "tcp:5672"


def test_a_gateway_as_it_comes_with_users_has_no_unsafe_finding() -> None:
    assert {"no-security-settings", "audit-without-key"} >= BASE
    assert codes(config(), Facts(users={})) == {"no-users"}


@pytest.mark.parametrize(
    ("sets", "facts", "found"),
    [
        ((f'acceptors.all.endpoint="{OPEN}"', "allow-insecure=true"), Facts(users={}),
         {"open-to-the-network", "plain-text-to-the-network"}),
        ((f'acceptors.all.endpoint="{OPEN}"', "allow-insecure=true"), SAFE,
         {"plain-text-to-the-network"}),
        ((f'acceptors.all.endpoint="{OPEN}"', "allow-insecure=true",
          "acceptors.all.allow-anonymous=true"), SAFE, {"anonymous-from-the-network"}),
        (("acceptors.all.allow-anonymous=true",), SAFE, {"anonymous-allowed"}),
        (("allow-insecure=true",), SAFE, {"allow-insecure"}),
        (('management.endpoint="tcp:8161"', "allow-insecure=true"), Facts(users={}),
         {"metrics-open", "open-to-the-network"}),
        (('acceptors.all.allowed-origins=["*"]',), SAFE, {"any-origin"}),
        (('management.allowed-origins=["*"]',), SAFE, {"any-origin"}),
        (('security-settings."#".send=["worker"]',), SAFE, {"no-administrator"}),
        (("audit.enabled=false",), SAFE, {"audit-off"}),
        (("min-disk-free=-1",), SAFE, {"disk-limit-off"}),
        (("min-disk-free=-1", "max-disk-usage=-1"), SAFE, {"disk-limit-off"}),
        (("user-max-links=-1",), SAFE, {"user-limit-off"}),
        ((), Facts(users={"ann": user(WEAK)}), {"weak-password-hash"}),
        ((), replace(SAFE, problems=(("users.toml", "is nonsense"),)), {"file-unusable"}),
        ((), replace(SAFE, files=(FileFacts(path="k", about="x", mode=0o640),)),
         {"file-readable-by-others"}),
        ((), replace(SAFE, files=(FileFacts(path="k", about="x", mode=0o622, secret=False),)),
         {"file-writable-by-others"}),
        ((), replace(SAFE, files=(FileFacts(path="d", about="x", mode=0o755, directory=True),)),
         {"directory-open-to-others"}),
        *(((), replace(SAFE, certificates=(
            CertificateFacts(listener="l", event=f"certificate.{word}", text="names x"),)),
           {f"certificate-{word.replace('_', '-')}"})
          for word in sorted(CERTIFICATE_WORDS)),
        ((), replace(SAFE, process=ProcessFacts(number=1, root=True, descriptors=9, dumps=True)),
         {"runs-as-root", "few-descriptors", "core-dumps-on"}),
    ],
)  # fmt: skip
def test_each_finding_has_its_cause(sets: tuple[str, ...], facts: Facts, found: set[str]) -> None:
    now = codes(config(*sets), facts)
    assert found <= now
    assert found <= KINDS.keys()
    assert not found & BASE


@pytest.mark.parametrize(
    "facts",
    [
        replace(SAFE, files=(FileFacts(path="k", about="x", mode=0o600),)),
        replace(SAFE, files=(FileFacts(path="c", about="x", mode=0o644, secret=False),)),
        replace(SAFE, files=(FileFacts(path="d", about="x", mode=0o700, directory=True),)),
        replace(SAFE, process=ProcessFacts(
            number=1, root=False, descriptors=1 << 20, dumps=False)),
    ],
)  # fmt: skip
def test_what_is_as_it_should_be_is_not_found(facts: Facts) -> None:
    assert codes(config(), facts) == BASE
    admins = replace(facts, users={"ann": user(roles=frozenset({"admin"}))})
    judged = config('security-settings."#".send=["worker"]')
    assert codes(judged, admins) == BASE - {"no-security-settings"}
    assert codes(config("max-disk-usage=90", "min-disk-free=-1"), facts) == BASE


def test_what_a_running_gateway_says() -> None:
    said = {
        "/readyz": {
            "status": "ready",
            "code": "disk-full",
            "message": "m",
            "archiveLags": ["s"],
            "auditFails": "f",
        },
        "/api/v1/config": {"needsRestart": ["name"], "refused": {"problems": [{"message": "no"}]}},
        "/api/v1/clock": {"distrusted": True, "aheadSeconds": 7, "brokerTimeMs": 60_000},
        "/api/v1/scrub": {"damage": [{"file": "f", "offset": 1, "what": "rot"}]},
    }
    assert {one.code for one in judge_running(said, 0)} == {
        "audit-fails", "under-pressure", "archive-lags", "not-in-force", "reload-refused",
        "clock-distrusted", "clock-skewed", "stored-data-damaged",
    }  # fmt: skip
    bad = {"/readyz": {"code": "not-ready", "message": "The store has failed."}}
    assert [one.code for one in judge_running(bad, 0)] == ["not-ready"]
    good = {
        "/readyz": {"status": "ready"},
        "/api/v1/config": {},
        "/api/v1/clock": {"distrusted": False, "aheadSeconds": 0, "brokerTimeMs": 9},
    }
    assert judge_running(good, 0) == []


def test_files_are_asked_for_their_modes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "users.toml").write_text("nonsense")
    (data / "users.toml").chmod(0o644)
    made = replace(config(), data_directory=str(data), users_file=str(data / "users.toml"))
    facts = gather(made, None, 0)
    assert {"file-unusable", "file-readable-by-others", "directory-open-to-others"} <= codes(
        made, facts
    )
    assert facts.process is None
