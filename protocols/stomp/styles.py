"""What a destination means, by how it is written: our own words and those of other brokers.

    written                          from                 means
    <acceptor's prefix>NAME          Artemis              an address, with the prefix's routing type
    NAME, NAME::QUEUE                Artemis              an address, or one queue of it
    queue://NAME, topic://NAME       ActiveMQ, JMS        as /queue/NAME, /topic/NAME
    /exchange/amq.topic/KEY          RabbitMQ             the multicast address KEY
    /amq/queue/NAME                  RabbitMQ             a queue that is there, by its own name
    /temp-queue/NAME, /temp-topic/   RabbitMQ, ActiveMQ   a temporary address of this connection
    /reply-queue/NAME                RabbitMQ             where an answer goes, if that is there
    /remote-temp-queue/, -topic/     ActiveMQ             the same
    other /exchange/, jms.queue.,    RabbitMQ, Artemis 1, refused by name
    temp-queue://, a.>, ?consumer.,  ActiveMQ
    /queue/a,/queue/b

The acceptor's prefixes come first, so that they may give any of these another meaning; what follows
them is looked at all the same. It knows no broker and no header. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn
from urllib.parse import unquote

from gateway.model.address import FQQN_SEPARATOR, RoutingType
from gateway.model.errors import Code, RefusedError
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits


class Place(Enum):
    """Where the name that is left leads.

    ADDRESS: an address, or `address::queue`; made where settings allow it.
    EXISTING: a queue by its own name, which is never made.
    ANSWERS: what a reply-to of ours told; nothing where that is gone.
    OWN: a temporary address that the connection knows by this word.
    """

    ADDRESS = "address"
    EXISTING = "existing"
    ANSWERS = "answers"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A destination, read.

    Attributes:
        text: as it was written.
        place: where `name` leads.
        name: without the words of the style.
        routing: the routing type that the style asks for; None: none.
    """

    text: str
    place: Place
    name: str
    routing: RoutingType | None


_ANYCAST: Final = RoutingType.ANYCAST
_MULTICAST: Final = RoutingType.MULTICAST
#: How the answers to a temporary queue or topic are told to others.
ANSWER_QUEUE: Final = "/reply-queue/"
ANSWER_TOPIC: Final = "/remote-temp-topic/"
_AMQ_TOPIC: Final = "/exchange/amq.topic/"
_AMQ_QUEUE: Final = "/amq/queue/"
_STYLES: Final[tuple[tuple[str, Place, RoutingType | None], ...]] = (
    ("queue://", Place.ADDRESS, _ANYCAST),
    ("topic://", Place.ADDRESS, _MULTICAST),
    (_AMQ_TOPIC, Place.ADDRESS, _MULTICAST),
    (_AMQ_QUEUE, Place.EXISTING, None),
    ("/temp-queue/", Place.OWN, _ANYCAST),
    ("/temp-topic/", Place.OWN, _MULTICAST),
    (ANSWER_QUEUE, Place.ANSWERS, None),
    ("/remote-temp-queue/", Place.ANSWERS, None),
    (ANSWER_TOPIC, Place.ANSWERS, None),
)
#: RabbitMQ writes `/` and `%` of a name as %2F and %25 in these.
_PERCENT: Final = (_AMQ_TOPIC, _AMQ_QUEUE)
_EXCHANGE: Final = "/exchange/"
#: A comma, and the beginning of another destination: both are sent to in ActiveMQ.
_COMPOSITE: Final = tuple(
    "," + begin
    for begin in ("/queue/", "/topic/", "/temp-queue/", "/temp-topic/", "queue://", "topic://")
)
_OPTIONS: Final = "?consumer."
_ACTIVEMQ_REST: Final = ">"
_BEFORE_TYPES: Final = {
    "jms.queue.": ("anycast-prefix", "/queue/"),
    "jms.topic.": ("multicast-prefix", "/topic/"),
}


