"""One login asked of an LDAP directory; blocks, so only ever on a thread.

    connect, TLS ──> log in as the service ──> find the user ──> find its groups ──> log in as it

Each login has a connection of its own, which ends with it. A user who is not there takes the same
steps as one who is, with a name of chance in its place. A password never stands in a name or a
filter, and a name only escaped [RFC 4514, RFC 4515]. An empty password would be let in by most
directories as nobody [RFC 4513 5.1.2]: it is never sent. Referrals are not followed.
"""

from __future__ import annotations

import math
import secrets
import ssl
from pathlib import Path
from typing import Any, Final

from ldap3 import NONE, SIMPLE, SUBTREE, SYNC, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException, LDAPExceptionError
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from gateway.directory.settings import DirectorySettings, Found, UnreachableError

#: What a login's name and the found entry's name stand for.
_USER: Final = "{user}"
_DN: Final = "{dn}"
#: Groups of one user that are looked at.
GROUPS_MAX: Final = 1000
#: Result codes of a bind [RFC 4511 A.1] which say that the login is wrong, and nothing else.
_WRONG: Final = frozenset({32, 34, 48, 49, 50, 53})  # no such object .. unwilling to perform
_OK: Final = 0
_SIZE_LIMIT: Final = 4


class Directory:
    """See the module text. Safe on any thread."""

    def __init__(self, settings: DirectorySettings) -> None:
        """Read what stands in files. Raises OSError, ValueError."""
        self._settings = settings
        self._tls = _Checked(_context(settings))
        self._password = b""
        if settings.password_file:
            lines = Path(settings.password_file).read_bytes().splitlines()
            self._password = lines[0] if lines else b""
            if not self._password:
                raise ValueError("has no password in its first line")

    def ask(self, user: str, secret: str) -> Found | None:
        """Return the user when the directory lets it in; None when it does not.

        Raises UnreachableError.
        """
        password = secret.encode("utf-8", "surrogatepass")
        if not password or not user.strip():
            return None
        connection: Any = None
        try:
            connection = self._connect()
            return self._judge(connection, user, password)
        except (LDAPException, OSError, ValueError) as error:
            raise UnreachableError(f"{type(error).__name__}: {error}"[:300]) from None
        finally:
            if connection is not None:
                _close(connection)

    def _connect(self) -> Any:  # noqa: ANN401 - the library has no types
        """Return a connection that is open, with TLS where there has to be some."""
        settings = self._settings
        server = Server(
            settings.host,
            port=settings.port,
            use_ssl=settings.tls,
            tls=self._tls,
            get_info=NONE,
            connect_timeout=settings.connect_ms / 1000,
        )
        connection = Connection(
            server,
            client_strategy=SYNC,
            auto_bind="NONE",
            auto_referrals=False,
            auto_range=False,
            check_names=False,
            read_only=True,
            raise_exceptions=False,
            receive_timeout=math.ceil(settings.answer_ms / 1000),
        )
        connection.open(read_server_info=False)
        if settings.start_tls and not connection.start_tls(read_server_info=False):
            _close(connection)
            raise UnreachableError("the directory does not begin TLS")
        return connection

    def _judge(self, connection: Any, user: str, password: bytes) -> Found | None:  # noqa: ANN401
        settings = self._settings
        if settings.bind_dn and not self._bind(connection, settings.bind_dn, self._password):
            raise UnreachableError(f"it does not let in {settings.bind_dn}, the bind-dn")
        entry = self._find(connection, user)
        dn, name = entry if entry is not None else (self._nobody(), user)
        # Groups are looked for before the user logs in, which may see less than the service.
        groups = self._groups(connection, dn, name) if settings.bind_dn or entry is None else None
        right = self._bind(connection, dn, password if entry else secrets.token_hex(12).encode())
        if not right or entry is None:
            return None
        if groups is None:
            groups = self._groups(connection, dn, name)
        held = (settings.roles.get(group.casefold(), frozenset()) for group in groups)
        return Found(user=name, roles=frozenset().union(*held))

    def _bind(self, connection: Any, dn: str, password: bytes) -> bool:  # noqa: ANN401
        """Log in; False when name or password are wrong."""
        # Bytes: as a text the library would prepare it, and what is left may be empty.
        connection.rebind(user=dn, password=password, authentication=SIMPLE, read_server_info=False)
        code = connection.result["result"]
        if code == _OK:
            return True
        if code in _WRONG:
            return False
        raise UnreachableError(f"it answers a login with {connection.result['description']}")

    def _find(self, connection: Any, user: str) -> tuple[str, str] | None:  # noqa: ANN401
        """Return the entry's name and the user's; None when there is none, or more than one."""
        settings = self._settings
        if settings.user_dn_template:
            # A directory takes them for the same whatever their case and spaces.
            name = user.casefold()
            return settings.user_dn_template.replace(_USER, escape_rdn(name)), name
        asked = settings.search_filter.replace(_USER, escape_filter_chars(user))
        found = self._search(connection, settings.search_base, asked, settings.user_attribute, 2)
        if len(found) != 1:
            return None
        dn, values = found[0]
        name = values[0] if values else user
        return (dn, name) if dn else None

    def _groups(self, connection: Any, dn: str, user: str) -> list[str]:  # noqa: ANN401
        settings = self._settings
        if not settings.group_base:
            return []
        asked = settings.group_filter.replace(_DN, escape_filter_chars(dn))
        asked = asked.replace(_USER, escape_filter_chars(user))
        found = self._search(
            connection, settings.group_base, asked, settings.group_attribute, GROUPS_MAX
        )
        return [value for _, values in found for value in values]

    def _search(
        self,
        connection: Any,  # noqa: ANN401
        base: str,
        asked: str,
        attribute: str,
        most: int,
    ) -> list[tuple[str, list[str]]]:
        """Return names of entries, each with the values of an attribute; never more than `most`."""
        connection.search(
            base,
            asked,
            search_scope=SUBTREE,
            attributes=[attribute],
            size_limit=most,
            time_limit=math.ceil(self._settings.answer_ms / 1000),
        )
        code = connection.result["result"]
        if code not in (_OK, _SIZE_LIMIT, 32):
            raise UnreachableError(f"it answers a search with {connection.result['description']}")
        entries = [e for e in connection.response or () if e["type"] == "searchResEntry"]
        return [
            (str(entry["dn"]), [_text(value) for value in _values(entry, attribute)])
            for entry in entries[:most]
        ]

    def _nobody(self) -> str:
        """Return the name of an entry that there is not."""
        below = self._settings.search_base or self._settings.user_dn_template.partition(",")[2]
        return f"cn={secrets.token_hex(16)}" + (f",{below}" if below else "")


def _values(entry: Any, attribute: str) -> list[Any]:  # noqa: ANN401
    """Return the values of an attribute, whose name the directory may write in another case."""
    for name, values in entry["raw_attributes"].items():
        if str(name).casefold() == attribute.casefold():
            return list(values)
    return []


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _close(connection: Any) -> None:  # noqa: ANN401
    try:
        connection.unbind()
    except (LDAPExceptionError, OSError):
        return  # it is gone already


class _Checked(Tls):  # type: ignore[misc]
    """TLS by the standard library's own rules: the certificate's chain and name are checked."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._context = context

    def wrap_socket(self, connection: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        """Begin TLS, whatever the library asks for, with the handshake at once."""
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=connection.server.host
        )


def _context(settings: DirectorySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
