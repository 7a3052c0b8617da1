"""Logging: what may be said (`EVENTS`), how it looks, and how it leaves without stopping anybody.

An event is a name `noun.past_verb` and facts as keys; no prose. `configure` sets structlog up
once, at the composition root: one line a record, for people with colours on a terminal, JSON
elsewhere. On the way out each record loses what looks like a secret, its control characters and
whatever makes it longer than 4 KiB. Lines are written by a thread behind a bounded queue: a
blocked terminal or pipe costs log lines, which are counted, and never the reactor.
"""

from __future__ import annotations

import datetime as dt
import json
import queue
import re
import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog
from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

#: Every event there is, with its meaning; a test compares this with what the code says.
EVENTS: Final[Mapping[str, str]] = {
    "address.blocked": "an operator holds its senders back",
    "address.configured": "an address or queue of the configuration was made or changed",
    "address.full": "`limit` is reached; `policy` says what follows; `suppressed`: left out",
    "address.paging_ended": "nothing is on pages any more: messages stay in memory again",
    "address.paging_started": "a limit is reached: what is sent goes to page files",
    "address.reaped": "a queue or address that was made on demand and is not used was taken away",
    "address.room_again": "it was full, and takes messages again",
    "address.unblocked": "an operator lets its senders go on",
    "config.changed": "a key has another value since the configuration was read again; `effect`",
    "config.contradicted": "a client has made what the configuration contradicts; it stays",
    "config.refused": "the configuration was read again and is wrong; nothing was changed",
    "config.reloaded": "the configuration was read again; `needs_restart` keys are not in force",
    "api.change_refused": "a call of the API that would change something was refused; `code`",
    "api.changed": "something was changed over the API: `user`, `peer`, `route`, and how many",
    "audit.failed": "the audit trail cannot be written; `stops`: so the gateway ends",
    "audit.goes_on": "the audit trail is written again; `lost` events are not in it",
    "audit.noted": "what the audit trail was told, with `audit.to-log`",
    "audit.opened": "an audit trail is kept from here on; `keyed`: nobody else can seal lines",
    "audit.tampered": "a start has found the audit trail other than it was left",
    "certificate.chain_broken": "a certificate is not signed by the one that is sent behind it",
    "certificate.expired": "clients will refuse this certificate: it has expired",
    "certificate.expires_soon": "a certificate has less than so many `days` left",
    "certificate.is_authority": "a listener has a certificate that may sign others (CA:TRUE)",
    "certificate.not_for_servers": "clients will refuse this certificate: it is not for servers",
    "certificate.not_valid_yet": "clients will refuse this certificate: it begins later",
    "certificate.refused": "files of TLS changed and cannot be used; the old ones stay in use",
    "certificate.renewed": "files of TLS changed; connections from now on get what is in them",
    "certificate.revocations_expired": "a list in client-crl is out of date: no client comes in",
    "certificate.weak": "clients may refuse this certificate: its key or signature is weak",
    "certificate.without_user": "a client's certificate is trusted, and by no rule a user's",
    "certificate.without_user_more": "`count` more within `seconds`, not told one by one",
    "certificate.wrong_name": "no certificate of a listener is for the `host` that it is at",
    "connection.closed": "a connection ended; `cause` says why, and what went over it",
    "connection.dismissed": "a client that had not logged in made room for another; `reason`",
    "connection.dismissed_more": "`count` more made room within `seconds`, not told one by one",
    "connection.opened": "a client has begun to speak a protocol",
    "connection.refused": "a connection was not taken; `reason` says why",
    "connection.refused_more": "`count` more were not taken within `seconds`, not told one by one",
    "consumer.found_slow": "a consumer acknowledged too little; its `policy` says what follows",
    "clock.distrusted": "the wall clock made a large step; broker time goes on without it for now",
    "clock.followed": "a large step of the wall clock was taken over",
    "clock.returned": "the wall clock is back where it was before a large step",
    "directory.unreachable": "the LDAP directory could not be asked; logins by it are refused",
    "directory.unreachable_more": "`count` more could not within `seconds`, not told one by one",
    "descriptors.shared": "how many connections the `limit` of open files leaves room for",
    "disk.ballast_given": "a write found no room and took it from the ballast; `left` bytes of it",
    "disk.ballast_made": "there is room again, and the ballast is whole",
    "disk.filled": "a file system is at its limit; `held` senders wait, STOMP senders are refused",
    "disk.filling_foreseen": "at its rate the disk is full in `seconds_left`",
    "disk.freed": "there is room again; `let_go` senders go on",
    "disk.watched": "what the disk holds at the start, and the `limit` that counts",
    "gateway.failed": "the gateway stops because it cannot go on; `error` says why",
    "gateway.full": "a limit of the whole gateway is reached: senders wait or are refused",
    "gateway.ready": "recovery is done and all listeners are open",
    "gateway.room_again": "below a limit of the whole gateway that was reached",
    "gateway.started": "the data directory is ours and could be read",
    "gateway.stood_still": "the process was stopped; time-outs do not count it",
    "gateway.stopped": "everything is on disk and closed",
    "gateway.stopping": "a stop was asked for; no new connections from here on",
    "http.answer_cut": "an answer broke off in the middle; the connection was cut",
    "http.client_lost": "a client left before its answer was sent",
    "http.connection_refused": "too many HTTP connections were open",
    "http.connection_refused_more": "`count` more were refused within `seconds`",
    "http.request_answered": "a request was answered",
    "http.request_failed": "a request met a fault of ours",
    "http.request_refused": "a request was refused before it was whole",
    "keys.fetched": "the keys that an issuer signs tokens with have come; `keys` may be used",
    "keys.not_fetched": "they could not be had; `keys_kept` of before go on; `error` says why",
    "listener.opened": "a listener takes connections",
    "log.lines_dropped": "lines were lost because nobody read them; `count` of them",
    "login.accepted": "a client was let in and has said who it is",
    "login.ended": "what a client came in by has ended, and with it the connection",
    "login.ended_more": "`count` more ended within `seconds`, not told one by one",
    "login.refused_more": "`count` more were refused within `seconds`, from so many `peers`",
    "login.refused": "a user and password were not let in; `reason` says why",
    "objects.limit_reached": "`user`, or all users together, may have no more of what `key` names",
    "quota.reached": "a user, a remote or an address has used, or has open, all that it may",
    "quota.room_again": "that quota was not in the way any more for some seconds",
    "objects.room_again": "below a limit of addresses, queues, consumers or links",
    "page.damaged": "a page file is not what was written; what cannot be read of it is lost",
    "page.messages_lost": "messages on a page could not be read back; `count` of them",
    "permission.refused_more": "`count` more were refused within `seconds`, not told one by one",
    "permission.refused": "a client may not do what it asked for; `needs` are the roles that may",
    "permissions.asked_for": "`matches` of security-settings hold; 0: every user may do everything",
    "queue.adopted": "messages whose queue's definition was lost have a queue of their own",
    "scrub.damage_gone": "what was damaged is repaired, whole again, or not needed any more",
    "scrub.damaged": "a place of a file is not what was written; `advice` says what to do",
    "scrub.ended": "all that is stored was read; `damaged` places of it are not what was written",
    "scrub.failed": "a file could not be checked, for a reason that is not the disk",
    "scrub.started": "all that is stored is read, to find what has rotted",
    "sink.batch_refused": "a batch stops at a row that is refused for good; `reason` names the row",
    "sink.batch_resumed": "a start goes on with a batch at the row where the last process ended",
    "sink.file_stays": "a stage could not be deleted; the next start finds it",
    "sink.files_strange": "the folder of stages holds files that are no stages",
    "sink.publication_failed": "a fault ended the publishing of a batch; the next commit goes on",
    "sink.stage_expired": "a stage that nobody committed was deleted (`sink.stage-expiry`)",
    "store.compaction_stopped": "a journal file could not be read; it and all behind it stay",
    "store.failed": "the disk refused; nothing unconfirmed will be confirmed",
    "store.goes_on": "a batch that the disk was slow with is written",
    "store.keeps_up": "the disk lags no more: messages are handed out at once again",
    "store.lags": "the disk lags: new messages are handed out once they are on it",
    "store.recovered": "the journal was read; `messages` came back",
    "store.slow": "the disk has had a batch for `seconds`; senders wait",
    "stream.archive_caught_up": "its archive is no longer so far behind that messages will be lost",
    "stream.archive_lagging": "retention-bytes is near; its archive has not taken what is there",
    "roles.no_administrator": "permissions are asked for, and no user has a role of administrators",
    "stream.messages_lost": "retention dropped what a subscription had not read; `reason` says why",
    "stream.replay_jumped": "retention dropped what a replay had not seen; it went on behind that",
    "stream.seal_failed": "a stream's log took nothing; its tail stays in the journal",
    "streams.adopted": "an empty gateway has taken over the streams that a table keeps",
    "tls.failed": "a connection ended because TLS with it could not go on; `reason` says why",
    "token.refused": "a token let nobody in; `error` is for the operator alone",
    "twisted.failed": "an error that Twisted or a library under it reported",
    "twisted.reported": "a message that Twisted or a library under it logged",
    "users.refused": "the users file is wrong, and the users of before stay",
    "users.reloaded": "the users file was read again, and is in force",
    "users.readable_by_others": "the users file can be read by other users of the machine",
}

