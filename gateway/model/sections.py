"""Sections of an AMQP message in one place: find, read, change [AMQP 3.2].

`section_scan` finds one, `section_list` all of them; `section_header` and `section_front` answer
what is asked of each message that comes in; `section_edit` changes. Everybody imports from here.
"""

from gateway.model.section_edit import (
    strip_delivery_annotations,
    with_annotations,
    with_first_acquirer,
    with_header,
    with_property,
    without_expiry,
)
from gateway.model.section_front import (
    DELIVERY_NAMES,
    NO_ANNOTATIONS,
    delivery_time,
    expiry_and_group,
    front_end,
)
from gateway.model.section_header import NO_HEADER, HeaderFacts, header_facts, header_fields
from gateway.model.section_list import SECTIONS_MAX, BodyKind, Sections, peek, scan
from gateway.model.section_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_at,
)

__all__ = [
    "APPLICATION_PROPERTIES",
    "DATA",
    "DELIVERY_ANNOTATIONS",
    "DELIVERY_NAMES",
    "FOOTER",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
    "NO_ANNOTATIONS",
    "NO_HEADER",
    "PROPERTIES",
    "SECTIONS_MAX",
    "SEQUENCE",
    "VALUE",
    "BodyKind",
    "HeaderFacts",
    "Sections",
    "delivery_time",
    "expiry_and_group",
    "front_end",
    "header_facts",
    "header_fields",
    "peek",
    "scan",
    "section_at",
    "strip_delivery_annotations",
    "with_annotations",
    "with_first_acquirer",
    "with_header",
    "with_property",
    "without_expiry",
]
