"""Files that are damaged or mean harm: each costs itself only, and is named."""

from __future__ import annotations

import gzip
import pickle
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from divtrace.evidence.dump_schema import parse_dump
from divtrace.evidence.unpickle import RefusedPickleError, check_opcodes, load_plain
from evidence.jobs import LEFT, Op, analyse, as_json, as_pickle, four_ranks

HEAD = b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x04\x00\x00\x002.10q\x02X\x07\x00\x00\x00entriesq\x03"


class Execute:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return four_ranks(r0=[Op(LEFT, done=False)]).write(tmp_path)


def refused(folder: Path, name: str) -> str:
    """What is said of the file; the answer about the others must stand."""
    found = analyse(folder)
    assert found.behind == (1,)
    (entry,) = [entry for entry in found.unreadable if entry.path == name]
    return entry.what


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_something(job: Path, capsys: pytest.CaptureFixture[str], protocol: int) -> None:
    dump = {"version": "2.10", "entries": [Execute()]}
    (job / "trace_rank_7").write_bytes(pickle.dumps(dump, protocol=protocol))
    assert "opcode" in refused(job, "trace_rank_7")
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "tail",
    [
        b"cos\nsystem\n(X\x02\x00\x00\x00idtR.",
        b"(X\x02\x00\x00\x00idios\nsystem\n.",
        b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.",
        b"Ppersistent\n.",
        b"K\x01Q.",
        b"\x82\x01.",
        b"(K\x01o.",
        b"K\x01}b.",
        b"K\x01)\x81.",
    ],
)
def test_every_opcode_that_could_run_code_is_refused(tail: bytes) -> None:
    with pytest.raises(RefusedPickleError, match="opcode"):
        load_plain(HEAD + tail)