def read_destination(text: str, limits: StompLimits) -> Named:
    """Return what a destination of SEND or SUBSCRIBE, or a reply-to, means.

    The name that is left is not judged; `temporary` ones are never empty.

    Raises:
        RefusedError: not-implemented for a style that is refused, with what to write in its place;
            bad-name where a style has no name behind it.
    """
    for prefixes, routing in (
        (limits.anycast_prefixes, _ANYCAST),
        (limits.multicast_prefixes, _MULTICAST),
    ):
        for prefix in prefixes:
            if text.startswith(prefix):
                name = text[len(prefix) :]
                _check_syntax(text, name)
                return Named(text=text, place=Place.ADDRESS, name=name, routing=routing)
    return _styled(text)


def _styled(text: str) -> Named:
    for begin, place, routing in _STYLES:
        if text.startswith(begin):
            name = text[len(begin) :]
            if begin in _PERCENT:
                _check_slashes(text, begin, name)
                name = unquote(name)
            if not name:
                raise RefusedError.of(
                    Code.BAD_NAME, f"Destination '{shown(text)}' names nothing behind '{begin}'."
                )
            if place is Place.ADDRESS:
                _check_syntax(text, name)
            return Named(text=text, place=place, name=name, routing=routing)
    _check_foreign(text)
    _check_syntax(text, text)
    return Named(text=text, place=Place.ADDRESS, name=text, routing=None)


def _check_slashes(text: str, begin: str, name: str) -> None:
    if "/" in name:
        _refuse(text, f"has more than one part behind '{begin}'", "Write %2F for a '/' of a name.")


def _check_foreign(text: str) -> None:
    """Raise RefusedError for what other brokers understand and this gateway does not."""
    if text.startswith(_EXCHANGE):
        _refuse_exchange(text)
    for scheme in ("temp-queue", "temp-topic"):
        if text.startswith(f"{scheme}://"):
            name = text.removeprefix(f"{scheme}://")
            _refuse(text, "is a JMS name of ActiveMQ", f"Write '/{scheme}/{shown(name)}'.")
    if FQQN_SEPARATOR in text:
        return  # the way to an address of that very name
    for begin, (setting, prefix) in _BEFORE_TYPES.items():
        if text.startswith(begin):
            name = shown(text.removeprefix(begin))
            _refuse(
                text,
                "is a name of Artemis 1",
                f"Write '{prefix}{name}', or set {setting} = \"{begin}\" for the acceptor; "
                f"'{shown(text)}::QUEUE' is a queue of an address of that very name.",
            )


def _refuse_exchange(text: str) -> NoReturn:
    exchange, _, key = text.removeprefix(_EXCHANGE).partition("/")
    key = shown(key) or "KEY"
    what = f"names the exchange '{shown(exchange)}' of RabbitMQ"
    advice = {
        "amq.topic": f"Write '{_AMQ_TOPIC}{key}', with a key.",
        "amq.direct": f"Write '/topic/{key}' for a copy to each subscriber, or '/queue/{key}'.",
        "amq.fanout": "Write '/topic/NAME', which gives a copy to each subscriber.",
    }
    otherwise = (
        f"This gateway has addresses in place of exchanges: write '/topic/{key}' for a copy to "
        f"each subscriber, or '/queue/{key}'."
    )
    _refuse(text, what, advice.get(exchange, otherwise))


def _check_syntax(text: str, name: str) -> None:
    """Raise RefusedError for ActiveMQ's syntax inside of a name; `text` is the whole."""
    for mark in _COMPOSITE:
        if mark in name:
            _refuse(
                text,
                "is several destinations of ActiveMQ",
                "Send to each, or configure a divert from one address to the others.",
            )
    if _OPTIONS in name:
        _refuse(
            text,
            "has destination options of ActiveMQ",
            "Leave them out: selector, prefetch-count, consumer-window-size and no-local are "
            "headers of SUBSCRIBE.",
        )
    if FQQN_SEPARATOR in name:
        return
    words = name.split(".")
    if words[-1] == _ACTIVEMQ_REST:
        plain = shown(text[: -len(_ACTIVEMQ_REST)])
        _refuse(text, "has the wildcard '>' of ActiveMQ", f"Write '{plain}#'.")


def _refuse(text: str, what: str, instead: str) -> NoReturn:
    raise RefusedError.of(
        Code.NOT_IMPLEMENTED, f"Destination '{shown(text)}' {what}, which is not offered. {instead}"
    )
