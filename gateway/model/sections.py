"""Sections of an AMQP message in one place: find, read, change [AMQP 3.2].

`section_scan` finds and reads, `section_edit` changes; everybody imports from here.
"""

from gateway.model.section_edit import (
    strip_delivery_annotations,
    with_annotations,
    with_header,
    with_property,
    without_expiry,
)
from gateway.model.section_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NO_HEADER,
    PROPERTIES,
    SECTIONS_MAX,
    SEQUENCE,
    VALUE,
    BodyKind,
    HeaderFacts,
    Sections,
    delivery_time,
    expiry_and_group,
    front_end,
    header_facts,
    header_fields,
    peek,
    scan,
)

__all__ = [
    "APPLICATION_PROPERTIES",
    "DATA",
    "DELIVERY_ANNOTATIONS",
    "FOOTER",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
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
    "strip_delivery_annotations",
    "with_annotations",
    "with_header",
    "with_property",
    "without_expiry",
]
