"""A file is replaced whole or left as it was; what is not a file is not replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cli.command import Call
from divtrace.cli._files import append_file, check_writable, write_file
from divtrace.errors import UsageError


def test_a_new_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    write_file(str(tmp_path / "report"), b"new")

    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "report").read_bytes() == b"new"
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_bytes(b"old and longer than the new content")
    file.chmod(0o640)

    write_file(str(file), b"new")

    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"old")
    (tmp_path / "link").symlink_to("kept")

    write_file(str(tmp_path / "link"), b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report"
    file.write_bytes(b"old")

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as opened:
            opened.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(UsageError, match=r"cannot write .*report: No space left on device"):
        write_file(str(file), b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert file.read_bytes() == b"old"


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_path: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(str(tmp_path / "report"), b"new")

    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    """A named pipe stands for devices: a test must not put /dev/null at stake, which root could replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_file(str(pipe), b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder"):
        check_writable(str(tmp_path))


def test_a_missing_folder_is_told_before_the_work_begins(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        check_writable(str(tmp_path / "missing" / "report"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_folder_is_told_before_the_work_begins(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="permission denied"):
        check_writable(str(tmp_path / "report"))


def test_append_adds_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    append_file(str(file), b"one\n")
    append_file(str(file), "two\n")

    assert file.read_bytes() == b"one\ntwo\n"


def test_output_goes_to_the_file_and_nothing_to_standard_output(call: Call, tmp_path: Path) -> None:
    run = call("topology", "--tp", "2", "-o", "groups.txt", cwd=tmp_path)

    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert (tmp_path / "groups.txt").read_text(encoding="utf-8").startswith("2 ranks, 1 replica")


def test_a_dash_is_standard_output(call: Call, tmp_path: Path) -> None:
    run = call("topology", "--tp", "2", "-o", "-", cwd=tmp_path)

    assert run.stdout.startswith("2 ranks, 1 replica")
    assert list(tmp_path.iterdir()) == []
