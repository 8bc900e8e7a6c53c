"""Text from a trace does nothing to a terminal, to Markdown or to a CI runner, and can still be told."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtrace.output.escape import (
    github_message,
    github_property,
    json_text,
    markdown_code,
    name,
    sentence,
    terminal,
)
from output.builders import HOSTILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank0.jsonl", "rank0.jsonl"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202e\u2066\u200b\ufeff", r"\u202e\u2066\u200b\ufeff"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u3164\ufe0f\U000e0100", r"\u3164\ufe0f\U000e0100"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        ("back\\slash", r"back\\slash"),
        ("😀 中 é", "😀 中 é"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert terminal(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", r"\x3a:error::x"),
        ("a ::warning x", r"a \x3a:warning x"),
        ("c10d::all_reduce", "c10d::all_reduce"),
        (":::", r"\x3a::"),
        ("a ##[error]x", r"a \x23#[error]x"),
        ("##vso[task.x]", r"\x23#vso[task.x]"),
        ("## heading", "## heading"),
    ],
)
def test_no_word_can_become_a_command_of_a_ci_runner(text: str, shown: str) -> None:
    assert terminal(text) == shown
    assert sentence(text) == shown


def test_a_sentence_keeps_its_backslashes() -> None:
    assert sentence("a\\b \x1b") == "a\\b \\x1b"


@given(st.text(alphabet=st.characters(), max_size=40))
def test_the_original_can_be_told_from_what_is_shown(text: str) -> None:
    shown = terminal(text)

    assert shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


@given(st.text(alphabet=st.characters(), max_size=40))
def test_nothing_that_moves_the_cursor_is_left(text: str) -> None:
    for shown in (terminal(text), sentence(text), name(text)):
        assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)
        assert not shown.lstrip(" ").startswith("::")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chat-1", "chat-1"),
        ("shard_0/rank0.jsonl", "shard_0/rank0.jsonl"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("[A, B]", '"[A, B]"'),
        (":x", '":x"'),
        ("é", '"é"'),
    ],
)
def test_a_name_is_quoted_unless_it_is_plain(text: str, shown: str) -> None:
    assert name(text) == shown


def test_a_long_name_is_cut_and_counted() -> None:
    assert name("a" * 5_000, 10) == "aaaaaaaaaa (4,990 more characters)"


def test_a_code_span_holds_neither_its_own_end_nor_that_of_a_table_cell() -> None:
    assert markdown_code("a`b|c") == r"`a\x60b\x7cc`"
    assert markdown_code("") == "` `"


def test_workflow_commands_are_escaped_as_github_reads_them() -> None:
    assert github_message("50%\r\na,b:c") == "50%25%0D%0Aa,b:c"
    assert github_property("50%\na,b:c") == "50%25%0Aa%2Cb%3Ac"


@given(st.text(max_size=40))
def test_json_keeps_its_meaning_and_loses_what_a_terminal_obeys(text: str) -> None:
    document = msgspec.json.encode({"req": text}).decode()
    harmless = json_text(document)

    assert msgspec.json.decode(harmless) == {"req": text}
    assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in harmless)
    assert "##[" not in harmless


def test_json_of_a_hostile_name_is_ascii_where_it_has_to_be() -> None:
    harmless = json_text(msgspec.json.encode(HOSTILE).decode())

    assert r"\u202e\u2066\u200b\u2028\u2029\ufeff\u3164" in harmless
    assert r"\u0023#[error]" in harmless
    assert "😀中" in harmless
