"""The eight bytes that a connection begins with [AMQP 2.2, 5.3.1], ours and those of others."""

from __future__ import annotations

from typing import Final

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
#: Protocol headers of what is not AMQP 1.0, and how it is called.
_OTHERS: Final = {
    b"AMQP\x01\x01\x08\x00": "AMQP 0-8",
    b"AMQP\x01\x01\x00\x09": "AMQP 0-9",
    b"AMQP\x00\x00\x09\x01": "AMQP 0-9-1",
    b"AMQP\x01\x01\x00\x0a": "AMQP 0-10",
    b"AMQP\x02\x01\x00\x00": "TLS inside AMQP",
}


def not_spoken(header: bytes) -> str:
    """Return why a connection with this protocol header ends [AMQP 2.2]."""
    name = _OTHERS.get(header)
    if name is None and header[:4] == b"AMQP":
        name = f"AMQP {header[5]}.{header[6]}.{header[7]} with protocol id {header[4]}"
    return f"{name or repr(header)} is not spoken here; AMQP 1.0 is"
