"""Every command with its arguments and options, from the click group."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gateway.cli.main import cli
from tests.reference.tables import sentence, table


def render() -> str:
    """Return the page below its title."""
    parts = [f"{inspect.cleandoc(cli.help or '')}\n"]
    parts += [_section(path, command) for path, command in every(cli, "sluicegate")]
    return "\n".join(parts)


def every(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Go through the commands of a group and of the groups in it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every(command, f"{path} {name}")


def _section(path: str, command: click.Command) -> str:
    depth = "#" * path.count(" ")
    text = f"#{depth} {path}\n\n```\n{_usage(path, command)}\n```\n\n"
    text += inspect.cleandoc(command.help or "") + "\n"
    rows = [
        [_spelling(one), sentence(one.help or ""), _default(one)]
        for one in command.params
        if isinstance(one, click.Option) and not one.hidden
    ]
    return text + "\n" + table(["option", "meaning", "default"], rows) if rows else text


def _usage(path: str, command: click.Command) -> str:
    words = [path]
    if any(isinstance(one, click.Option) for one in command.params):
        words.append("[OPTIONS]")
    for one in command.params:
        if isinstance(one, click.Argument):
            name = one.metavar or (one.name or "").upper()
            words.append(name if one.required else f"[{name}]")
    if isinstance(command, click.Group):
        words.append("COMMAND ...")
    return " ".join(words)


def _spelling(option: click.Option) -> str:
    spelt = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag:
        return spelt
    kind = option.metavar or option.type.name.split(" ")[0].upper()
    return f"{spelt} {kind}{' ...' if option.multiple else ''}{_bounds(option.type)}"


def _bounds(kind: click.ParamType) -> str:
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return ""
    if kind.max is None:
        return f", at least {kind.min}"
    return f", {kind.min} to {kind.max}"


def _default(option: click.Option) -> str:
    return f"`{option.default}`" if option.show_default else ""
