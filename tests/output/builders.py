"""Small reports, written down by hand: each helper has defaults for what a test does not care about."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from divtrace.report.model import (
    Coverage,
    Damage,
    End,
    FieldDifference,
    Finding,
    Lag,
    NotCompared,
    Place,
    Progress,
    Replica,
    Report,
    RequestSummary,
    SiteCount,
    Timeout,
    Tool,
    Verdict,
    Where,
)


def finding(
    rule: str = "accept-length",
    values: dict[str, Any] | None = None,
    *,
    field: str | None = "correct_len",
    index: int | None = None,
    **changes: Any,
) -> Finding:
    """An origin in the accept of round 7 of request A, with ranks and places that follow from the values."""
    held = {"0": 3, "1": 2} if values is None else values
    numbers = tuple(int(rank.rpartition("/")[2]) for rank in held)
    named = () if field is None else (FieldDifference(name=field, index=index, values=held),)
    made = Finding(
        id=f"{rule}-7",
        rule=rule,
        also=(),
        rule_class="control",
        role="origin",
        world=0,
        ranks=numbers,
        replica=0,
        req="A",
        attempt=0,
        round=7,
        step=307,
        stage="accept",
        site="eagle-greedy",
        phase="used",
        n=0,
        field=field,
        index=index,
        values=held,
        fields=named,
        odd_ranks=(),
        attribution="The ranks hold different values here.",
        where={rank: Where(file=f"rank{rank.rpartition('/')[2]}.jsonl", line=812) for rank in held},
    )
    return replace(made, **changes)


def consequence(rule: str, of: Finding, *, link: str = "derived", lag: Lag | None = None, **changes: Any) -> Finding:
    """A finding that `of` explains, one round and six events later."""
    later = Lag(rounds=1, steps=1, events=6, ns=2_500_000) if lag is None else lag
    cause = {"role": "consequence", "caused_by": of.id, "link": link, "lag": later}
    return finding(rule, **{"field": "new_seq_len", "values": {"0": 104, "1": 103}, **cause, **changes})


def coverage(**changes: Any) -> Coverage:
    """Two files of two ranks that were read without any damage."""
    made = Coverage(
        files=2,
        ignored_files=0,
        events=4812,
        ranks=2,
        bad_lines=0,
        unknown_fields={},
        duplicates=0,
        lost_events=0,
        not_compared=(),
        missing_fields=(),
        damage=(),
    )
    return replace(made, **changes)


def replica(**changes: Any) -> Replica:
    """Replica 0 with the ranks 0 and 1."""
    made = Replica(id=0, world=0, ranks=(0, 1), attn_tp=((0, 1),), verdict="clean", requests=12, rounds=804, first=None)
    return replace(made, **changes)


def end(**changes: Any) -> End:
    """A trace that stops in a collective."""
    made = End(seq=2406, step=308, stage="collective", site="target-allreduce", req=None, round=None, clean=False)
    return replace(made, **changes)


def report(verdict: Verdict = "clean", *findings: Finding, **changes: Any) -> Report:
    """A report on two ranks; the first of the findings is the first divergence."""
    first = findings[0] if findings and findings[0].role == "origin" else None
    made = Report(
        tool=Tool(version="0.1.0"),
        verdict=verdict,
        summary="ranks 0-1 were compared over 804 rounds",
        first=first,
        findings=findings,
        findings_left_out={},
        last_agreement=None,
        precedence="no timeout known",
        healed=(),
        drift=(),
        progress=Progress(behind=(), ahead=(), cycle=()),
        replicas=(replica(verdict=verdict, first=first.id if first else None),),
        end={"0": end(), "1": end(seq=2399)},
        timeouts=(),
        coverage=coverage(),
        notes=(),
        next=(),
    )
    return replace(made, **changes)


def place(**changes: Any) -> Place:
    """The verify plan of round 7 of request A."""
    made = Place(req="A", attempt=0, round=7, step=307, stage="verify", site="plan", phase="used", n=0)
    return replace(made, **changes)


def request(req: str, why: str | None = None, **changes: Any) -> RequestSummary:
    """A request of replica 0, compared in full unless there is a reason why not."""
    made = RequestSummary(world=0, replica=0, req=req, rounds=12, compared="full" if why is None else "part", why=why)
    return replace(made, **changes)


def telling_report() -> Report:
    """A near tie in the target's argmax, and everything else that a report can hold, in two replicas."""
    origin = finding(
        "target-tokens",
        {"0": [11367, 20614, 19174, 25465], "1": [11367, 20614, 1507, 25465]},
        field="target_tokens",
        index=2,
        stage="verify",
        site="target",
        attribution="Observed: target_tokens[2] is 19174 on rank 0 and 1507 on rank 1; which is odd is undetermined.",
    )
    accept = consequence(
        "accept-length",
        origin,
        field="correct_len",
        values={"0": 3, "1": 2},
        lag=Lag(rounds=0, steps=0, events=2, ns=245_100),
    )
    batch = consequence(
        "batch-membership",
        accept,
        field="batch",
        values={"0": ["B"], "1": ["A", "B"]},
        req=None,
        round=None,
        step=308,
        stage="schedule",
        site=None,
        lag=Lag(rounds=None, steps=1, events=6, ns=725_300),
    )
    gathered = consequence(
        "collective-shape",
        batch,
        link="after",
        field="numel",
        values={"0": 28672, "1": 57344},
        rule_class="shape",
        req=None,
        round=None,
        step=308,
        stage="collective",
        site="target",
        comm="tp",
        comm_ranks=(0, 1),
        comm_seq=5012,
        lag=Lag(rounds=None, steps=1, events=10, ns=300_000_000_000),
    )
    other = finding(
        "schedule-decision",
        {"2": "abort", "3": "keep", "4": "keep"},
        field="decision",
        role="independent",
        replica=1,
        req="q-2",
        round=None,
        stage="schedule",
        site="running-timeout",
        odd_ranks=(2,),
        decided_on={"2": 30000.3, "3": 29999.6, "4": 29999.7},
        attribution="Observed: decision is abort on rank 2 and keep on ranks 3-4; rank 2 differs from the majority.",
    )
    return report(
        "divergence",
        origin,
        accept,
        batch,
        gathered,
        other,
        summary="Divergence: target-tokens at step 307, round 7 of A, verify/target, before the timeout.",
        last_agreement=place(),
        precedence="shown",
        healed=(SiteCount("dspark-plan", "verify_len", 12),),
        drift=(SiteCount("target", "target_tokens", 3), SiteCount(None, "batch", 1)),
        progress=Progress(behind=(1,), ahead=(0,), cycle=(2, 3)),
        replicas=(
            replica(verdict="divergence", first=origin.id),
            replica(id=1, ranks=(2, 3, 4), attn_tp=((2, 3), (4,)), verdict="divergence", requests=1, rounds=1),
        ),
        end={"0": end(), "1": end(), "2": end(stage="commit", site="commit", req="q-2", round=1, clean=True)},
        timeouts=(
            Timeout(
                ranks=(0, 1),
                comm="tp",
                comm_seq=5012,
                op="all_reduce",
                source="log",
                text="[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5012, OpType=ALLREDUCE)",
            ),
        ),
        coverage=coverage(
            ranks=5,
            files=5,
            ignored_files=2,
            bad_lines=1,
            lost_events=7,
            duplicates=2,
            unknown_fields={"draft_time": 3, "tags": 12},
            not_compared=(NotCompared(5, "no trace"), NotCompared(6, "no trace"), NotCompared(4, "its trace is cut")),
            missing_fields=("draft_tokens", "kv_slots"),
            damage=(Damage("rank1.jsonl", 17, "the line ends inside the record"),),
        ),
        notes=("The ranks' metas disagree in what they must share; the groups are taken from the lowest rank.",),
        next=("Look at `margin` of the deciding rows: close to zero speaks for a near tie.",),
        requests=(request("A"), request("B"), request("C", "rank 1: its trace is cut"), request("q-2", replica=1)),
    )


UNKNOWN_LAG = Lag(rounds=None, steps=None, events=None, ns=None)

HOSTILE = (
    "<script>alert(1)</script>\n::error file=x::boo\x1b[31m\x00\x7f\x9b2J \u202e\u2066\u200b\u2028\u2029\ufeff\u3164 "
    "`tick` |pipe| [link](http://evil.example) @team #1 **bold** $x$ & \"quote\" 'single' %0A ##[error]no \\ 😀中"
)
"""A request id as a client with bad intentions, or a fuzzer, would choose it."""
