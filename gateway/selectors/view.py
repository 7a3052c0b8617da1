"""One message as a selector looks at it: each field is read when a condition asks for it, once.

All application properties that the selector names are found in one walk over their section, at the
first that is asked for. Nothing is decoded that the selector does not name, and a selector that is
decided by a fact of the broker (priority, durability) reads no body at all. A view lives for one
evaluation; what it has read lives no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.model.message import STOMP, Message
from gateway.model.sections import APPLICATION_PROPERTIES
from gateway.selectors.fields import Reader, is_fact, is_property, reader
from gateway.selectors.stored import header, header_mark, map_values
from gateway.selectors.values import Scalar


class Plan:
    """What a selector will ask for: made once, shared by its views. Immutable.

    Attributes:
        keys: names of application properties by their bytes in UTF-8.
        marks: the same names, each with the mark of its STOMP header.
    """

    __slots__ = ("_address", "keys", "marks")

    def __init__(self, names: Iterable[str], address: str) -> None:
        self._address = address
        own = sorted(filter(is_property, names))
        self.keys = {name.encode("utf-8", "replace"): name for name in own}
        self.marks = [(name, header_mark(name)) for name in own]

    def getter(self, name: str) -> Callable[[View], Scalar]:
        """Return the function that gets a field out of a view."""
        if is_property(name):
            return _property_getter(name)
        read = reader(name, self._address)
        if is_fact(name):
            return lambda view: read(view.message)
        return _other_getter(name, read)


def _property_getter(name: str) -> Callable[[View], Scalar]:
    def get(view: View) -> Scalar:
        known = view.properties
        if known is None:
            known = view.read_properties()
        return known.get(name)

    return get


def _other_getter(name: str, read: Reader) -> Callable[[View], Scalar]:
    def get(view: View) -> Scalar:
        known = view.others
        if known is None:
            known = view.others = {}
        if name not in known:
            known[name] = read(view.message)
        return known[name]

    return get


class View:
    """See the module text.

    Attributes:
        message: what is looked at.
        properties: application properties by name, once one was asked for.
        others: what else was read so far, by name.
    """

    __slots__ = ("_plan", "message", "others", "properties")

    def __init__(self, message: Message, plan: Plan) -> None:
        self.message = message
        self._plan = plan
        self.properties: dict[str, Scalar] | None = None
        self.others: dict[str, Scalar] | None = None

    def read_properties(self) -> dict[str, Scalar]:
        """Read all application properties that the plan names; absent ones are left out."""
        body = self.message.body
        if self.message.flags & STOMP:
            found: dict[str, Scalar] = {name: header(body, mark) for name, mark in self._plan.marks}
        else:
            found = map_values(body, APPLICATION_PROPERTIES, self._plan.keys)
        self.properties = found
        return found
