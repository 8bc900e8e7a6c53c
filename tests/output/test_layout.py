"""Lines of a given width, with emphasis that can be left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from divtrace.output.layout import columns, emphasised, finished, padded, plain, wrapped


def test_lines_break_at_blanks_and_continue_under_the_text() -> None:
    assert wrapped("one two three four", 12, "  - ") == ["  - one two", "    three", "    four"]
    assert wrapped("one two", 12, "", "  ") == ["one two"]


def test_a_word_is_never_broken() -> None:
    assert wrapped("a " + "x" * 30 + " b", 10) == ["a", "x" * 30, "b"]


def test_wide_characters_take_two_columns() -> None:
    assert columns("中中") == 4
    assert padded("中", 4) == "中  "
    assert wrapped("中中中 中中中", 10) == ["中中中", "中中中"]


def test_emphasis_takes_no_room_and_goes_without_colour() -> None:
    text = emphasised("bad", "bad")

    assert columns(text) == 3
    assert plain(text) == "bad"
    assert finished([text + "  "], color=False) == "bad\n"
    assert finished([text], color=True) == "\x1b[1;31mbad\x1b[0m\n"


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(16, 40))
def test_wrapping_loses_no_word_and_keeps_the_width(words: list[str], width: int) -> None:
    lines = wrapped(" ".join(words), width, "  ")

    assert " ".join(line.strip() for line in lines).split() == words
    assert all(len(line) <= width for line in lines)
