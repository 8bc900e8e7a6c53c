"""Token ids are the prompt: what a trace says of them is the operator's choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.record import Recorder, Settings
from divtrace.record.tokens import TokenPrivacy, is_token_key
from record.reading import read

KEY = "a key that all ranks share"


pytestmark = pytest.mark.usefixtures("fresh")


def record(directory: Path, settings: Settings, rank: int = 0) -> list[int]:
    draft = [311, 42, 42, -1]
    with Recorder(directory, rank=rank, settings=settings) as recorder:
        recorder.event(
            "accept",
            "greedy",
            draft_root=7,
            draft_tokens=draft,
            target_tokens=[311],
            bonus=42,
            out_tokens=[311, 42],
            correct_len=1,
            positions=[311],
            extra={"control.sampled_tokens": [42, 311], "info.count": 42},
        )
    return draft


def text_of(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.iterdir())


def test_a_hash_keeps_equality_and_nothing_else(tmp_path: Path) -> None:
    handed_over = record(tmp_path, Settings(token_mode="hash", token_key=KEY))
    written = read(tmp_path)
    event = written.events[0]
    assert event.draft_tokens is not None
    assert event.target_tokens is not None
    assert event.extra is not None
    first, second, third, padding = event.draft_tokens
    assert second == third == event.bonus
    assert event.target_tokens == [first]
    assert event.out_tokens == [first, second]
    assert event.extra["control.sampled_tokens"] == [second, first]
    assert (padding, event.correct_len, event.positions, event.extra["info.count"]) == (-1, 1, [311], 42)
    assert all(value not in (311, 42, 7) for value in (first, second, event.draft_root))
    assert all(0 <= value < 2**63 for value in (first, second))
    assert handed_over == [311, 42, 42, -1], "the caller's list was changed"


def test_ranks_with_one_key_agree_and_with_two_keys_do_not(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"{KEY}\n")
    record(tmp_path / "a", Settings(token_mode="hash", token_key=KEY))
    record(tmp_path / "b", Settings(token_mode="hash", token_key_file=str(key_file)))
    record(tmp_path / "c", Settings(token_mode="hash", token_key="another key, long enough"))
    a, b, c = (read(tmp_path / name) for name in "abc")
    assert a.events[0].draft_tokens == b.events[0].draft_tokens
    assert a.events[0].draft_tokens != c.events[0].draft_tokens
    assert a.raw_metas[0]["tokens"] == b.raw_metas[0]["tokens"]
    assert a.raw_metas[0]["tokens"] != c.raw_metas[0]["tokens"]


def test_the_key_never_reaches_the_trace(tmp_path: Path) -> None:
    record(tmp_path, Settings(token_mode="hash", token_key=KEY))
    text = text_of(tmp_path)
    assert KEY not in text
    assert KEY.encode().hex() not in text
    assert read(tmp_path).raw_metas[0]["tokens"] == TokenPrivacy("hash", KEY.encode()).meta()


@pytest.mark.parametrize(
    "settings",
    [Settings(token_mode="off"), Settings(token_mode="hash"), Settings(token_mode="hash", token_key="short")],
    ids=["off", "no key", "short key"],
)
def test_without_a_shared_key_tokens_are_left_out(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    record(tmp_path, settings)
    written = read(tmp_path)
    event = written.events[0]
    assert (event.draft_root, event.draft_tokens, event.target_tokens, event.bonus, event.out_tokens) == (None,) * 5
    assert event.extra == {"info.count": 42}
    assert event.correct_len == 1
    assert written.raw_metas[0]["tokens"] == {"mode": "off"}
    assert ("token ids are left out" in caplog.text) is (settings.token_mode == "hash")


def test_plain_is_the_default(tmp_path: Path) -> None:
    record(tmp_path, Settings())
    written = read(tmp_path)
    assert written.events[0].draft_tokens == [311, 42, 42, -1]
    assert "tokens" not in written.raw_metas[0]


def test_a_token_field_of_another_shape_is_left_out_when_hashed(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0, settings=Settings(token_mode="hash", token_key=KEY)) as recorder:
        recorder.event("accept", "x", out_tokens=["the", "prompt"], extra={"info.prompt_ids": "1 2 3"})
    assert read(tmp_path).events[0].out_tokens is None
    assert "prompt" not in text_of(tmp_path)


@pytest.mark.parametrize("mode", ["off", "hash"])
def test_a_field_that_the_format_does_not_have_shows_no_value_in_a_private_mode(tmp_path: Path, mode: str) -> None:
    # Nobody can tell whether it holds tokens, and it would move under `extra` as it is.
    with Recorder(tmp_path, rank=0, settings=Settings(token_mode=mode, token_key=KEY)) as recorder:
        for _ in range(2):
            recorder.event(
                "accept",
                "x",
                prompt_tokens=[987_654_321_098],
                sampled=987_654_321_098,
                positions=["987654321098"],
                row=5,
            )
            recorder.event("accept", "y", correct_len="987654321098", extra=[987_654_321_098])
            recorder.event("accept", "z", extra={"control.pair": {"tokens": [987_654_321_098], "steps": 3}})
        recorder.flush()
        assert recorder.wrong_fields == 10
    written = read(tmp_path)
    assert "987654321098" not in text_of(tmp_path)
    first = written.events[0]
    assert (first.row, first.extra) == (
        5,
        {"info.prompt_tokens": "<list>", "info.sampled": "<int>", "info.positions": "<list>"},
    )
    extra = written.events[2].extra
    assert extra is not None
    assert extra["control.pair"]["steps"] == 3


def test_a_long_queue_does_not_open_a_private_mode(tmp_path: Path) -> None:
    settings = Settings(token_mode="off", flush_seconds=3600)
    with Recorder(tmp_path, rank=0, settings=settings) as recorder:
        recorder.event("accept", "x", row=0)
        recorder.flush()
        recorder.event("accept", "x", prompt_tokens=[987_654_321_098])
        for row in range(5000):
            recorder.event("accept", "x", row=row)
        recorder.flush()
    assert "987654321098" not in text_of(tmp_path)


@pytest.mark.parametrize(
    ("key", "holds"),
    [("control.sampled_tokens", True), ("info.input_ids", True), ("tokens", True), ("layout.token_count", False)],
)
def test_keys_of_extra_that_hold_tokens(key: str, holds: bool) -> None:
    assert is_token_key(key) is holds
