"""The same directory as `server`, by OpenLDAP's slapd, where there is one.

`SLAPD` names the program; `SLAPD_MODULES` and `SLAPD_SCHEMA` its folders, where they are others
than Debian's.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.trial.self_signed import KeyPair
from tests.directory.server import LDIF

PROGRAM: Final = os.environ.get("SLAPD") or shutil.which("slapd", path="/usr/sbin:/usr/bin")
_MODULES: Final = os.environ.get("SLAPD_MODULES", "/usr/lib/ldap")
_SCHEMA: Final = os.environ.get("SLAPD_SCHEMA", "/etc/ldap/schema")


def _configuration(folder: Path, pair: KeyPair | None) -> str:
    includes = "".join(
        f"include {_SCHEMA}/{name}.schema\n" for name in ("core", "cosine", "inetorgperson")
    )
    tls = ""
    if pair is not None:
        tls = f"TLSCertificateFile {pair.certificate}\nTLSCertificateKeyFile {pair.key}\n"
    return (
        f"{includes}{tls}modulepath {_MODULES}\nmoduleload back_mdb\n"
        f"pidfile {folder}/pid\n"
        # As many directories are: an empty password is let in as nobody.
        "allow bind_anon_cred bind_anon_dn\n"
        f"database mdb\nsuffix dc=example\ndirectory {folder}/data\n"
        "access to attrs=userPassword by anonymous auth by * none\n"
        "access to * by users read by * none\n"
    )


@contextmanager
def slapd(
    folder: Path, pair: KeyPair | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run one; gives its process and its port."""
    assert PROGRAM is not None, "asked for first"
    (folder / "data").mkdir(parents=True)
    (folder / "slapd.conf").write_text(_configuration(folder, pair))
    (folder / "tree.ldif").write_text(LDIF)
    files = ("-f", str(folder / "slapd.conf"))
    subprocess.run(
        [PROGRAM, "-T", "add", *files, "-l", str(folder / "tree.ldif")],
        check=True,
        timeout=60,
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            PROGRAM,
            "-d",
            "0",
            *files,
            "-h",
            f"{'ldap' if pair is None else 'ldaps'}://127.0.0.1:{port}",
        ]
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            assert process.poll() is None, "slapd has ended"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "slapd does not listen"
                time.sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        process.wait(timeout=30)
