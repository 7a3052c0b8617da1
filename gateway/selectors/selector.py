"""A compiled selector: text in, a function of messages out.

Most selectors name one field. Theirs is read straight out of the stored message and handed to a
function of that value: no view is made. All others look at the message through a view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from gateway.model.message import Message
from gateway.selectors.build import Builder, Test, itself, names
from gateway.selectors.fields import Reader, reader
from gateway.selectors.parser import parse
from gateway.selectors.view import Plan, View

#: Consumers come and go with the same selectors; a compiled one takes a few KiB.
_COMPILED_MAX: Final = 512


class Selector:
    """A selector of one queue. Immutable; may be shared, and is: see `compile_selector`.

    Attributes:
        text: as it was given.
        names: the fields it looks at.
        matches: says whether a message is selected: the condition is true, neither false nor
            unknown. Never raises. Time is bounded by the nodes of the selector and the bytes in
            front of the message's body.
    """

    __slots__ = ("matches", "names", "text")

    matches: Callable[[Message], bool]

    def __init__(self, text: str, address: str) -> None:
        """Compile; raises SelectorError."""
        parsed = parse(text)
        self.text = text
        self.names = names(parsed.tree)
        if len(self.names) == 1:
            builder = Builder(lambda name: itself, converting=parsed.converting)
            (name,) = self.names
            self.matches = _of_field(builder.is_true(parsed.tree), reader(name, address))
        else:
            plan = Plan(self.names, address)
            builder = Builder(plan.getter, converting=parsed.converting)
            self.matches = _of_view(builder.is_true(parsed.tree), plan)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def _of_field(test: Test, read: Reader) -> Callable[[Message], bool]:
    return lambda message: test(read(message)) is True


def _of_view(test: Test, plan: Plan) -> Callable[[Message], bool]:
    return lambda message: test(View(message, plan)) is True


@lru_cache(maxsize=_COMPILED_MAX)
def compile_selector(text: str, address: str = "") -> Selector:
    """Return the selector for messages of a queue; raises SelectorError, a RefusedError.

    The same text and address give the same object, so that consumers of a queue with one selector
    can be told by identity.

    Args:
        text: a condition [JMS 3.8.1], at most 1 KiB; with the prefix `convert_string_expressions:`
            texts count as numbers where a number is wanted, with `hyphenated_props:` names may have
            '-' inside.
        address: of the queue, for `AMQAddress` and `JMSDestination`.
    """
    return Selector(text, address)
