"""One log line without what transports put in front of it, and the lines behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from divtrace.evidence.coordinates import Coordinates, coordinates

MAXIMUM_LINE = 64 * 1024
"""Characters of a line that are looked at."""
INTERLEAVED_LINES = 300
"""Lines of other processes between two lines of one message."""
JOINED_LINES = 4
"""Continuation lines that terminal wrapping may have made of one line."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\[(?:\d{1,3})(?:;\d{1,3})*m|\x1b[()][AB0]")
_BOX = "".join(map(chr, range(0x2500, 0x2580)))
"""Box drawing, as rich and others put around an error."""

_COMMON = re.compile(
    r"\[rank(\d{1,7})\]: ?(?:\[[EWIF](\d{3,4} \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? [\w.\-/]+:\d+\] ?)?(?=\S)"
)
_PREFIX = re.compile(
    r"""\s*(?:
      \[rank(?P<rank>\d{1,7})\]:\s?
    | \[(?:default|trainer)\d{0,7}\|?(?:\d{1,7})?\]:\s?
    | \[\d{1,4},(?P<mpi>\d{1,7})\]<std(?:out|err)>:\s?
    | (?P<k8s>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d))\s(?:(?:stdout|stderr)\s[FP]\s)?
    | \[pod/[\w.\-]+(?:/[\w.\-]+)?\]\s
    | \((?P<process>[A-Za-z_][\w.:\-]{0,80}(?:\ (?:pid|rank|ip)=[\w.:\-]+,?){1,4})\)\s
    | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s(?P<vllm>\d\d-\d\d\ \d\d:\d\d:\d\d)\s\[[\w./\-]+:\d+\]\s?
    | \[(?P<sglang>\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d{3})?)
        (?P<place>(?:\ (?:ATTN_CP|MOE_DP|DP|PP|TP|EP)\d{1,6})*)\]\s
    | \[(?P<bare>(?:(?:ATTN_CP|MOE_DP|DP|PP|TP|EP)\d{1,6}\ ?){1,6})\]\s
    | \[[EWIF](?P<glog>\d{3,4}\ \d\d:\d\d:\d\d(?:\.\d{1,9})?)\s(?:\d+\s)?[\w.\-/]+:\d+\]\s?
    | [EWIF](?P<pylog>\d{4}\ \d\d:\d\d:\d\d(?:\.\d{1,9})?)\s\d+\s[\w.\-/]+:\d+\]\s?
    | \[[EWIF]\ [\w.\-/]+:\d+\]\s?
    | \[(?:DEBUG|INFO|WARNING|ERROR)\]\s(?P<npu>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d(?:\.\d+)*)\s
        \(PID:\d+,\ ?Device:-?\d+,\ ?RankID:(?P<npurank>-?\d{1,7})\)\s
    | \[\d{1,9}\]\s(?=\[rank|\(|\[[EWIF])
    | (?P<docker>[A-Za-z][\w.\-]{0,63})\s+\|\s
    )""",
    re.VERBOSE,
)
_RANK_OF_PROCESS = re.compile(r"\brank=(\d{1,7})\b")


def _without_box(text: str) -> str:
    """The text inside a box; its own indentation stays."""
    bare = text.strip()
    if bare[-1:] and bare[-1] in _BOX:
        text = bare = bare.rstrip(_BOX).rstrip()
    if bare[:1] and bare[0] in _BOX:
        text = bare.lstrip(_BOX).removeprefix(" ")
    return text


class Line:
    """One line: its text without prefixes, and what the prefixes told."""

    __slots__ = ("coordinates", "number", "process", "rank", "raw", "text", "time")

    def __init__(self, raw: str, number: int) -> None:
        """Take the prefixes off a decoded line; `number` counts from 1."""
        self.raw = raw = raw.rstrip("\r\n")
        self.number = number
        self.rank: int | None = None
        self.coordinates: Coordinates | None = None
        self.process: str | None = None
        self.time: str | None = None
        quick = _COMMON.match(raw)
        if quick is not None and "\x1b" not in raw and raw[quick.end() : quick.end() + 1] != "m":
            self.rank = int(quick[1])
            self.time = quick[2]
            self.text = raw[quick.end() :]
            if not self.text.startswith(("[", "(")) or self.text.startswith(("[Rank", "[PG")):
                return
        self._prefixes(_without_box(_COLOUR.sub("", raw)))

    def _prefixes(self, text: str) -> None:
        at = 0
        for _ in range(8):
            found = _PREFIX.match(text, at)
            if found is None or found.end() == at:
                if text[at : at + 1] in _BOX and at < len(text):
                    # A box whose lines a transport has put its prefix in front of.
                    text, at = _without_box(text[at:]), 0
                    continue
                break
            at = found.end()
            groups = found.groupdict()
            rank = groups["rank"] or groups["mpi"] or groups["npurank"]
            if rank is not None and int(rank) >= 0:
                self.rank = int(rank)
            self.time = next(
                (groups[n] for n in ("k8s", "vllm", "sglang", "glog", "pylog", "npu") if groups[n]), self.time
            )
            process = groups["process"]
            if process is not None:
                self.process = process
                self.coordinates = coordinates(process.split(" ")[0]) or self.coordinates
                stated = _RANK_OF_PROCESS.search(process)
                if stated is not None:
                    self.rank = int(stated[1])
            place = groups["place"] or groups["bare"]
            if place:
                self.coordinates = coordinates(place)
        self.text = text[at:]

    @property
    def source(self) -> tuple[object, ...]:
        """Which process wrote the line, as far as its prefixes tell; lines of one source belong together."""
        return self.rank, self.coordinates, self.process

    @property
    def bare(self) -> bool:
        """Whether no prefix told anything: it may be the rest of a wrapped line."""
        return self.rank is None and self.coordinates is None and self.process is None and self.time is None

    def adopt(self, before: Line) -> None:
        """Take over what the prefixes of the line in front told, of which this one is the rest."""
        self.rank, self.coordinates, self.process, self.time = (
            before.rank,
            before.coordinates,
            before.process,
            before.time,
        )


