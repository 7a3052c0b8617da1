"""Where a table is: a folder or a bucket, and what is said when it cannot be reached.

Credentials come from the environment's chain of the store's own library, never from options, so
that no checkpoint, plan or log has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from pyspark_sluicegate.options import SluicegateError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")
#: A store that does not answer is given up after so long; Spark and people try again.
_RETRY_SECONDS: Final = 30
_RETRIES: Final = 5


class StoreError(SluicegateError):
    """The store refused or did not answer."""


@dataclass(frozen=True, slots=True)
class Location:
    """A table's place.

    Attributes:
        uri: with its scheme; a folder's is `file:///...`.
        endpoint: of an S3-compatible store; empty: what the environment says.
        region: as before.
    """

    uri: str
    endpoint: str = ""
    region: str = ""

    @property
    def folder(self) -> str | None:
        """The path of a local folder; None on a store."""
        parts = urlsplit(self.uri)
        return unquote(parts.path) if parts.scheme == "file" else None

    def table_uri(self) -> str:
        """Return what deltalake calls it."""
        return self.folder or self.uri

    def table_options(self) -> dict[str, str]:
        """Return deltalake's storage options."""
        if self.folder is not None:
            return {}
        found = {"max_retries": str(_RETRIES), "retry_timeout": f"{_RETRY_SECONDS}s"}
        if self.endpoint:
            found["AWS_ENDPOINT_URL"] = self.endpoint
            found["AWS_ALLOW_HTTP"] = str(self.endpoint.startswith("http://")).lower()
        if self.region:
            found["AWS_REGION"] = self.region
        return found

    def open(self) -> ObjectStore:
        """Return the store below the table's folder. Raises StoreError, SluicegateError."""
        return _opened(self)


@lru_cache(maxsize=16)
def _opened(place: Location) -> ObjectStore:
    """Return a store, with the connections that it keeps; one for each place of a process."""
    try:
        from obstore.store import LocalStore, from_url  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SluicegateError(
            "An archive needs obstore: install 'pyspark-sluicegate[archive]' on the driver "
            "and the executors."
        ) from error
    with telling(place):
        if place.folder is not None:
            return LocalStore(place.folder, mkdir=True)
        known = {"endpoint": place.endpoint, "region": place.region}
        config: dict[str, Any] = {name: value for name, value in known.items() if value}
        retry = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        client = {"allow_http": True} if place.endpoint.startswith("http://") else None
        uri = place.uri.replace("s3a://", "s3://", 1)
        return from_url(  # type: ignore[no-any-return,call-overload]
            uri, config=config or None, client_options=client, retry_config=retry
        )


def parse_location(name: str, options: Mapping[str, Any]) -> Location:
    """Return the place that the option `name` names. Raises SluicegateError for another form."""
    text = str(options[name])
    scheme = urlsplit(text).scheme
    if text.startswith("/"):
        text = Path(text).as_uri()
    elif scheme == "file":
        text = Path(unquote(urlsplit(text).path)).as_uri()
    elif scheme not in _SCHEMES or not urlsplit(text).netloc:
        raise SluicegateError(
            f"The option {name!r} is {text!r}; it must be s3://bucket/path, gs://bucket/path, "
            "az://container/path, file:///folder or /folder."
        )
    if "@" in urlsplit(text).netloc and scheme.startswith("s3"):
        raise SluicegateError(
            f"The option {name!r} has a user in its address. Give credentials by the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role)."
        )
    endpoint = str(options.get("archiveEndpoint") or "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise SluicegateError(
            f"The option 'archiveEndpoint' is {endpoint!r}; it must be http[s]://host[:port]."
        )
    return Location(text.rstrip("/"), endpoint.rstrip("/"), str(options.get("archiveRegion") or ""))


def check_conditional(place: Location, nonce: str) -> None:
    """Raise StoreError for a store that lets two writers make one object.

    Delta's commits rest on the second one being refused. Some S3-compatible stores take the
    condition and do not keep it, so it is tried, on an object of its own.
    """
    from obstore import delete, put  # noqa: PLC0415 - an extra
    from obstore.exceptions import AlreadyExistsError, NotSupportedError  # noqa: PLC0415

    if place.folder is not None:
        return
    store, path = place.open(), f"_sluicegate/probe-{nonce}"
    kept, why = False, "the second of two writers of one object was not refused"
    with telling(place, path):
        try:
            put(store, path, b"first", mode="create")
            put(store, path, b"second", mode="create")
        except AlreadyExistsError:
            kept = True
        except NotSupportedError as error:
            why = _short(error)
        except Exception as error:
            if not any(word in str(error) for word in ("NotImplemented", "501")):
                raise
            why = _short(error)
        delete(store, path)
    if not kept:
        raise StoreError(
            f"{place.uri} has no conditional writes ({why}), so two archives could overwrite each "
            "other's commits. Nothing was committed. Use a bucket that has them (If-None-Match), "
            "or a folder."
        )


@contextmanager
def telling(place: Location, path: str = "") -> Iterator[None]:
    """Turn what a store's library raises into StoreError, which names the place and the cause."""
    try:
        yield
    except SluicegateError:
        raise
    except FileNotFoundError as error:
        raise StoreError(f"{place.uri} has no {path or 'such place'}: {_short(error)}") from error
    except OSError as error:
        raise explain(place, error) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("obstore", "deltalake"):
            raise
        raise explain(place, error) from error


def explain(place: Location, error: Exception) -> StoreError:
    """Return the error that says what a store's library has met, and what to do about it."""
    return StoreError(_words(place, error))


def _words(place: Location, error: Exception) -> str:
    kind, text = type(error).__name__, _short(error)
    refused = kind in ("PermissionDeniedError", "UnauthenticatedError")
    if place.folder is not None:
        return f"{place.uri} cannot be used: {text}"
    absent = any(word in text for word in ("169.254.169.254", "169.254.170", "metadata.google"))
    words = ("InvalidAccessKeyId", "403", "401", "Signature")
    if not absent and (refused or any(word in text for word in words)):
        return (
            f"{place.uri} refused the credentials that the environment gives ({text}). Set those "
            "of a user that may list, read and write there, on the driver and the executors."
        )
    if absent or "credential" in text.lower():
        return (
            f"{place.uri} needs credentials and the environment gives none ({text}). Set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role."
        )
    return f"{place.uri} cannot be used: {text}"


def _short(error: BaseException) -> str:
    # Colours, and what may hold a signature: the query of an address, an answer's body.
    text = re.sub(r"\x1b\[[0-9;]*m|\u21b3", " ", str(error))
    text = re.sub(r"(https?://[^\s?]+)\?\S+|<\?xml.*", r"\1", text, flags=re.DOTALL)
    return " ".join(text.split())[:300]
