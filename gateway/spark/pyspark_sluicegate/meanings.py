"""What each option and each column means, in a line: the tables of the README are made of this.

A test compares the README with it, and it with the options and columns that there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: option -> which queries take it, what it does.
OPTION_MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "url": ("all", "The management listeners, `http[s]://host:port`, with commas; required."),
    "address": ("all", "The address; required."),
    "subscription": (
        "stream",
        "The name under which the gateway keeps what the query has still to read; required, and one "
        "for each query.",
    ),
    "selector": (
        "stream, batch",
        "A JMS selector: the gateway sends the rows that match. Fixed for the life of a checkpoint.",
    ),
    "startingOffsets": (
        "stream, batch",
        "Where it begins: `earliest`, `latest`, `subscription`, an offset, or JSON by address. "
        "Default: `latest` for a stream, `earliest` for a batch read.",
    ),
    "startingTimestamp": (
        "stream, batch",
        "Begins at the first message accepted at or after this time: ISO 8601, or ms since 1970.",
    ),
    "endingOffsets": (
        "batch",
        "Where it ends, exclusive: `latest` (the default), an offset, or JSON by address.",
    ),
    "endingTimestamp": (
        "batch",
        "Ends in front of the first message accepted at or after this time.",
    ),
    "maxMessagesPerTrigger": (
        "stream",
        "At most so many offsets a batch; those that a selector leaves out count.",
    ),
    "maxBytesPerTrigger": ("stream", "At most about so many stored bytes a batch."),
    "minPartitions": ("stream, batch", "A batch is cut into so many tasks or more."),
    "maxPartitions": ("stream, batch", "A batch is cut into so many tasks or fewer."),
    "targetPartitionBytes": ("stream, batch", "The stored bytes of a task, about."),
    "includeHeaders": (
        "stream, batch",
        "Adds the sender's own headers: `map` or `json` the column `headers`, `variant` the column "
        "`properties`.",
    ),
    "columns": ("stream, batch", "The columns, with commas, instead of the first nine."),
    "bodyFormat": (
        "stream, batch",
        "`binary`, `string` (UTF-8), or `amqp`: the message as it is stored.",
    ),
    "failOnDataLoss": (
        "stream, batch",
        "Whether messages that are gone before they were read end the query; `false` logs them.",
    ),
    "commitMode": (
        "stream",
        "When the gateway may drop what was read: `idle` also when nothing new is there, `engine` "
        "only at Spark's commits, `off` never.",
    ),
    "token": ("all", "A bearer token; it is in Spark's plans, so rather `tokenFile`."),
    "tokenFile": ("all", "A file with a bearer token, on the driver and on each executor."),
    "username": ("all", "A login of the gateway, with `password`."),
    "password": ("all", "Its password."),
    "tlsCaFile": ("all", "Certificates to trust over https, instead of the system's."),
    "readTimeout": ("all", "How long a gateway may be silent in an answer."),
    "connectTimeout": ("all", "How long a connection may take."),
    "retryDeadline": ("all", "How long a call is tried again before the query fails."),
    "pollInterval": ("stream", "How long the gateway holds a question for news."),
    "pushdown": (
        "batch",
        "Conditions on `address`, `offset` and `timestamp` bound what is read; needs "
        "`spark.sql.python.filterPushdown.enabled=true` too.",
    ),
}

COLUMN_MEANINGS: Final[Mapping[str, str]] = {
    "address": "The address.",
    "offset": "The place in the stream: rises by one with each message.",
    "timestamp": "When the address accepted the message.",
    "message_id": "The sender's id.",
    "subject": "AMQP `subject`; STOMP `subject` or `type`.",
    "content_type": "As the sender says.",
    "correlation_id": "As the sender says.",
    "reply_to": "As the sender says.",
    "body": "The body; values that are no bytes as text or JSON.",
    "headers": "Application properties, or headers of the sender's own in STOMP, as texts.",
    "epoch": "The life of the stream: a new one after each delete.",
    "key": "The group: AMQP `group-id`, STOMP `JMSXGroupID`.",
    "priority": "0 to 9.",
    "ttl_ms": "The sender's time to live, AMQP.",
    "created": "When the sender made it, as it says.",
    "expires": "When it expires, as its sender says.",
    "durable": "Whether it was sent as durable (AMQP) or persistent (STOMP).",
    "redelivered": "Whether it was delivered before.",
    "delivery_count": "How often it was delivered before.",
    "size": "Stored bytes.",
    "protocol": "`amqp` or `stomp`: of the sender.",
    "annotations": "Message annotations, AMQP, as texts.",
    "amqp": "The message as it is stored.",
    "properties": "What `headers` has, with types: numbers, booleans, times, lists and maps.",
    "traceparent": "The trace that the sender names: a property, an annotation or a header.",
}
