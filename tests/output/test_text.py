"""The report for people."""

from __future__ import annotations

import re
import unicodedata

import pytest

from divtrace.output import OUTPUTS, OutputOptions
from divtrace.report.model import (
    VERDICTS,
    Damage,
    FieldDifference,
    NotCompared,
    Progress,
    Report,
    Timeout,
    Verdict,
    Where,
)
from output.builders import (
    HOSTILE,
    UNKNOWN_LAG,
    consequence,
    coverage,
    end,
    finding,
    place,
    replica,
    report,
    telling_report,
)
from output.golden_files import check_golden


def text_of(shown: Report, **options: object) -> str:
    return OUTPUTS["text"].render(shown, OutputOptions(**options))  # type: ignore[arg-type]


def lines_beyond(text: str, width: int) -> list[str]:
    """The lines that are wider than they have to be: those with more than one word behind their indentation."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


def test_a_divergence_with_everything_around_it() -> None:
    check_golden("telling.txt", text_of(telling_report()))


def test_the_same_on_a_narrow_terminal_and_in_full() -> None:
    narrow = text_of(telling_report(), width=50)

    assert not lines_beyond(narrow, 50)
    check_golden("telling-verbose.txt", text_of(telling_report(), verbose=True))


def test_sections_come_in_the_order_in_which_they_are_needed() -> None:
    text = text_of(telling_report())
    headings = (
        "divtrace 0.1.0",
        "DIVERGENCE: ",
        "First divergence",
        "What followed",
        "Independent of",
        "Healed",
        "Drift",
        "Timeouts",
        "Progress",
        "Not compared",
        "Notes",
        "Next check",
    )

    assert sorted(headings, key=text.index) == list(headings)


def test_colour_adds_nothing_but_colour() -> None:
    coloured = text_of(telling_report(), color=True)

    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text_of(telling_report())


@pytest.mark.parametrize("verdict", [verdict for verdict in VERDICTS if verdict != "divergence"])
def test_verdicts_without_a_finding(verdict: Verdict) -> None:
    shown = report(verdict, summary="ranks 0-1 agree in 804 rounds")

    check_golden(f"{verdict}.txt", text_of(shown))


@pytest.mark.parametrize(
    ("verdict", "summary", "line"),
    [
        ("clean", "Clean: 2 ranks agree.", "CLEAN: 2 ranks agree."),
        (
            "insufficient",
            "Insufficient evidence: rank 1 left no trace.",
            "INSUFFICIENT EVIDENCE: rank 1 left no trace.",
        ),
        ("rank_silent", "Rank 1 stopped: undetermined.", "RANK SILENT: Rank 1 stopped: undetermined."),
    ],
)
def test_the_verdict_is_named_once(verdict: Verdict, summary: str, line: str) -> None:
    assert line in text_of(report(verdict, summary=summary)).splitlines()


def test_a_clean_report_says_nothing_of_timeouts_ends_or_next_checks() -> None:
    text = text_of(report())

    assert [line for line in text.splitlines() if line] == [
        "divtrace 0.1.0: 2 files, 2 ranks, 4,812 events",
        "  replica 0: ranks 0-1; attn_tp [0-1]; 12 requests, 804 rounds; clean",
        "CLEAN: ranks 0-1 were compared over 804 rounds",
    ]


def test_values_stand_side_by_side_with_file_and_line() -> None:
    shown = finding(values={"0": 3, "1": 2}, where={"0": Where("a.jsonl", line=5), "1": Where("b.parquet", row=77)})

    assert "    rank 0  3  a.jsonl:5\n    rank 1  2  b.parquet row 77\n" in text_of(report("divergence", shown))


def test_odd_ranks_are_named() -> None:
    assert "  odd: rank 1\n" in text_of(report("divergence", finding(odd_ranks=(1,))))
    assert "odd:" not in text_of(report("divergence", finding()))


def test_all_differing_fields_of_the_event_are_shown() -> None:
    shown = finding(
        fields=(
            FieldDifference("correct_len", None, {"0": 3, "1": 2}),
            FieldDifference("bonus", None, {"0": 60, "1": 15}),
        )
    )
    text = text_of(report("divergence", shown))

    assert text.index("  correct_len\n    rank 0  3") < text.index("  bonus\n    rank 0  60")


def test_a_skipped_event_tells_who_recorded_it() -> None:
    shown = finding(
        "skipped-event",
        {"0": {"verify_len": 5}, "1": None},
        field=None,
        fields=(),
        where={"0": Where("rank0.jsonl", line=37)},
    )
    text = text_of(report("divergence", shown))

    assert "    rank 0  {verify_len: 5}  rank0.jsonl:37\n    rank 1  no such event\n" in text


def test_a_skipped_event_without_any_values_still_tells_who_recorded_it() -> None:
    nothing = dict.fromkeys(("0", "1", "2"))
    shown = finding("skipped-event", nothing, field=None, where={"0": Where("a", line=1), "2": Where("c", line=3)})
    text = text_of(report("divergence", shown, consequence("positions", shown, field=None, values=nothing)))

    assert "    ranks 0,2  recorded       0: a:1; 2: c:3\n    rank 1     no such event\n" in text


def test_the_values_behind_a_broken_invariant_are_shown_in_full() -> None:
    values = {"1": {"seq_len": 100, "commit_len": 2, "new_seq_len": 103, "correct_len": 1, "cap_trim_len": 0, "uno": 0}}
    text = text_of(report("divergence", finding("commit-arithmetic", values, field=None)))

    assert "rank 1  {seq_len: 100, commit_len: 2, new_seq_len: 103, correct_len: 1," in text
    assert "            cap_trim_len: 0, uno: 0}\n" in text


def test_a_thousand_ranks_fit() -> None:
    ranks = [str(rank) for rank in range(1024)]
    values = {rank: [7] * 500 + [int(rank == "700")] for rank in ranks}
    shown = finding("draft-tokens", values, field="draft_tokens", index=500, odd_ranks=(700,))
    text = text_of(
        report("divergence", shown, replicas=(replica(ranks=tuple(range(1024)), attn_tp=(tuple(range(1024)),)),))
    )

    check_golden("thousand-ranks.txt", text)
    assert "ranks 0-699,701-1023" in text
    assert not lines_beyond(text, 80)


def test_ranks_too_many_for_a_column_stand_above_their_value() -> None:
    shown = finding(values={str(rank): rank % 2 for rank in range(1024)}, where={})
    text = text_of(report("divergence", shown))

    assert "    ranks 0,2,4,6,8,10,12,14,16,18,20,22 and 500 more\n" + " " * 30 + "0\n" in text


def test_a_thousand_different_values_are_counted_and_the_odd_one_is_listed() -> None:
    shown = finding(values={str(rank): rank for rank in range(1024)}, odd_ranks=(1000,))
    text = text_of(report("divergence", shown))

    assert "rank 1000" in text
    assert "and 1,000 other values on ranks 23-999,1001-1023" in text
    assert "and 1,000 other values" not in text_of(report("divergence", shown), verbose=True)


def test_lists_of_ten_thousand_elements_are_shortened_around_the_difference() -> None:
    ours, theirs = list(range(10_000)), [*range(9_000), 5, *range(9_001, 10_000)]
    shown = finding("draft-tokens", {"0": ours, "1": theirs}, field="draft_tokens", index=9_000)
    text = text_of(report("divergence", shown))

    assert "draft_tokens[9000]\n" in text
    assert ">9000<" in text
    assert ">5<" in text
    assert not lines_beyond(text, 80)


def test_consequences_beyond_twenty_are_counted() -> None:
    origin = finding()
    chain = [
        consequence("positions" if number % 2 else "commit-length", origin, id=f"c{number}") for number in range(5_000)
    ]
    text = text_of(report("divergence", origin, *chain, findings_left_out={"finish": 7}))

    assert "What followed (5,007 findings; lags count from the origin)" in text
    assert "  #21  positions" in text
    assert "#22" not in text
    assert "  and 4,987 more: commit-length 2,490, positions 2,490, finish 7\n" in text
    assert "  #5001 positions" in text_of(report("divergence", origin, *chain), verbose=True)


def test_a_consequence_names_its_cause_even_if_that_is_not_listed() -> None:
    origin = finding()
    orphan = consequence("finish", origin, caused_by="gone", lag=UNKNOWN_LAG)
    text = text_of(report("divergence", origin, orphan))

    assert "lag unknown: derived from a finding that is not shown" in " ".join(text.split())


def test_independent_findings_beyond_ten_are_counted() -> None:
    others = [finding("finish", id=f"i{number}", role="independent") for number in range(12)]
    text = text_of(report("divergence", finding(), *others))

    assert "Independent of the first divergence (12 findings)" in text
    assert "  and 2 more: finish 2\n" in text


def test_worlds_are_told_apart() -> None:
    replicas = (replica(), replica(id=1, world=1))
    shown = finding(values={"1/0": 3, "1/1": 2}, world=1, replica=1)
    text = text_of(
        report(
            "divergence",
            shown,
            replicas=replicas,
            end={"0/0": end(), "0/1": end(), "1/0": end(), "1/1": end(clean=True)},
        )
    )

    assert "  world 1, replica 1: ranks 1/0-1; attn_tp [0-1];" in text
    assert "    rank 1/1  2  rank1.jsonl:812" in text
    assert "  ranks 0/0-1,1/0: last event at step 308" in text


def test_equal_ends_and_reasons_share_a_line() -> None:
    shown = report(
        "rank_silent",
        end={str(rank): end(seq=rank) for rank in range(64)} | {"64": end(stage="draft", site=None, req="A", round=4)},
        coverage=coverage(not_compared=tuple(NotCompared(rank, "no trace") for rank in (70, 71, 72))),
        progress=Progress(behind=(64,), ahead=(), cycle=()),
    )
    text = text_of(shown)

    assert "  ranks 0-63: last event at step 308, collective/target-allreduce\n" in text
    assert "  rank 64: last event at request A, round 4, step 308, draft\n" in text
    assert "  ranks 70-72, each: no trace\n" in text
    assert "  behind: rank 64; others wait for it\n" in text


def test_what_is_long_is_counted_beyond_its_limit() -> None:
    shown = report(
        replicas=tuple(replica(id=number, ranks=(number,), attn_tp=((number,),)) for number in range(512)),
        coverage=coverage(
            damage=tuple(Damage("rank0.jsonl", line, "not JSON") for line in range(1, 40)),
            unknown_fields={f"field{number}": 1 for number in range(30)},
        ),
        timeouts=tuple(Timeout((rank,), "tp", rank, "all_reduce", "trace", "x" * 1000) for rank in range(30)),
        notes=tuple(f"note {number}" for number in range(100)),
    )
    text = text_of(shown)

    assert "  and 500 more replicas: clean 500\n" in text
    assert "    and 34 more\n" in text
    assert "field11 (1)" in text
    assert "and 25 more" in text
    assert "  and 22 more\n" in text
    assert "x" * 300 + "..." in text
    assert "  and 88 more\n" in text
    assert text.count("\n") < 90


def test_precedence_is_said_in_words() -> None:
    timeouts = (Timeout((0,), "tp", 3, None, "flight-recorder", ""),)

    assert "before the timeout on its own ranks: shown" in text_of(
        report("divergence", finding(), timeouts=timeouts, precedence="shown")
    )
    assert "is not shown\n" in text_of(report("divergence", finding(), timeouts=timeouts, precedence="not shown"))
    assert "Timeouts: none known\n" in text_of(report("divergence", finding()))
    assert "the first divergence" not in text_of(report("rank_silent", timeouts=timeouts, precedence="not shown"))


def hostile_report() -> Report:
    origin = finding(
        values={"0": HOSTILE, "1": [HOSTILE, "b"]},
        field=f"extra.control.{HOSTILE}",
        index=0,
        req=HOSTILE,
        site=HOSTILE,
        attribution=HOSTILE,
        comm=HOSTILE,
        where={"0": Where(HOSTILE + "\udc80", line=1), "1": Where(HOSTILE, row=1)},
        decided_on={"0": HOSTILE, "1": {HOSTILE: HOSTILE}},
    )
    follower = consequence("finish", origin, req=HOSTILE, values={"0": HOSTILE, "1": ""})
    return report(
        "divergence",
        origin,
        follower,
        summary=HOSTILE,
        last_agreement=place(req=HOSTILE, site=HOSTILE),
        notes=(HOSTILE, "::error::x"),
        next=(HOSTILE,),
        timeouts=(Timeout((0,), HOSTILE, 1, HOSTILE, "log", HOSTILE),),
        end={"0": end(req=HOSTILE, site=HOSTILE, stage="accept")},
        coverage=coverage(
            unknown_fields={HOSTILE: 1},
            not_compared=(NotCompared(3, HOSTILE),),
            missing_fields=(HOSTILE,),
            damage=(Damage(HOSTILE, 3, HOSTILE),),
        ),
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_hostile_names_do_nothing_to_a_terminal(width: int) -> None:
    text = text_of(hostile_report(), width=width)
    forbidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}

    assert not [character for character in text if unicodedata.category(character) in forbidden and character != "\n"]
    assert not [line for line in text.splitlines() if line.lstrip().startswith(("::", "##["))]
    assert "##[" not in text


def test_no_line_is_wider_than_it_has_to_be() -> None:
    for shown in (telling_report(), hostile_report()):
        assert not lines_beyond(text_of(shown), 80)
        assert not lines_beyond(text_of(shown, verbose=True), 80)
