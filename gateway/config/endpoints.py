"""What an endpoint string says about who can reach it. Pure.

The strings are Twisted's (`tcp:5672:interface=127.0.0.1`); Twisted opens them, but for TLS, which
the gateway speaks itself over what `plain` says. Here they are only taken apart far enough to
refuse impossible ones before anything is opened, and to know whether a listener is reachable from
elsewhere and whether it is encrypted. What this module does not know counts as reachable.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from gateway.config.tls import (
    SSL_WORDS,
    TLS_WORDS,
    TlsSource,
    ssl_source,
    tls_source,
    words_of,
)

_KNOWN: Final = ("tcp", "tcp6", "ssl", "tls", "unix", "systemd", "haproxy")
_PORT_MAX: Final = 65535
_LOCAL_NAMES: Final = ("localhost", "ip6-localhost", "ip6-loopback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint string and what it means.

    Attributes:
        text: as written.
        kind: its first word (`tcp`).
        loopback: only processes of this machine reach it.
        tls: the listener itself encrypts.
        shown: `127.0.0.1:5672` or a path, for people.
        plain: the string for Twisted of the same listener without TLS.
        source: where the gateway's own TLS has its certificates from; None where it speaks none,
            or where it is Twisted's, as behind `haproxy:`.
    """

    text: str
    kind: str
    loopback: bool
    tls: bool
    shown: str
    plain: str = ""
    source: TlsSource | None = None

    @property
    def string(self) -> str:
        """What Twisted opens."""
        return self.plain or self.text

    @property
    def host(self) -> str:
        """The address that others connect to; empty where it is not one, or of this machine."""
        host = self.shown.rpartition(":")[0].strip("[]")
        return "" if self.loopback or host in ("*", "", "::", "0.0.0.0") else host  # noqa: S104

    @property
    def told(self) -> str:
        """What is written of it, in the endpoint and below it, for people."""
        source, told = self.source, self.text
        if source is None:
            return told
        if source.table:
            files = (source.directory, source.certificate, source.key, source.chain)
            told += f" with TLS from {', '.join(file for file in files if file)}"
        return told + source.told


def read_endpoint(value: object) -> Endpoint:
    """Take an endpoint string; raises ValueError with the reason."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError('needs an endpoint such as "tcp:5672:interface=127.0.0.1"')
    positional, keywords = _split(value)
    kind = positional[0] if positional else ""
    if kind == "haproxy":
        inner = read_endpoint(value.partition(":")[2])
        # Behind a proxy every peer is remote, whatever address the proxy itself comes from.
        return Endpoint(text=value, kind=kind, loopback=False, tls=inner.tls, shown=inner.shown)
    if kind == "unix":
        path = keywords.get("address") or "".join(positional[1:2])
        if not path:
            raise ValueError(
                f'"{value}" names no path; write for example "unix:/run/sluicegate.sock"'
            )
        return Endpoint(text=value, kind=kind, loopback=True, tls=False, shown=f"unix:{path}")
    if kind == "systemd":
        local = keywords.get("domain", "").upper() == "UNIX"
        return Endpoint(text=value, kind=kind, loopback=local, tls=False, shown=value)
    if kind in ("tcp", "tcp6", "ssl", "tls"):
        return _network(value, kind, positional, keywords)
    if not kind.isidentifier():
        raise ValueError(
            f'"{value}" is no endpoint; write for example "tcp:5672:interface=127.0.0.1"'
        )
    known = ", ".join(_KNOWN)
    raise ValueError(f'"{value}" has the unknown kind "{kind}"; the kinds are {known}')


def _network(value: str, kind: str, positional: list[str], keywords: dict[str, str]) -> Endpoint:
    words = keywords
    source: TlsSource | None = None
    if kind == "ssl":
        words = words_of(value, SSL_WORDS, positional[1:], keywords)
        source = ssl_source(value, words)
    elif kind == "tls":
        words = {"port": "443", **words_of(value, TLS_WORDS, positional[1:], keywords)}
        source = tls_source(value, words)
    port_text = words.get("port") or "".join(positional[1:2])
    if not port_text.isascii() or not port_text.isdigit() or int(port_text) > _PORT_MAX:
        raise ValueError(
            f'"{value}" has the port "{port_text}"; a port is a number from 0 to 65535'
        )
    interface = words.get("interface", "")
    shown = (
        f"[{interface}]" if ":" in interface else interface or ("[::]" if kind == "tcp6" else "*")
    )
    return Endpoint(
        text=value,
        kind=kind,
        loopback=_is_loopback(interface),
        tls=source is not None,
        shown=f"{shown}:{port_text}",
        plain="" if source is None else _plain(kind, port_text, interface, words.get("backlog")),
        source=source,
    )


def _plain(kind: str, port: str, interface: str, backlog: str | None) -> str:
    """Return the endpoint of TCP below one of TLS; without an interface `tls:` has both versions.

    So it is with Twisted, whose strings these are.
    """
    if kind == "tls" and not interface:
        interface = "::"
    six = ":" in interface
    parts = ["tcp6" if six else "tcp", port]
    if interface:
        parts.append("interface=" + interface.replace(":", r"\:"))
    if backlog:
        parts.append(f"backlog={backlog}")
    return ":".join(parts)


def _is_loopback(interface: str) -> bool:
    if interface.casefold() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return False


def _split(description: str) -> tuple[list[str], dict[str, str]]:
    """Split at `:`; a backslash takes the next character as it is; `key=value` are keywords."""
    positional: list[str] = []
    keywords: dict[str, str] = {}
    word, key, escaped = "", None, False
    for c in [*description, ":"]:
        if escaped:
            word, escaped = word + c, False
        elif c == "\\":
            escaped = True
        elif c == "=" and key is None:
            key, word = word, ""
        elif c == ":":
            if key is None:
                positional.append(word)
            else:
                keywords[key] = word
            word, key = "", None
        else:
            word += c
    return positional, keywords
