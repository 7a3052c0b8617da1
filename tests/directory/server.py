"""A directory for tests: ldaptor over loopback, in a process of its own; `Tree` is what it holds.

`python -m tests.directory.server LDIF [CERTIFICATE KEY]` prints the port that it listens on. It
lets anybody in who gives an empty password, as directories do [RFC 4513 5.1.2].
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.trial.scratch import importing_environment
from gateway.trial.self_signed import KeyPair

PEOPLE = "ou=people,dc=example"
GROUPS = "ou=groups,dc=example"
SERVICE = "cn=gate,dc=example"
SERVICE_PASSWORD = "gate-secret"

LDIF = f"""\
dn: dc=example
objectClass: domain
dc: example

dn: {SERVICE}
objectClass: person
cn: gate
sn: gate
userPassword: {SERVICE_PASSWORD}

dn: {PEOPLE}
objectClass: organizationalUnit
ou: people

dn: {GROUPS}
objectClass: organizationalUnit
ou: groups

dn: uid=ann,{PEOPLE}
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: Ann
userPassword: right

dn: uid=bob,{PEOPLE}
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Bob
userPassword: other

dn: uid=twin,{PEOPLE}
objectClass: inetOrgPerson
uid: twin
uid: double
cn: Twin
sn: Twin
userPassword: right

dn: cn=another twin,{PEOPLE}
objectClass: inetOrgPerson
uid: twin
cn: another twin
sn: Twin
userPassword: right

dn: cn=Ops,{GROUPS}
objectClass: groupOfNames
cn: Ops
member: uid=ann,{PEOPLE}

dn: cn=readers,{GROUPS}
objectClass: groupOfNames
cn: readers
member: uid=ann,{PEOPLE}
member: uid=bob,{PEOPLE}

"""


@contextmanager
def directory(
    folder: Path, pair: KeyPair | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run one; gives its process and its port."""
    file = folder / "tree.ldif"
    file.write_text(LDIF)
    files = () if pair is None else (str(pair.certificate), str(pair.key))
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.directory.server", str(file), *files],
        stdout=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def main(file: str, *pair: str) -> None:
    """Serve until somebody ends the process."""
    from ldaptor.inmemory import fromLDIFFile
    from ldaptor.interfaces import IConnectedLDAPEntry
    from ldaptor.protocols.ldap.ldapserver import LDAPServer
    from twisted.internet import reactor
    from twisted.internet.protocol import ServerFactory
    from twisted.internet.ssl import DefaultOpenSSLContextFactory
    from twisted.python.components import registerAdapter

    any_reactor: Any = reactor

    class Factory(ServerFactory):
        protocol = LDAPServer

        def __init__(self, root: object) -> None:
            self.root = root

    registerAdapter(lambda factory: factory.root, Factory, IConnectedLDAPEntry)

    def serve(root: object) -> None:
        factory = Factory(root)
        if pair:
            context = DefaultOpenSSLContextFactory(pair[1], pair[0])
            port = any_reactor.listenSSL(0, factory, context, interface="127.0.0.1")
        else:
            port = any_reactor.listenTCP(0, factory, interface="127.0.0.1")
        sys.stdout.write(f"{port.getHost().port}\n")
        sys.stdout.flush()

    with Path(file).open("rb") as source:
        fromLDIFFile(source).addCallback(serve).addErrback(lambda f: sys.stderr.write(str(f)))
    any_reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
