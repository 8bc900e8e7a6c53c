"""Traces in object storage: a local server of S3 gives what a folder gives."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import make_fixtures
import pytest
from cli import traces
from cli.command import divtrace
from trace_files import event, jsonl, write

from divtrace import analyze
from divtrace.api import Options, first_divergence
from divtrace.convert.run import convert
from divtrace.errors import UsageError
from divtrace.report.model import encode
from divtrace.trace.discover import Source, discover
from divtrace.trace.load import load
from divtrace.trace.model import Damage
from divtrace.trace.remote import Location, _Object, located, why

FIXTURES = make_fixtures.FIXTURES
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
NOWHERE = "scheme=http&endpoint_override=127.0.0.1:9&region=us-east-1"
Put = Callable[[str, Path | bytes], None]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of S3 on this machine."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def storage(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server as pyarrow's file system, with the environment that divtrace needs to find it too."""
    from pyarrow.fs import S3FileSystem

    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**variables, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    return S3FileSystem(endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True)


@pytest.fixture
def put(storage: Any) -> Put:
    """Puts a file, or all files of a folder, into the storage."""

    def one(key: str, content: bytes) -> None:
        with storage.open_output_stream(key) as stream:
            stream.write(content)

    def put(key: str, what: Path | bytes) -> None:
        storage.create_dir(key.partition("/")[0])
        if isinstance(what, bytes):
            one(key, what)
            return
        for path in sorted(what.rglob("*")):
            if path.is_file():
                one(f"{key}/{path.relative_to(what).as_posix()}", path.read_bytes())

    return put