def test_the_unpickler_refuses_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two locks: without the opcode check the unpickler still resolves no name."""
    monkeypatch.setattr("divtrace.evidence.unpickle.check_opcodes", lambda _data: None)
    with pytest.raises(RefusedPickleError, match=r"global os\.system"):
        load_plain(HEAD + b"cos\nsystem\n.")
    with pytest.raises(RefusedPickleError, match="persistent"):
        load_plain(HEAD + b"K\x01Q.")


@pytest.mark.parametrize("opcode", [b"r", b"j"])
def test_a_memo_index_that_would_allocate_gigabytes(opcode: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RefusedPickleError):
        load_plain(HEAD + b"]" + opcode + struct.pack("<I", 2**30) + b"su.")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_opcodes_hidden_in_arguments_are_not_opcodes() -> None:
    """The walk stays in step: the bytes of a number or of a text are no opcodes."""
    check_opcodes(b"\x80\x02(\x8a\x05cos\ns\x8a\x08r\xff\xff\xff\xffXXXM..JRRRRX\x03\x00\x00\x00cosl.")
    with pytest.raises(RefusedPickleError):
        check_opcodes(b"\x80\x02(\x8a\x05cos\nscos\nsystem\nl.")


@pytest.mark.parametrize("length", [0, 1, 3, 87, 400])
def test_cut_pickles(job: Path, length: int) -> None:
    content = as_pickle(four_ranks().dump(2))[:length]
    (job / "trace_rank_9").write_bytes(content)
    if length < 3:
        assert "trace_rank_9" in analyse(job).ignored
    elif length == 3:
        assert "not unpickled" in refused(job, "trace_rank_9")
    else:
        assert "cut" in refused(job, "trace_rank_9")


def test_a_cut_json_dump(job: Path) -> None:
    (job / "trace_rank_9.json").write_bytes(as_json(four_ranks().dump(2))[:700])
    assert "cut or no JSON" in refused(job, "trace_rank_9.json")


def test_shared_shapes_are_not_copied_a_million_times() -> None:
    shapes = [[1, 2]] * 4000
    entry = four_ranks().dump(0)["entries"][0] | {"input_sizes": shapes}
    data = pickle.dumps({"version": "2.10", "entries": [entry] * 1000, "pg_config": {}, "pg_status": {}}, protocol=2)
    assert len(data) < 40_000
    with pytest.raises(RefusedPickleError, match="tensors"):
        parse_dump(data, pickled=True)


def test_lists_that_hold_each_other_double_at_every_level() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    for place in ("input_sizes", "process_group", "input_dtypes", "profiling_name"):
        entry = four_ranks().dump(0)["entries"][0] | {place: laughs}
        data = pickle.dumps({"version": "2.10", "entries": [entry], "pg_config": {"0": laughs}}, protocol=2)
        raw = parse_dump(data, pickled=True)
        assert (raw.bad_entries, raw.entries, raw.groups) == (1, [], {})


def test_a_list_that_holds_itself() -> None:
    knot: list[Any] = []
    knot.append(knot)
    data = pickle.dumps({"version": "2.10", "entries": knot, "pg_status": {"0": knot}}, protocol=2)
    assert parse_dump(data, pickled=True).bad_entries == 1


def test_nesting_a_thousand_levels_deep() -> None:
    deep = b"[" * 200_000
    with pytest.raises(ValueError, match="JSON"):
        parse_dump(b'{"version":"2.10","entries":' + deep, pickled=False)
    raw = parse_dump(HEAD + b"]" * 50_000 + b"a" * 49_999 + b"u.", pickled=True)
    assert (raw.entries, raw.bad_entries) == ([], 1)


def test_one_bad_entry_costs_that_entry(tmp_path: Path) -> None:
    folder = four_ranks(r0=[Op(LEFT, done=False)]).write(tmp_path, form="json")
    dump = four_ranks().dump(3)
    dump["entries"][4]["collective_seq_id"] = "five"
    dump["entries"][5]["record_id"] = 2**70
    (folder / "trace_rank_3.json").write_bytes(as_json(dump))
    found = analyse(folder)
    (entry,) = found.unreadable
    assert entry.what.startswith("2 entries are not understood; entry 5")
    assert found.behind == (1,)


def test_json_without_entries(tmp_path: Path) -> None:
    folder = four_ranks(r0=[Op(LEFT, done=False)]).write(tmp_path, form="json")
    dump = four_ranks().dump(1) | {"entries": []}
    (folder / "trace_rank_1.json").write_bytes(as_json(dump))
    assert b'"entries"' not in (folder / "trace_rank_1.json").read_bytes()
    found = analyse(folder)
    assert not found.unreadable
    assert found.behind == (1,), "its counters tell that it issued nothing further"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_compressed_dumps(tmp_path: Path, pack: Any, form: str) -> None:
    job = four_ranks(r0=[Op(LEFT, done=False)])
    for rank in range(4):
        content = as_pickle(job.dump(rank)) if form == "pickle" else as_json(job.dump(rank))
        (tmp_path / f"nccl_trace_rank_gpu-node02_{rank}.packed").write_bytes(pack(content))
        (tmp_path / f"nccl_trace_rank_gpu-node02_{rank}.packed").rename(tmp_path / f"trace_gpu-node02_{rank}.gz")
    assert analyse(tmp_path).behind == (1,)


def test_a_cut_compressed_dump(job: Path) -> None:
    (job / "trace_rank_9.gz").write_bytes(gzip.compress(as_pickle(four_ranks().dump(2)))[:-40])
    assert "ends early" in refused(job, "trace_rank_9.gz")


def test_a_dump_that_expands_without_end(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divtrace.evidence.opening.MAXIMUM_EXPANDED", 1 << 20)
    bomb = as_pickle({"version": "2.10", "entries": [], "pg_config": {"x" * (3 << 20): {}}, "pg_status": {}})
    (job / "trace_rank_9").write_bytes(gzip.compress(bomb))
    assert "after decompression" in refused(job, "trace_rank_9")


def test_a_folder_of_checkpoints_is_ignored(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.open

    def counting(self: Path, *args: Any, **kwargs: Any) -> Any:
        read.append(self.name)
        return original(self, *args, **kwargs)

    (job / "model-00001.safetensors").write_bytes(struct.pack("<Q", 70) + b'{"w":{"dtype":"BF16"}}' + bytes(4 << 20))
    (job / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(4 << 20))
    (job / "old_model.pt").write_bytes(b"\x80\x02\x8a\nl\xfcF\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + bytes(1 << 20))
    (job / "tokenizer.json").write_text('{"model": {"vocab": {"a": 1}}}')
    monkeypatch.setattr(Path, "open", counting)
    found = analyse(job)
    assert set(found.ignored) == {"model-00001.safetensors", "pytorch_model.bin", "old_model.pt", "tokenizer.json"}
    assert not found.unreadable
    assert read.count("model-00001.safetensors") == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    from divtrace.evidence.analyse import analyse_evidence

    (entry,) = analyse_evidence({"gone": tmp_path / "gone"}).unreadable
    assert "No such file" in entry.what
