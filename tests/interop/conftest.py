"""One gateway for all tests of a module, and an address of its own for each test.

Each test runs twice: its clients come over plain TCP, and over TLS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair, self_signed
from tests.interop.support import add_user

SETTINGS = (
    'address-settings."#".dead-letter-address="DLQ"',
    'address-settings."#".expiry-address="ExpiryQueue"',
    'address-settings."#".max-delivery-attempts=5',
    "message-expiry-scan-period=100",
)


@pytest.fixture(scope="module", params=["tcp", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KeyPair | None:
    """What a gateway of this module speaks TLS with, or None where it speaks plain TCP."""
    if request.param == "tcp":
        return None
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    """A gateway that takes anybody; it must stop with status 0 when the module is over."""
    gateway = ScratchGateway(tmp_path_factory.mktemp("gateway"), settings=SETTINGS, tls=tls)
    with gateway:
        yield gateway


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    """A gateway with the one user `ann`, whose password is `se:cret`; it knows nobody else."""
    gateway = ScratchGateway(tmp_path_factory.mktemp("guarded"), tls=tls)
    add_user(gateway, "ann", "se:cret")
    with gateway:
        yield gateway


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test of the gateway uses."""
    return re.sub(r"\W+", ".", request.node.name).strip(".")