@pytest.mark.remote
@pytest.mark.parametrize("name", CASES)
def test_a_prefix_gives_the_report_of_a_folder(name: str, put: Put, tmp_path: Path) -> None:
    """Evidence beside the traces is read from folders only, so it stays out of the comparison."""
    folder = tmp_path / name
    for path in sorted((FIXTURES / name).rglob("*")):
        if path.is_file() and path.name.endswith((".jsonl", ".ndjson", ".parquet", ".gz", ".zst")):
            target = folder / path.relative_to(FIXTURES / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    put(f"fixtures/{name}", folder)

    for options in (Options(), Options(sieve_from=0, jobs=1)):
        assert encode(analyze(f"s3://fixtures/{name}/", options)) == encode(analyze(folder, options))


@pytest.mark.remote
def test_the_command_line_takes_addresses(put: Put, tmp_path: Path) -> None:
    put("night/run", traces.diverged(tmp_path / "run"))

    here = divtrace("analyze", tmp_path / "run", "-f", "json", "--no-progress")
    there = divtrace("analyze", "s3://night/run", "-f", "json", "--no-progress")

    assert here.returncode == 1
    assert (there.returncode, there.stdout, there.stderr) == (1, here.stdout, "")


@pytest.mark.remote
@pytest.mark.parametrize("where", ["s3", "parquet"])
def test_one_request_has_the_answer_of_a_folder(where: str, put: Put, tmp_path: Path) -> None:
    folder = traces.clean(tmp_path / "clean")
    if where == "parquet":
        convert([folder], tmp_path / "converted")
        folder = tmp_path / "converted"
    put(f"clean-{where}", folder)
    options = Options(sieve_from=0)

    assert first_divergence([f"s3://clean-{where}"], "A", options) == first_divergence([folder], "A", options)
    assert encode(analyze(f"s3://clean-{where}", options)) == encode(analyze(folder, options))


@pytest.mark.remote
def test_names_decide_below_a_prefix_and_a_named_object_is_always_read(put: Put) -> None:
    for key in ("a.jsonl", "b.NDJSON", "c.parquet.GZ", "deep/er/d.jsonl.zst", "notes.txt", "x.jsonl~"):
        put(f"names/run/{key}", jsonl([event(0)]))
    put("names/runs/a.jsonl", b"")
    put("names/odd name%20?q=1.bak", jsonl([event(0, rank=7)]))

    found = discover(["s3://names/run"])

    assert [source.name for source in found.sources] == ["a.jsonl", "b.NDJSON", "c.parquet.GZ", "deep/er/d.jsonl.zst"]
    assert found.ignored_files == 2
    assert found.sources[0].size == len(jsonl([event(0)]))
    assert list(load(["s3://names/odd name%20?q=1.bak?"]).ranks) == [(0, 7)]


@pytest.mark.remote
def test_names_are_relative_to_what_addresses_share(put: Put) -> None:
    put("share/night/a/rank0.jsonl", jsonl([event(0)]))
    put("share/night/b/rank1.jsonl", jsonl([event(0)]))
    put("share-too/rank2.jsonl", jsonl([event(0)]))

    assert names("s3://share/night/a", "s3://share/night/b/rank1.jsonl") == ["a/rank0.jsonl", "b/rank1.jsonl"]
    assert names("s3://share/night/a", "s3://share/night/") == ["a/rank0.jsonl", "b/rank1.jsonl"]
    assert names("s3://share") == ["night/a/rank0.jsonl", "night/b/rank1.jsonl"]
    assert names("s3://share/night/a", "s3://share-too") == [
        "s3://share-too/rank2.jsonl",
        "s3://share/night/a/rank0.jsonl",
    ]


@pytest.mark.remote
def test_files_of_this_machine_and_objects_may_be_mixed(put: Put, tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    put("mixed/rank1.jsonl", jsonl([event(0)]))

    assert names(str(tmp_path), "s3://mixed") == ["rank0.jsonl", "s3://mixed/rank1.jsonl"]
    assert list(load([tmp_path, "s3://mixed"]).ranks) == [(0, 0), (0, 1)]


@pytest.mark.remote
def test_the_endpoint_may_stand_in_the_address(put: Put, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put("spoken/rank3.jsonl", jsonl([event(0)]))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    options = f"scheme=http&endpoint_override={endpoint.removeprefix('http://')}&region=us-east-1"

    assert list(load([f"s3://spoken/rank3.jsonl?{options}"]).ranks) == [(0, 3)]
    assert names(f"s3://spoken?{options}") == ["rank3.jsonl"]


@pytest.mark.remote
@pytest.mark.parametrize("address", ["s3://nothing-here", "s3://empty-bucket/run"])
def test_nothing_at_an_address_is_an_error(address: str, storage: Any) -> None:
    storage.create_dir("empty-bucket")

    with pytest.raises(UsageError, match=f"^{address}: there is no such object, and none below it$"):
        discover([address])


@pytest.mark.remote
def test_an_object_that_goes_away_is_damage(put: Put, storage: Any) -> None:
    put("going/rank0.jsonl", jsonl([event(0)]))
    put("going/rank1.jsonl", jsonl([event(0)]))
    put("going/rank2.parquet", b"PAR1")
    found = discover(["s3://going"])
    storage.delete_file("going/rank1.jsonl")

    read = load(["s3://going"], found=found)

    assert list(read.ranks) == [(0, 0)]
    assert read.damage[0] == Damage(
        "rank1.jsonl", None, "the file cannot be read: there is no such object, and none below it"
    )
    assert read.damage[1].file == "rank2.parquet"


@pytest.mark.remote
def test_an_address_that_cannot_be_reached_is_an_error_without_secrets(storage: Any) -> None:
    pytest.importorskip("moto")

    with pytest.raises(UsageError, match=r"^s3://night/run: .*NETWORK_CONNECTION") as caught:
        discover([f"s3://someone:secret@night/run?{NOWHERE}"])
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_that_pyarrow_does_not_know_is_an_error() -> None:
    with pytest.raises(UsageError, match="Unexpected query parameter"):
        discover(["s3://night/run?colour=blue"])


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("s3://night", ("s3", "night", "", "")),
        ("S3://night/", ("s3", "night", "", "")),
        ("gs://night/run/a b", ("gs", "night", "run/a b", "")),
        ("s3://u:p@night/run/?region=eu", ("s3", "u:p@night", "run", "region=eu")),
        ("s3://night/why?", ("s3", "night", "why", "")),
        ("s3://night/why?.jsonl", ("s3", "night", "why?.jsonl", "")),
        ("s3://night/why?a=b?", ("s3", "night", "why?a=b", "")),
    ],
)
def test_addresses_have_parts(uri: str, parts: tuple[str, str, str, str]) -> None:
    location = located(uri)

    assert location == Location(*parts)
    assert located(location.uri) == location


def test_what_went_wrong_is_the_same_for_every_request() -> None:
    error = OSError("When reading key 'k': AWS Error ACCESS_DENIED during HeadObject (Request ID: Jn79Atm4)\nmore")

    assert why(error) == "When reading key 'k': AWS Error ACCESS_DENIED during HeadObject"


class Breaking(io.BytesIO):
    """A file of pyarrow, for what matters here, that breaks after its first four bytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 4:
            raise OSError("AWS Error NETWORK_CONNECTION")
        return super().read(min(size or 4, 4))


def test_an_object_that_breaks_off_says_why() -> None:
    file = io.BufferedReader(_Object(Breaking(b"12345678")), 16)

    assert file.peek(4) == b"1234"
    assert file.read(4) == b"1234"
    with pytest.raises(OSError, match="NETWORK_CONNECTION") as caught:
        file.read(4)
    assert caught.value.strerror == "AWS Error NETWORK_CONNECTION"


@pytest.mark.parametrize("cut", [False, True])
def test_a_file_that_breaks_off_at_the_second_reading_is_read_anew(
    cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first reading saw must not be missing from what the walk looks at."""
    folder = traces.diverged(tmp_path)
    expected = encode(analyze(folder, Options(sieve_from=0)))
    real, opened = Source.open, []

    class Cut(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 200:
                raise OSError(5, os.strerror(5))
            return super().read(min(200, size or 200)) or b""

    def flaky(source: Source) -> Any:
        opened.append(source.name)
        if opened.count("rank1.jsonl") == 3 and source.name == "rank1.jsonl":
            if cut:
                return Cut(source.path)
            raise OSError(5, os.strerror(5))
        return real(source)

    monkeypatch.setattr(Source, "open", flaky)

    assert encode(analyze(folder, Options(sieve_from=0))) == expected
    assert opened.count("rank1.jsonl") == 4


def names(*addresses: str) -> list[str]:
    return [source.name for source in discover(addresses).sources]
