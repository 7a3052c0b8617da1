"""What both ends of a simulated line speak TLS with.

Chance decides nothing here: keys, times and the noise in a handshake differ from run to run, and
no length does. So the key is RSA, whose signatures have one size, and the certificate's number is
fixed. How much arrives at a time is the seed's, as it is without TLS.
"""

from __future__ import annotations

import datetime as dt
import functools
import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

NAME = "gateway.example"


class Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


@functools.cache
def contexts() -> Contexts:
    """Return the two, made once for all seeds of a process."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "both.pem"
        file.write_bytes(private + public)
        server.load_cert_chain(file)
    server.num_tickets = 0
    server.options |= ssl.OP_NO_RENEGOTIATION
    return Contexts(server, ssl.create_default_context(cadata=public.decode("ascii")))
