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


class Following:
    """The lines behind the one at hand, cleaned on demand; what a reader consumes is not offered again."""

    __slots__ = ("_fetch", "_lines", "consumed", "line")

    def __init__(self, line: Line, fetch: Callable[[int], Line | None]) -> None:
        """`fetch(k)` gives the k-th line behind `line` (k from 1), None past the end."""
        self.line = line
        self._fetch = fetch
        self._lines: list[Line] = []
        self.consumed = 0

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

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The pattern in the line, or in the line with its wrapped continuations put back."""
        found = pattern.search(self.line.text)
        if found is not None:
            return found
        tight = spaced = self.line.text
        for distance, line in enumerate(self, 1):
            if distance > JOINED_LINES or len(tight) > MAXIMUM_LINE:
                return None
            if line.rank not in (None, self.line.rank) or line.coordinates not in (None, self.line.coordinates):
                return None
            tight += line.text
            spaced += " " + line.text
            found = pattern.search(tight) or pattern.search(spaced)
            if found is not None:
                self.consumed = max(self.consumed, distance)
                return found
        return None
