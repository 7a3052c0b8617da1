"""One gateway for all tests of a module, and an address of its own for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gateway.cli.scratch import ScratchGateway
from tests.interop.support import add_user

SETTINGS = (
    'address-settings."#".dead-letter-address="DLQ"',
    'address-settings."#".expiry-address="ExpiryQueue"',
    'address-settings."#".max-delivery-attempts=5',
    "message-expiry-scan-period=100",
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway that takes anybody; it must stop with status 0 when the module is over."""
    gateway = ScratchGateway(tmp_path_factory.mktemp("gateway"), settings=SETTINGS)
    with gateway:
        yield gateway


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway with the one user `ann`, whose password is `se:cret`; it knows nobody else."""
    gateway = ScratchGateway(tmp_path_factory.mktemp("guarded"))
    add_user(gateway, "ann", "se:cret")
    with gateway:
        yield gateway


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test of the gateway uses."""
    return re.sub(r"\W+", ".", request.node.name).strip(".")
