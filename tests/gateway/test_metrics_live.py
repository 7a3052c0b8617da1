"""`/metrics` of the real process, read by Prometheus' own parser."""

from __future__ import annotations

import base64
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from gateway.trial.scratch import ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.interop.support import add_user, wait_until


def scraped(gateway: ScratchGateway) -> tuple[list[Any], dict[Any, float]]:
    with urlopen(f"{gateway.url}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
    return families, samples


@pytest.fixture
def gateway(tmp_path: Path) -> Any:
    with ScratchGateway(tmp_path) as served:
        yield served


def test_every_family_has_one_type_a_help_and_a_name_of_its_own(gateway: ScratchGateway) -> None:
    families, _ = scraped(gateway)
    names = Counter(family.name.removesuffix("_total") for family in families)
    assert [name for name, count in names.items() if count > 1] == []
    for family in families:
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram"), family.name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        elif family.type == "gauge":
            assert not family.name.endswith("_total")


def test_the_process_and_its_build_are_told(gateway: ScratchGateway) -> None:
    _, found = scraped(gateway)
    assert found["sluicegate_build_info", __version__, platform.python_version()] == 1 or (
        found["sluicegate_build_info", platform.python_version(), __version__] == 1
    )
    assert found["process_cpu_seconds_total",] > 0
    assert found["process_resident_memory_bytes",] > 10 << 20
    assert found["process_virtual_memory_bytes",] > found["process_resident_memory_bytes",]
    descriptors = len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))
    assert abs(found["process_open_fds",] - descriptors) <= 3
    assert found["process_max_fds",] >= found["process_open_fds",]
    assert abs(found["process_start_time_seconds",] - time.time()) < 600


def test_syncs_and_the_reactors_lateness_are_counted(gateway: ScratchGateway) -> None:
    peer = StompPeer(gateway.stomp_port)
    for number in range(3):
        peer.write(f"SEND\ndestination:timed\npersistent:true\nreceipt:{number}\n\nx")
        assert peer.read()[0] == "RECEIPT"
    wait_until(lambda: scraped(gateway)[1]["sluicegate_reactor_lag_seconds_count",] >= 2)
    _, found = scraped(gateway)
    assert found["sluicegate_journal_sync_seconds_count",] >= 3
    assert found["sluicegate_journal_sync_seconds_sum",] > 0
    assert (
        found["sluicegate_journal_sync_seconds_bucket", "+Inf"]
        == found["sluicegate_journal_sync_seconds_count",]
    )
    wait_until(
        lambda: (
            scraped(gateway)[1]["sluicegate_queue_oldest_message_age_seconds", "timed", "timed"] > 0
        )
    )
    assert scraped(gateway)[1]["sluicegate_address_oldest_message_age_seconds", "timed"] > 0
    peer.close()


def test_connections_and_logins_are_counted_by_what_tells_them_apart(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    add_user(gateway, "ann", "se:cret")

    with gateway:
        good = StompPeer(gateway.stomp_port, ("ann", "se:cret"))
        StompPeer(gateway.stomp_port, ("ann", "wrong")).close()
        login = base64.b64encode(b"ann:se:cret").decode()
        asked = Request(f"{gateway.url}/metrics", headers={"Authorization": f"Basic {login}"})
        with urlopen(asked, timeout=10) as answer:
            text = answer.read().decode()
        good.close()
    assert 'sluicegate_connections{acceptor="stomp",protocol="STOMP"} 1' in text
    assert 'sluicegate_connections_opened_total{acceptor="stomp"} 2' in text
    assert 'sluicegate_login_failures_total{reason="wrong-password"} 1' in text
    assert "\nsluicegate_logins_total 1" in text or "\nsluicegate_logins_total 2" in text
