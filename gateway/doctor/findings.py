"""Every finding of `sluicegate doctor`: a stable code, how bad it is, why, and what to do. Pure.

`docs/reference/doctor.md` is written from here; a code is its anchor there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """How bad a finding is."""

    UNSAFE = "unsafe"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A finding that there may be: how bad it is, why that matters, and what to do."""

    severity: Severity
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found; `about` is the key, file or listener, `text` the fact."""

    code: str
    about: str
    text: str

    @property
    def kind(self) -> Kind:
        """What the catalogue says of it."""
        return KINDS[self.code]


def _unsafe(why: str, remedy: str) -> Kind:
    return Kind(severity=Severity.UNSAFE, why=why, remedy=remedy)


def _warning(why: str, remedy: str) -> Kind:
    return Kind(severity=Severity.WARNING, why=why, remedy=remedy)


def _note(why: str, remedy: str) -> Kind:
    return Kind(severity=Severity.NOTE, why=why, remedy=remedy)


KINDS: Final[Mapping[str, Kind]] = {
    "open-to-the-network": _unsafe(
        "anybody who reaches the listener may do everything: no user is configured",
        "`sluicegate user add NAME`, then `allow-insecure = false`",
    ),
    "plain-text-to-the-network": _unsafe(
        "passwords and messages cross the network readable for others",
        "give the listener a `tls` table, then `allow-insecure = false`",
    ),
    "anonymous-from-the-network": _unsafe(
        "whoever gives no user is let in, also from other machines",
        "`allow-anonymous = false` at the acceptor",
    ),
    "anonymous-allowed": _warning(
        "whoever on this machine gives no user is let in",
        "`allow-anonymous = false` at the acceptor",
    ),
    "allow-insecure": _warning(
        "a later change may open a listener to the network without a refusal at the start",
        "take `allow-insecure` out where no listener needs it",
    ),
    "no-users": _warning(
        "every program on this machine may do everything",
        "`sluicegate user add NAME`",
    ),
    "no-security-settings": _warning(
        "every user may do everything at every address",
        "write `[security-settings]` tables: what they do not name is denied then",
    ),
    "no-administrator": _warning(
        "nobody can change anything over the API: no user has a role of `[api-roles] admin`",
        "give a user the role `admin` in the users file",
    ),
    "file-readable-by-others": _unsafe(
        "other users of this machine can read a secret",
        "`chmod 600 FILE`",
    ),
    "file-writable-by-others": _unsafe(
        "other users of this machine decide who is let in, or how the gateway runs",
        "`chmod go-w FILE`",
    ),
    "directory-open-to-others": _warning(
        "other users of this machine can read stored messages",
        "`chmod 700 DIRECTORY`",
    ),
    "file-unusable": _unsafe(
        "the gateway would not start, or goes on with what it read before",
        "mend the file as the text says",
    ),
    "certificate-expired": _unsafe(
        "clients that check certificates are refused a connection",
        "renew the certificate; a running gateway takes up the new files by itself",
    ),
    "certificate-expires-soon": _warning(
        "clients that check certificates will be refused a connection",
        "renew the certificate; a running gateway takes up the new files by itself",
    ),
    "certificate-not-valid-yet": _unsafe(
        "clients that check certificates are refused a connection until it begins",
        "see whether the clock of this machine is right, or take the certificate of before",
    ),
    "certificate-wrong-name": _unsafe(
        "clients that check certificates are refused a connection: it is for another name",
        "have it made for the name that clients connect to, or write that as `hostname`",
    ),
    "certificate-chain-broken": _unsafe(
        "clients cannot follow who signed the certificate, and refuse the connection",
        "put the certificates behind it in the order in which each is signed by the next",
    ),
    "certificate-not-for-servers": _unsafe(
        "clients that check certificates refuse one that is not made for servers",
        "have it made with the extended key usage serverAuth",
    ),
    "certificate-revocations-expired": _unsafe(
        "no client comes in by a certificate: the list of revoked ones is out of date",
        "fetch the newer list into the file of `client-crl`",
    ),
    "certificate-weak": _warning(
        "clients may refuse it, and its key or signature can be forged at less cost",
        "renew it with ECDSA P-256 or RSA of 2048 bits, and SHA-256",
    ),
    "certificate-is-authority": _warning(
        "a thief of its key could make certificates for any name",
        "have it made with CA:FALSE",
    ),
    "certificate-chain-ends": _note(
        "clients need the named certificate to trust it, unless they have it already",
        "put the certificates between it and an authority behind it in the file",
    ),
    "certificate-self-signed": _note(
        "only clients that have this very certificate trust it",
        "have it signed by an authority that clients know, or give them the file",
    ),
    "weak-password-hash": _warning(
        "a thief of the users file tries out passwords at less cost than need be",
        "`sluicegate user add NAME --replace`, which takes today's parameters",
    ),
    "any-origin": _warning(
        "a page of any site may connect from the browsers of your users",
        'name the sites: `allowed-origins = ["https://shop.example"]`',
    ),
    "audit-off": _warning(
        "nobody can say later who came in and who changed what",
        "take `enabled = false` out of `[audit]`",
    ),
    "audit-fails": _unsafe(
        "logins and changes go unrecorded: the audit trail cannot be written",
        "make room, or mend the place that the text names; lines wait meanwhile",
    ),
    "audit-without-key": _note(
        "whoever can write the disk can make a whole new audit trail",
        "`openssl rand -out audit.key 32; chmod 600 audit.key`, then `[audit] key-file`",
    ),
    "metrics-open": _warning(
        "whoever reaches the management listener reads names of queues and addresses",
        "`sluicegate user add NAME`: with users the metrics need a login",
    ),
    "disk-limit-off": _warning(
        "senders are not held back before the disk is full",
        "take `min-disk-free = -1` or `max-disk-usage = -1` out",
    ),
    "user-limit-off": _note(
        "one user can make or open as many objects as memory holds",
        "take the key out, or give it a number",
    ),
    "few-descriptors": _warning(
        "fewer clients can connect than the configuration allows",
        "raise the limit of open files: `LimitNOFILE=` of the service, `ulimit -n` in a shell",
    ),
    "runs-as-root": _warning(
        "a fault of the gateway would be a fault of the whole machine",
        "run it as a user of its own: `User=` of the service",
    ),
    "core-dumps-on": _warning(
        "a crash would write memory, with messages and secrets, to a file",
        "start the gateway with `sluicegate run`, which switches them off",
    ),
    "not-asked": _note(
        "what only a running gateway knows was not looked at",
        "start it, or give --url, --user and --password-stdin",
    ),
    "not-ready": _unsafe(
        "nobody can send or receive messages",
        "see the log; `sluicegate data verify` where the store has failed",
    ),
    "under-pressure": _warning(
        "senders wait or are refused: a disk or memory limit is reached, or the disk is slow",
        "consume what waits, or give the gateway more room; the text names the limit",
    ),
    "archive-lags": _warning(
        "retention will drop messages that the archive has not taken",
        "see that the archive's Spark job runs; raise `stream-retention-bytes` meanwhile",
    ),
    "not-in-force": _warning(
        "the file says something else than the running gateway does",
        "restart the gateway",
    ),
    "reload-refused": _warning(
        "the gateway goes on with what it read before",
        "mend the file as the text says, then `sluicegate reload`",
    ),
    "clock-distrusted": _warning(
        "the wall clock has made a large step: broker time goes on without it for now",
        "see that one service sets the clock; `POST /api/v1/clock/trust` follows it at once",
    ),
    "clock-skewed": _warning(
        "expiry, schedules and ends of tokens are judged by a clock that is off",
        "have a time service set both clocks",
    ),
    "stored-data-damaged": _unsafe(
        "what is stored is not what was written",
        "`sluicegate scrub --status` says what to do",
    ),
}
