"""The tables `[tokens.NAME]` read: each by its rows, and all against one another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gateway.config import schema
from gateway.config.errors import Path
from gateway.config.tokens import IssuerConfig, TokenAlgorithm, issuer_problem

_FILES = ("jwks_file", "secret_file", "ca_file")


class Walk(Protocol):
    """The walk over the layers of a configuration, as far as issuers need it."""

    problems: list[Any]

    def wrong(self, path: Path, text: str) -> None:
        """Collect a problem."""

    def table(self, raw: object, path: Path, keys: schema.Table) -> dict[str, Any]:
        """Return field -> value for what was written in one table."""


def read_issuers(
    walk: Walk, tables: Iterable[tuple[str, object]], absolute: Callable[[str], str]
) -> tuple[IssuerConfig, ...]:
    """Return the issuers of these tables; `absolute` makes paths so."""
    found: dict[str, IssuerConfig] = {}
    for name, table in tables:
        path: Path = ("tokens", name)
        before = len(walk.problems)
        read = walk.table(table, path, schema.TOKENS)
        if len(walk.problems) > before:
            continue
        problem = issuer_problem(read)
        if problem is not None:
            walk.wrong((*path, problem[0]), problem[1])
            continue
        if "secret_file" in read:
            read.setdefault("algorithms", frozenset({TokenAlgorithm.HS256}))
        read |= {key: absolute(read[key]) for key in _FILES if key in read}
        issuer = IssuerConfig(name=name, **read)
        other = found.setdefault(issuer.issuer, issuer)
        if other is not issuer:
            walk.wrong((*path, "issuer"), f"is the issuer of tokens.{other.name} as well")
    return tuple(found.values())