RECORD_BYTES_MAX: Final = 4096
VALUE_CHARS_MAX: Final = 1000
TRACEBACK_CHARS_MAX: Final = 2500
#: About a second of the busiest log; 4 MiB at the very most.
LINES_WAITING_MAX: Final = 1024
CLOSE_SECONDS: Final = 1.0

_SECRET_KEY: Final = re.compile(
    r"password|passcode|passphrase|passwd|secret|token|authorization|credential|cookie|api_?key",
    re.IGNORECASE,
)
_SECRET_TEXT: Final = re.compile(
    # Also as JSON has it, where a value in quotes may hold spaces.
    r"((?:password|passcode|passphrase|passwd|authorization|secret|token)[\"']?\s*[:=]\s*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|(?:Basic\s+|Bearer\s+)?\S+)",
    re.IGNORECASE,
)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_NEWLINE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LEVEL_COLOURS: Final = {
    "debug": "\x1b[2m",
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[31;1m",
}
_PLAIN: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
#: Twisted's chatter is for debugging; what it warns of is not.
_FROM_TWISTED: Final = {
    LogLevel.warn: "warning",
    LogLevel.error: "error",
    LogLevel.critical: "error",
}

Record = MutableMapping[str, Any]


# ---- one record on its way out


def clean(logger: object, method: str, record: Record) -> Record:
    """Redact, escape and shorten all values of a record (a structlog processor)."""
    for key, value in list(record.items()):
        if key == "event":
            record[key] = _escaped(str(value))[:200]
        elif _SECRET_KEY.search(key):
            record[key] = "***"
        elif value is not None and not isinstance(value, bool | int | float):
            record[key] = _shortened(key, _SECRET_TEXT.sub(r"\1***", _text(value)))
    return record


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        shown = {k: "***" if _SECRET_KEY.search(str(k)) else v for k, v in value.items()}
        return repr(shown)
    return repr(value)


def _shortened(key: str, text: str) -> str:
    if key == "traceback":
        # The end of a traceback tells more than its beginning.
        cut = len(text) - TRACEBACK_CHARS_MAX
        text = text if cut <= 0 else f"[{cut} characters]...{text[cut:]}"
        return _CONTROL_BUT_NEWLINE.sub(_escape, text)
    cut = len(text) - VALUE_CHARS_MAX
    return _escaped(text if cut <= 0 else f"{text[:VALUE_CHARS_MAX]}...[{cut} characters]")


def _escaped(text: str) -> str:
    return _CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def render_json(logger: object, method: str, record: Record) -> str:
    """Return the record as one JSON line (a structlog processor)."""
    line = json.dumps(record, ensure_ascii=False, default=repr)
    while len(line.encode()) > RECORD_BYTES_MAX:
        _halve_longest(record)
        line = json.dumps(record, ensure_ascii=False, default=repr)
    return line


def _halve_longest(record: Record) -> None:
    texts = [key for key, value in record.items() if isinstance(value, str) and key != "event"]
    longest = max(texts, key=lambda key: len(record[key]), default=None)
    if longest is None or len(record[longest]) < 8:
        # Too many keys rather than too long ones: keep the first half.
        for key in list(record)[len(record) // 2 :]:
            del record[key]
        return
    record[longest] = record[longest][: len(record[longest]) // 2] + "..."


class HumanRenderer:
    """Renders records for people: time, level, event, then `key=value`."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, logger: object, method: str, record: Record) -> str:
        time = str(record.pop("timestamp", ""))[11:23]
        level = str(record.pop("level", method))
        event = str(record.pop("event", ""))
        traceback = record.pop("traceback", "")
        facts = " ".join(f"{key}={_quoted(value)}" for key, value in record.items())
        if self._colours:
            colour = _LEVEL_COLOURS.get(level, "")
            head = f"{time} {colour}{level:<7}{_PLAIN} {_BOLD}{event}{_PLAIN}"
        else:
            head = f"{time} {level:<7} {event}"
        line = f"{head} {facts}".rstrip()
        while len(line.encode()) > RECORD_BYTES_MAX:
            line = line[: len(line) * 3 // 4] + "..."
        return line + _indented(str(traceback), RECORD_BYTES_MAX - len(line.encode()))


def _indented(text: str, room: int) -> str:
    """Return the last lines of `text` that fit into `room` bytes, each on a line of its own."""
    kept = ""
    for part in reversed(text.rstrip().split("\n") if text else []):
        line = f"\n    {part}"
        if len((line + kept).encode()) > room:
            break
        kept = line + kept
    return kept


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text}"' if not text or " " in text else text


# ---- lines on their way out


class LineWriter:
    """Writes lines to a stream from a thread of its own; never blocks who calls `write`.

    `dropped` counts the lines that did not fit into the queue.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        self._told = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line; drop it when the queue is full."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what waits, for at most a second, and end the thread."""
        try:
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self._waiting.empty():
                    self._stream.flush()
                    self._tell_dropped()
            except (OSError, ValueError):
                # Nobody listens any more (a closed pipe); the gateway goes on without a log.
                self.dropped += 1

    def _tell_dropped(self) -> None:
        count = self.dropped - self._told
        if count:
            self._told = self.dropped
            structlog.get_logger().warning("log.lines_dropped", count=count)


class _LineLogger:
    """What structlog calls with the rendered line."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def msg(self, line: str) -> None:
        self._write(line)

    debug = info = warning = error = critical = msg


def configure(
    write: Callable[[str], None],
    *,
    wall: Callable[[], float],
    level: str = "info",
    human: bool = False,
    colours: bool = False,
) -> None:
    """Set structlog up for the whole process.

    Args:
        write: takes each rendered line, normally `LineWriter.write`.
        wall: seconds since the epoch, for timestamps.
        level: the least severe level that is written.
        human: lines for people instead of JSON.
        colours: with ANSI colours; only for people.
    """

    def stamp(logger: object, method: str, record: Record) -> Record:
        time = dt.datetime.fromtimestamp(wall(), dt.UTC)
        text = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = record.pop("event", "")
        return {"timestamp": text, "level": method, "event": event, **record}

    renderer: Any = HumanRenderer(colours=colours) if human else render_json
    line_logger = _LineLogger(write)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, stamp, clean, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *args: line_logger,
        cache_logger_on_first_use=False,
    )


# ---- what Twisted says


@implementer(ILogObserver)
class TwistedBridge:
    """Passes what Twisted logs on to structlog."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()

    def __call__(self, event: LogEvent) -> None:
        namespace = str(event.get("log_namespace", "-"))
        text = formatEvent(event)
        failure = event.get("log_failure")
        if failure is not None:
            error = failure.getErrorMessage()
            traceback = failure.getTraceback()
            self._log.error(
                "twisted.failed", source=namespace, text=text, error=error, traceback=traceback
            )
            return
        level = _FROM_TWISTED.get(event.get("log_level", LogLevel.info), "debug")
        if level == "error":
            self._log.error("twisted.failed", source=namespace, text=text)
        elif level == "warning":
            self._log.warning("twisted.reported", source=namespace, text=text)
        else:
            self._log.debug("twisted.reported", source=namespace, text=text)


def bridge_twisted() -> None:
    """Send everything that Twisted logs from now on, and has logged so far, to structlog."""
    globalLogBeginner.beginLoggingTo([TwistedBridge()], redirectStandardIO=False)
