"""`sluicegate spark`: a Spark program to begin with, and the file that a cluster needs for it."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

import gateway
from gateway.cli.errors import EX_CANTCREAT, EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.http_client import DEFAULT_URL
from gateway.cli.spark_snippet import Wanted, write_batch, write_sink, write_stream
from gateway.model.address import check_name
from gateway.model.errors import RefusedError

PACKAGE: Final = "pyspark_sluicegate"
_KINDS: Final = {"stream": write_stream, "batch": write_batch, "sink": write_sink}
#: The same bytes whenever they are written: a zip's times begin here.
_MADE: Final = (1980, 1, 1, 0, 0, 0)


@click.group()
def spark() -> None:
    """Print a Spark query, or write the file that spark-submit hands to a cluster."""


@spark.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, help="The management listener.")
@click.option("--address", default="orders", show_default=True, help="What is read or written.")
@click.option("--subscription", help="Name of the query at the gateway; ADDRESS-spark if left out.")
@click.option("--checkpoint", help="Spark's folder; checkpoints/SUBSCRIPTION if left out.")
@click.option(
    "--kind",
    type=click.Choice(list(_KINDS)),
    default="stream",
    show_default=True,
    help="The query.",
)
@click.option("--available", is_flag=True, help="A stream takes what is there and ends.")
@click.option("--token-file", help="File with a bearer token, where the program runs.")
@click.option("--user", help="Login; its password comes from SLUICEGATE_PASSWORD at run time.")
@click.option("--ca-file", help="Trusted certificates for https, where the program runs.")
def snippet(
    *,
    url: str,
    address: str,
    subscription: str | None,
    checkpoint: str | None,
    kind: str,
    available: bool,
    token_file: str | None,
    user: str | None,
    ca_file: str | None,
) -> None:
    """Print a Spark program that reads ADDRESS (stream, batch) or writes to it (sink).

    It runs as it is printed: `sluicegate spark snippet > query.py`, then `python query.py` or
    spark-submit. No password is in it.
    """
    name = subscription or f"{address}-spark"
    try:
        check_name(address, "address")
        check_name(name, "subscription")
    except RefusedError as error:
        raise CliError("bad-name", error.refusal.text, status=EX_USAGE) from None
    if token_file is not None and user is not None:
        raise CliError("bad-login", "give one of --token-file and --user", status=EX_USAGE)
    wanted = Wanted(
        url=",".join(map(_checked, url.split(","))),
        address=address,
        subscription=name,
        checkpoint=checkpoint or f"checkpoints/{name}",
        available=available,
        token_file=token_file,
        user=user,
        ca_file=ca_file,
    )
    click.echo(_KINDS[kind](wanted), nl=False)


def _checked(url: str) -> str:
    full = (url if "//" in url else f"http://{url}").strip().rstrip("/")
    parts = urlsplit(full)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path:
        text = f"{url} is not http[s]://host:port"
        raise CliError("bad-url", text, attempt=f"--url {DEFAULT_URL}", status=EX_USAGE)
    if parts.username is not None:
        text = "a login has no place in --url: the program would show it"
        raise CliError(
            "bad-url", text, attempt="--user NAME, or --token-file FILE", status=EX_USAGE
        )
    return full


@spark.command()
@click.argument("file", type=click.Path(path_type=Path))
def bundle(file: Path) -> None:
    """Write FILE, a zip with the data source alone, for spark-submit's --py-files.

    A program that gets it so calls `pyspark_sluicegate.register(spark)`, as those of `sluicegate
    spark snippet` do.
    """
    if file.suffix != ".zip":
        text = f"{file} does not end in .zip, which spark-submit asks of --py-files"
        raise CliError("bad-file", text, attempt=f"{file}.zip", status=EX_USAGE)
    found = find_package()
    if found is None:
        text = f"the package {PACKAGE} is not installed beside this command"
        attempt = "pip install 'sluicegate[spark]'"
        raise CliError("no-package", text, attempt=attempt, status=EX_UNAVAILABLE)
    try:
        count = write_bundle(found, file)
    except OSError as error:
        text = f"{file}: {error.strerror or error}"
        raise CliError("cannot-write", text, status=EX_CANTCREAT) from None
    click.echo(f"{file}: {PACKAGE} {gateway.__version__}, {count} files")
    click.echo(f"spark-submit --py-files {file} query.py")


def find_package() -> Path | None:
    """Return the folder of the data source: as it is installed, or in a checkout."""
    spec = importlib.util.find_spec(PACKAGE)
    places = list((spec.submodule_search_locations if spec is not None else None) or ())
    places.append(str(Path(gateway.__file__).parent / "spark" / PACKAGE))
    return next((Path(place) for place in places if Path(place, "__init__.py").is_file()), None)


def write_bundle(package: Path, file: Path) -> int:
    """Write a package to a zip, whole or not at all; returns how many files are in it."""
    members = sorted(
        path for path in package.rglob("*") if path.suffix == ".py" or path.name == "py.typed"
    )
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in members:
                entry = zipfile.ZipInfo(path.relative_to(package.parent).as_posix(), _MADE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return len(members)
