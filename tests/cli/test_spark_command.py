"""`sluicegate spark`: the programs it prints, the file it writes."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import spark
from gateway.cli.errors import EX_CANTCREAT, EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.main import cli

KINDS = ("stream", "batch", "sink")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["spark", *arguments], standalone_mode=False)


def printed(*arguments: str) -> str:
    done = run("snippet", *arguments)
    assert done.exit_code == 0, done.output
    ast.parse(done.stdout)
    return done.stdout


def refused(*arguments: str) -> CliError:
    error = run(*arguments).exception
    assert isinstance(error, CliError)
    return error


def options(text: str) -> dict[str, str]:
    """Return the options that a program gives, as they are written."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(".option(")]
    pairs = [line.removeprefix(".option(").removesuffix(")").split(", ", 1) for line in lines]
    return {name.strip('"'): value for name, value in pairs}


def test_a_stream_has_all_that_it_needs() -> None:
    text = printed()
    assert options(text) == {
        "url": '"http://127.0.0.1:8161"',
        "address": '"orders"',
        "subscription": '"orders-spark"',
        "startingOffsets": '"earliest"',
        "checkpointLocation": '"checkpoints/orders-spark"',
    }
    assert "readStream" in text
    assert "availableNow" not in text
    assert "trigger(availableNow=True)" in printed("--available")


def test_a_batch_has_neither_subscription_nor_checkpoint() -> None:
    assert list(options(printed("--kind", "batch"))) == ["url", "address"]


def test_a_sink_writes_with_a_checkpoint() -> None:
    text = printed("--kind", "sink", "--address", "totals")
    assert 'writeStream.format("sluicegate")' in text
    assert options(text)["address"] == '"totals"'
    assert options(text)["checkpointLocation"] == '"checkpoints/totals-spark"'


@pytest.mark.parametrize("kind", KINDS)
def test_a_password_is_never_in_the_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_PASSWORD", "hunter2")
    text = printed("--kind", kind, "--user", "etl", "--ca-file", "/etc/ca.pem")
    assert "hunter2" not in text
    assert options(text)["password"] == 'os.environ["SLUICEGATE_PASSWORD"]'
    assert options(text)["username"] == '"etl"'
    assert options(text)["tlsCaFile"] == '"/etc/ca.pem"'
    assert "import os\n" in text


def test_a_token_stays_in_its_file() -> None:
    text = printed("--token-file", "/run/token", "--url", "https://a:8161,b:8161/")
    assert options(text)["tokenFile"] == '"/run/token"'
    assert options(text)["url"] == '"https://a:8161,http://b:8161"'
    assert "import os" not in text


def test_names_of_any_kind_are_written_as_python_writes_them() -> None:
    text = printed(
        "--address", 'a "quoted" \\ ü', "--subscription", "b'", "--checkpoint", "s3a://x"
    )
    given = options(text)
    assert ast.literal_eval(given["address"]) == 'a "quoted" \\ ü'
    assert ast.literal_eval(given["subscription"]) == "b'"
    assert ast.literal_eval(given["checkpointLocation"]) == "s3a://x"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--address", ""], "bad-name", "address"),
        (["--subscription", "a\nb"], "bad-name", "subscription"),
        (["--url", "ftp://a"], "bad-url", "http[s]://host:port"),
        (["--url", "http://a:1/api"], "bad-url", "http[s]://host:port"),
        (["--url", "http://me:secret@a:1"], "bad-url", "a login has no place in --url"),
        (["--user", "a", "--token-file", "b"], "bad-login", "give one of"),
    ],
)
def test_what_cannot_be_printed(arguments: list[str], code: str, text: str) -> None:
    error = refused("snippet", *arguments)
    assert (error.code, error.status) == (code, EX_USAGE)
    assert text in error.message
    assert "secret" not in error.message


def test_a_bundle_is_the_data_source_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "one.zip"
    done = run("bundle", str(file))
    assert done.exit_code == 0, done.output
    assert f"spark-submit --py-files {file}" in done.stdout
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert {name.split("/")[0] for name in names} == {"pyspark_sluicegate"}
    package = spark.find_package()
    assert package is not None
    there = {f"pyspark_sluicegate/{path.relative_to(package)}" for path in package.rglob("*.py")}
    assert there == {name for name in names if name.endswith(".py")}
    assert [path.name for path in tmp_path.iterdir()] == ["one.zip"]


def test_the_same_package_is_the_same_file_again(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip", "one.zip"):
        assert run("bundle", str(tmp_path / name)).exit_code == 0
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused("bundle", str(tmp_path / "file.whl"))
    assert (error.code, error.status) == ("bad-file", EX_USAGE)
    error = refused("bundle", str(tmp_path / "absent" / "file.zip"))
    assert (error.code, error.status) == ("cannot-write", EX_CANTCREAT)
    (tmp_path / "folder.zip").mkdir()
    assert refused("bundle", str(tmp_path / "folder.zip")).code == "cannot-write"
    assert [path.name for path in tmp_path.iterdir()] == ["folder.zip"]
    monkeypatch.setattr(spark, "find_package", lambda: None)
    error = refused("bundle", str(tmp_path / "file.zip"))
    assert (error.code, error.status) == ("no-package", EX_UNAVAILABLE)
    assert "pip install 'sluicegate[spark]'" in str(error.attempt)
