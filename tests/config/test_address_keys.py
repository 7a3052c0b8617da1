"""Every key of address-settings: supported, or refused by its name; never ignored, never unknown.

The list is that of the manual, written out here, so that a key that gets lost is noticed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.addresses.settings import ROWS, AddressSettings
from gateway.config import schema
from tests.config.test_load import problems, read

#: Key -> a value other than its default, as it may be written.
KEYS: dict[str, object] = {
    "dead-letter-address": "dead",
    "auto-create-dead-letter-resources": True,
    "dead-letter-queue-prefix": "D.",
    "dead-letter-queue-suffix": ".d",
    "expiry-address": "old",
    "auto-create-expiry-resources": True,
    "expiry-queue-prefix": "E.",
    "expiry-queue-suffix": ".e",
    "no-expiry": True,
    "expiry-delay": 5,
    "min-expiry-delay": 5,
    "max-expiry-delay": 5,
    "max-delivery-attempts": 5,
    "redelivery-delay": 5,
    "redelivery-delay-multiplier": 2.5,
    "redelivery-collision-avoidance-factor": 0.5,
    "max-redelivery-delay": 5,
    "max-size-bytes": "5M",
    "max-size-messages": 5,
    "max-size-bytes-reject-threshold": "6M",
    "page-size-bytes": "5M",
    "page-limit-bytes": "5M",
    "page-limit-messages": 5,
    "page-full-policy": "DROP",
    "max-read-page-bytes": "5M",
    "max-read-page-messages": 5,
    "prefetch-page-bytes": "5M",
    "prefetch-page-messages": 5,
    "address-full-policy": "DROP",
    "disk-full-policy": "DROP",
    "default-ring-size": 5,
    "default-last-value-queue": True,
    "default-last-value-key": "k",
    "default-non-destructive": True,
    "default-exclusive-queue": True,
    "default-purge-on-no-consumers": True,
    "default-max-consumers": 5,
    "default-consumers-before-dispatch": 5,
    "default-delay-before-dispatch": 5,
    "default-group-rebalance": True,
    "default-group-rebalance-pause-dispatch": True,
    "default-group-buckets": 5,
    "default-group-first-key": "k",
    "default-queue-routing-type": "MULTICAST",
    "default-address-routing-type": "MULTICAST",
    "default-consumer-window-size": 5,
    "auto-create-queues": False,
    "auto-create-addresses": False,
    "auto-delete-queues": True,
    "auto-delete-addresses": True,
    "auto-delete-created-queues": True,
    "auto-delete-queues-delay": 5,
    "auto-delete-addresses-delay": 5,
    "auto-delete-queues-message-count": 5,
    "auto-delete-queues-skip-usage-check": True,
    "auto-delete-addresses-skip-usage-check": True,
    "config-delete-queues": "FORCE",
    "config-delete-addresses": "FORCE",
    "config-delete-diverts": "FORCE",
    "redistribution-delay": 5,
    "send-to-dla-on-no-route": True,
    "slow-consumer-threshold": 5,
    "slow-consumer-threshold-measurement-unit": "MESSAGES_PER_DAY",
    "slow-consumer-policy": "KILL",
    "slow-consumer-check-period": 7,
    "retroactive-message-count": 5,
    "id-cache-size": 5,
    "enable-metrics": False,
    "enable-ingress-timestamp": True,
    "message-counter-history-day-limit": 5,
    "management-browse-page-size": 5,
    "management-message-attribute-size-limit": 5,
    "initial-queue-buffer-size": 16,
    "queue-prefetch": 5,
    # Ours.
    "ring-victim": "artemis",
    "reject-as-modified": True,
    "strict-dispatch": True,
    "durability": "write",
}
#: Keys that mean something only together with another one.
WITH = {
    "max-size-bytes-reject-threshold": "max-size-bytes = '5M'\naddress-full-policy = 'BLOCK'\n",
    "default-group-rebalance-pause-dispatch": "default-group-rebalance = true\n",
}


#: Key that is refused -> what a user learns about it.
WHY = {
    "config-delete-queues": "a reload names it and deletes nothing",
    "config-delete-addresses": "a reload names it and deletes nothing",
    "config-delete-diverts": "a reload names it and deletes nothing",
    "default-consumer-window-size": "is for Artemis' Core clients",
    "initial-queue-buffer-size": "a buffer that Artemis' queues have",
    "message-counter-history-day-limit": "the counters by day of Artemis' console",
    "queue-prefetch": "is for OpenWire clients",
    "redistribution-delay": "is for clusters",
}


def written(key: str, value: object) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value).lower()
    return f"[address-settings.'a.*']\n{WITH.get(key, '')}{key} = {text}\n"


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_key_counts_or_is_refused_by_name(tmp_path: Path, key: str) -> None:
    text = written(key, KEYS[key])
    if key in schema.ADDRESS_SETTINGS.later:
        found = problems(tmp_path, text)
        (problem,) = found
        place, _, why = problem.partition(f'address-settings."a.*".{key}: ')
        assert place == "f.toml:2: "
        assert WHY[key] in why
        assert why.endswith("; remove it")
        assert "not supported yet" not in why
        return
    config = read(tmp_path, text)
    (told,) = [e for e in config.address_settings.explain("a.b") if e.key == key]
    assert told.match == "a.*"
    assert told.value != getattr(AddressSettings(), key.replace("-", "_"))
    assert told.origin is not None
    assert told.origin.endswith(f"f.toml:{text.count(chr(10))}")


def test_no_key_is_unknown_and_none_is_both() -> None:
    table = schema.ADDRESS_SETTINGS
    assert set(KEYS) == set(table.keys) | table.later
    assert not set(table.keys) & table.later
    assert {ROWS[name].key for name in AddressSettings.__slots__} == set(table.keys)
    assert not table.later & {ROWS[name].key for name in AddressSettings.__slots__}


def test_every_refused_key_says_why_also_where_it_is_misspelt(tmp_path: Path) -> None:
    assert set(WHY) == schema.ADDRESS_SETTINGS.later
    (problem,) = problems(tmp_path, "[address-settings.'#']\nqueuePrefetch = 5\n")
    assert "unknown key; queue-prefetch is for OpenWire clients" in problem


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slow-consumer-threshold = 0", "at a threshold of 0 nobody is slow"),
        ("slow-consumer-threshold = -2", "-2 is below -1"),
        ("slow-consumer-check-period = 0", "0 seconds is out of range; it lies between 1"),
        ("slow-consumer-check-period = '1500ms'", "is no whole number of seconds"),
        ("slow-consumer-policy = 'PUNISH'", "not one of NOTIFY, KILL"),
        ("slow-consumer-threshold-measurement-unit = 'X'", "not one of MESSAGES_PER_SECOND"),
        ("management-browse-page-size = 0", "0 messages is out of range; it lies between 1"),
        ("management-browse-page-size = 1001", "1001 messages is out of range"),
        ("max-size-bytes = -5", "max-size-bytes: -5 is below -1"),
        ("max-size-messages = -5", "max-size-messages: -5 is below -1"),
        ("page-limit-bytes = -5", "page-limit-bytes: -5 is below -1"),
        ("page-size-bytes = -5", "page-size-bytes: -5 bytes is no page"),
        ("max-delivery-attempts = 0", "0 attempts would deliver nothing"),
    ],
)
def test_impossible_values_name_the_key_and_the_line(
    tmp_path: Path, line: str, expected: str
) -> None:
    (problem,) = problems(tmp_path, f"\n[address-settings.'#']\n{line}\n")
    assert problem.startswith('f.toml:3: address-settings."#".')
    assert expected in problem


@pytest.mark.parametrize(("text", "period"), [("7", 7), ("'7s'", 7), ("'1m'", 60), ("'9'", 9)])
def test_the_check_period_counts_seconds(tmp_path: Path, text: str, period: int) -> None:
    config = read(tmp_path, f"[address-settings.'#']\nslow-consumer-check-period = {text}\n")
    assert config.address_settings.for_address("x").slow_consumer_check_period == period
