"""What the log says of TLS that could not go on."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from gateway.listening.tls import tell_tls_failed


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("not-tls", "the client speaks no TLS; this listener does not speak anything else"),
        ("tlsv1-alert-unknown-ca", "the client does not trust who signed the certificate"),
        ("unexpected-message", None),
    ],
)
def test_a_failure_is_told_with_what_it_means_where_that_is_known(
    reason: str, meaning: str | None
) -> None:
    with capture_logs() as lines:
        tell_tls_failed("acceptors.all", "192.0.2.1", reason)
    more = {} if meaning is None else {"meaning": meaning}
    facts = {"listener": "acceptors.all", "peer": "192.0.2.1", "reason": reason}
    assert lines == [{"event": "tls.failed", "log_level": "info", **facts, **more}]