class Following:
    """The lines behind the one at hand, cleaned on demand; what a reader consumes is not offered again.

    The line in front is there as well, because terminal wrapping may have cut a line before the words it is found by.
    """

    __slots__ = ("_before", "_fetch", "_lines", "consumed", "line")

    def __init__(
        self, line: Line, fetch: Callable[[int], Line | None], before: Callable[[], Line | None] = lambda: None
    ) -> None:
        """`fetch(k)` gives the k-th line behind `line` (k from 1), None past the end; `before()` the one in front."""
        self.line = line
        self._fetch = fetch
        self._before = before
        self._lines: list[Line] = []
        self.consumed = 0

    @property
    def before(self) -> Line | None:
        """The line in front, unless it was read already."""
        return self._before()

    def __iter__(self) -> Iterator[Line]:
        """The lines behind, nearest first."""
        position = 0
        while True:
            if position == len(self._lines):
                line = self._fetch(position + 1)
                if line is None:
                    return
                self._lines.append(line)
            yield self._lines[position]
            position += 1

    def same_source(self, limit: int) -> Iterator[tuple[int, Line]]:
        """(distance, line) for at most `limit` lines behind, only those of the same process.

        Ends at INTERLEAVED_LINES of other processes in a row.
        """
        source = self.line.source
        own = 0
        for distance, line in enumerate(self, 1):
            if distance > limit or distance - own > INTERLEAVED_LINES:
                return
            if line.source == source:
                own = distance
                yield distance, line

    def continued(self, limit: int) -> Iterator[tuple[int, Line]]:
        """(distance, line) for the lines behind that may go on with this one: of its process, or without a prefix."""
        for distance, line in enumerate(self, 1):
            if distance > limit or not (line.source == self.line.source or line.bare):
                return
            yield distance, line

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The pattern in the line, or in the line with its wrapped continuations put back."""
        text = self.line.text
        found = pattern.search(text)
        if found is None:
            return self.match_wrapped(pattern) or self.match_from_before(pattern)
        if found.end() == len(text) and text[-1:].isdigit() and self._number_goes_on():
            return None
        # A pattern that begins with the line may have begun in the one before.
        return found if found.start() or not self.line.bare else self.match_from_before(pattern) or found

    def match_wrapped(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The pattern where it begins in this line and ends in one behind it."""
        return self._joined(pattern, self.line.text, len(self.line.text))

    def _number_goes_on(self) -> bool:
        """Whether the next line begins with digits and with no prefix: half a number would be another number."""
        following = next(iter(self), None)
        return following is not None and following.bare and following.text[:1].isdigit()

    def match_from_before(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The pattern where it begins in the line in front; this line then has that one's rank and time."""
        line = self.line
        before = self._before()
        if before is None or not (line.bare or line.source == before.source):
            return None
        at = len(before.text)
        for joined in (before.text + line.text, before.text + " " + line.text):
            found = pattern.search(joined)
            if found is not None and found.start() < at < found.end():
                break
        else:
            found = self._joined(pattern, before.text + line.text, at)
            if found is None:
                return None
        line.adopt(before)
        return found

    def _joined(self, pattern: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
        """The pattern in a text and the lines behind it, if it begins in front of `at` and ends behind it.

        One that begins behind it is the next line's own.
        """
        tight = spaced = text
        for distance, line in enumerate(self, 1):
            if distance > JOINED_LINES or len(tight) > MAXIMUM_LINE:
                return None
            if line.rank not in (None, self.line.rank) or line.coordinates not in (None, self.line.coordinates):
                return None
            tight += line.text
            spaced += " " + line.text
            found = pattern.search(tight) or pattern.search(spaced)
            if found is not None and found.start() < at < found.end():
                self.consumed = max(self.consumed, distance)
                return found
        return None
