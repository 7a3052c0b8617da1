"""Every call of the HTTP API, from the routes and the texts of their modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from gateway.management import api
from gateway.management.config_api import ConfigApi
from gateway.management.connections_api import ConnectionsApi
from gateway.management.http import SAFE_METHODS
from gateway.management.quotas_api import QuotasApi
from gateway.management.router import Router
from gateway.management.scrub_api import ScrubApi
from gateway.management.sink_api import SinkApi
from gateway.management.streams_api import StreamsApi
from gateway.management.token_api import TokenApi
from gateway.model.roles import Need
from tests.management.core import Core
from tests.reference.tables import sentence, table

_INTRODUCTION = """\
Bodies and answers are JSON, but for `/metrics` and for rows of streams. A refusal is
`{"code", "message"}` with the codes and sentences that clients are told. A parameter of a path is
one segment, percent-encoded. A list is answered whole; with `?limit=` it comes in pages, with
`total` and `cursor`. A call that is logged is a line `api.changed` or `api.change_refused`.

Once permissions are judged a call needs a role, or one above it: `view`, `edit`, `manage`, `admin`
(`[api-roles]`). With `open` nobody has to log in; with `address` any role will do, and the call is
judged by the permissions at the address that it is about.
"""
#: A call that is answered without a method of its own.
_MEANINGS = {"/metrics": "The Prometheus text exposition."}


class Recorder(Router):
    """A table of routes that remembers its functions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, Callable[..., Any], bool, Need]] = []

    def add(self, method: str, template: str, function: Any, **words: Any) -> None:
        super().add(method, template, function, **words)
        logged = words.get("audited", True) and method not in SAFE_METHODS
        self.found.append((method, template, function, logged, words["need"]))


def routes() -> Recorder:
    """Return every route of a gateway, as `gateway.assembly.app` adds them."""
    recorder = Recorder()
    nothing = cast("Any", None)  # no function is called
    api.add_routes(recorder, Core().sources)
    ScrubApi(nothing, nothing).add_routes(recorder)
    StreamsApi(nothing, nothing).install(recorder)
    SinkApi(nothing).add_routes(recorder)
    ConfigApi(nothing).add_routes(recorder)
    QuotasApi(nothing).add_routes(recorder)
    ConnectionsApi(nothing, nothing, nothing).add_routes(recorder)
    TokenApi(nothing).add_routes(recorder)
    return recorder


def render() -> str:
    """Return the page below its title."""
    modules: dict[str, list[list[str]]] = {}
    texts: dict[str, str] = {}
    for method, template, function, logged, need in routes().found:
        module = inspect.getmodule(function)
        assert module is not None
        meaning = _MEANINGS.get(template) or inspect.getdoc(function) or ""
        row = [f"`{method}`", f"`{template}`", sentence(meaning), need.value]
        row.append("yes" if logged else "")
        modules.setdefault(module.__name__, []).append(row)
        texts[module.__name__] = inspect.cleandoc(module.__doc__ or "")
    parts = [_INTRODUCTION]
    for name, rows in modules.items():
        title = name.rpartition(".")[2].removesuffix("_api").capitalize()
        title = {"Api": "State", "Config": "Configuration", "Token": "Tokens"}.get(title, title)
        calls = table(["method", "path", "meaning", "needs", "logged"], rows)
        parts.append(f"## {title}\n\n{calls}\n```text\n{texts[name]}\n```\n")
    return "\n".join(parts)
