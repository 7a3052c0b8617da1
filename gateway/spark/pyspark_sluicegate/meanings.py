"""What each option and each column means, in a line. The tables of the README are made of it.

A test compares the README with this, and this with the options and columns that there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Meaning(NamedTuple):
    """Which queries take an option, and what it does."""

    used_by: str
    text: str


#: option -> which queries take it, what it does.
OPTION_MEANINGS: Final[Mapping[str, Meaning]] = {
    "url": Meaning(
        "all", "The management listeners, `http[s]://host:port`, with commas; required."
    ),
    "address": Meaning(
        "all",
        "The address. It or `addressPattern` is required to read, it or a column `address` to "
        "write.",
    ),
    "addressPattern": Meaning(
        "stream, batch",
        "All tapped addresses that fit: `*` is one word, `#` at the end is the rest.",
    ),
    "newStreamOffsets": Meaning(
        "stream", "Where streams begin that come later under a pattern: `earliest` or `latest`."
    ),
    "subscription": Meaning(
        "stream",
        "The name under which the gateway keeps what the query has still to read; required, and "
        "one for each query.",
    ),
    "selector": Meaning(
        "stream, batch",
        "A JMS selector: the gateway sends the rows that match. Fixed for a checkpoint's life.",
    ),
    "startingOffsets": Meaning(
        "stream, batch",
        "Where it begins: `earliest`, `latest`, `subscription`, an offset, or JSON by address. "
        "Default: `latest` for a stream, `earliest` for a batch read.",
    ),
    "startingTimestamp": Meaning(
        "stream, batch",
        "Begins at the first message accepted at or after this time: ISO 8601, or ms since 1970.",
    ),
    "endingOffsets": Meaning(
        "batch",
        "Where it ends, exclusive: `latest` (the default), an offset, or JSON by address.",
    ),
    "endingTimestamp": Meaning(
        "batch",
        "Ends in front of the first message accepted at or after this time.",
    ),
    "maxMessagesPerTrigger": Meaning(
        "stream",
        "At most so many offsets a batch; those that a selector leaves out count.",
    ),
    "maxBytesPerTrigger": Meaning("stream", "At most about so many stored bytes a batch."),
    "minPartitions": Meaning("stream, batch", "A batch is cut into so many tasks or more."),
    "maxPartitions": Meaning("stream, batch", "A batch is cut into so many tasks or fewer."),
    "targetPartitionBytes": Meaning("stream, batch", "The stored bytes of a task, about."),
    "includeHeaders": Meaning(
        "stream, batch",
        "Adds the sender's own headers: `map` or `json` the column `headers`, `variant` the column "
        "`properties`.",
    ),
    "columns": Meaning("stream, batch", "The columns, with commas, instead of the first nine."),
    "bodyFormat": Meaning(
        "stream, batch",
        "`binary`, `string` (UTF-8), or `amqp`: the message as it is stored.",
    ),
    "failOnDataLoss": Meaning(
        "stream, batch",
        "Whether messages that are gone before they were read end the query; `false` logs them.",
    ),
    "commitMode": Meaning(
        "stream",
        "When the gateway may drop what was read: `idle` also when nothing new is there, `engine` "
        "only at Spark's commits, `off` never.",
    ),
    "token": Meaning("all", "A bearer token; it is in Spark's plans, so rather `tokenFile`."),
    "tokenFile": Meaning("all", "A file with a bearer token, on the driver and on each executor."),
    "username": Meaning("all", "A login of the gateway, with `password`."),
    "password": Meaning("all", "Its password."),
    "tlsCaFile": Meaning("all", "Certificates to trust over https, instead of the system's."),
    "readTimeout": Meaning(
        "all", "How long an answer is waited for; a second more for each 8 KiB."
    ),
    "connectTimeout": Meaning("all", "How long a connection may take."),
    "retryDeadline": Meaning("all", "How long a call is tried again before the query fails."),
    "pollInterval": Meaning("stream", "How long the gateway holds a question for news."),
    "pushdown": Meaning(
        "batch",
        "Conditions on `address`, `offset` and `timestamp` bound what is read; needs "
        "`spark.sql.python.filterPushdown.enabled=true` too.",
    ),
    "archive": Meaning(
        "stream, batch",
        "The table of an archive: it has the rows that the gateway no longer keeps.",
    ),
    "archiveEndpoint": Meaning("stream, batch", "The address of a store that speaks S3."),
    "archiveRegion": Meaning("stream, batch", "The store's region."),
    "routing": Meaning("sink", "`anycast` or `multicast`; as the address has it without."),
    "producerId": Meaning(
        "sink",
        "The name under which the gateway knows which batches it has published; the query's id "
        "when it is left out.",
    ),
    "batchId": Meaning(
        "sink", "The number of a batch write with `producerId`: written again it is dropped."
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
