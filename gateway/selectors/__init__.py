"""JMS selectors: a condition on the fields of a message, SQL-92 in style [JMS 3.8.1].

    selector = compile_selector("colour = 'red' AND weight > 2.5", address="orders")
    selector.matches(message)  # True or False

lexer -> parser -> tree -> build: text to a function, once. fields, stored and view: how the
function sees a stored message, AMQP or STOMP. Pure: the outcome depends on the message and the
text alone.
"""

from gateway.selectors.errors import SelectorError
from gateway.selectors.selector import Selector, compile_selector

__all__ = ["Selector", "SelectorError", "compile_selector"]
