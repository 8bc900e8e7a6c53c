"""Dumps and logs beside traces: the traces say what diverged, the evidence how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace import analyze
from divtrace.report.model import Evidence, Report
from evidence.jobs import Job, Op
from evidence.runs import GROUP, collective, steps, target, write_traces
from evidence.test_log_analysis import TIMEOUT, watchdog

GROUP_TAG = "7(attn_tp)"


def log(folder: Path, text: str, name: str = "server.log") -> Path:
    (folder / name).write_text(text)
    return folder


def raised(rank: int, text: str) -> str:
    tag = f"(Worker_TP{rank} pid=5) ERROR 01-02 03:04:05 [m.py:1] "
    return f'{tag}Traceback (most recent call last):\n{tag}  File "/srv/b.py", line 9, in sample\n{tag}{text}\n'


def dumps(folder: Path, ranks: dict[int, list[Op]], **more: int) -> Path:
    return Job({GROUP: [0, 1]}, ranks, numbers_from=more).write(folder)


def issued(count: int, **last: object) -> list[Op]:
    return [Op(GROUP)] * (count - 1) + [Op(GROUP, **last)]  # type: ignore[arg-type]


def rules(report: Report) -> list[tuple[str, str]]:
    return [(one.rule, one.role) for one in report.findings]


def test_a_log_timeout_is_the_traces_operation_of_that_number(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, {0: steps(5, last="enqueued"), 1: steps(4, odd_at=3)})
    report = analyze(log(folder, watchdog(0, 0, 5, 5, GROUP_TAG)))
    assert (report.verdict, report.precedence) == ("divergence", "shown")
    (timeout,) = report.timeouts
    assert (timeout.ranks, timeout.comm, timeout.comm_seq, timeout.op) == ((0,), GROUP, 5, "all_reduce")
    assert timeout.source == "log"
    assert report.progress.behind == (1,)


def test_a_divergence_behind_the_operation_is_not_shown_to_precede(tmp_path: Path) -> None:
    late = [*steps(3), target(4, [11, 12])]
    folder = write_traces(tmp_path, {0: late, 1: [*steps(3), target(4, [11, 99])]})
    report = analyze(log(folder, watchdog(0, 0, 3, 3, GROUP_TAG)))
    assert (report.verdict, report.precedence) == ("divergence", "not shown")


def test_numbers_that_do_not_match_are_joined_by_order_and_said_so(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, {0: steps(5, first=41, last="enqueued"), 1: steps(4, odd_at=3, first=41)})
    report = analyze(log(folder, watchdog(0, 0, 5, 5, GROUP_TAG)))
    assert report.precedence == "shown"
    assert (report.timeouts[0].comm_seq, report.timeouts[0].comm) == (45, GROUP)
    assert any("by order, not by number" in note for note in report.notes)


def test_broadcasts_inside_graphs_do_not_count_in_dumps(tmp_path: Path) -> None:
    """The trace has three broadcasts that the communicator never saw."""
    records = steps(5, first=1, last="enqueued")
    mixed = []
    number = 0
    for record in records:
        if record["stage"] == "collective":
            if number in (0, 4, 6):
                number += 1
                mixed.append({**collective(number, op="broadcast"), "step": record["step"], "numel": 2})
            number += 1
            record = {**record, "comm_seq": number}
        mixed.append(record)
    peers = [record for record in mixed if not (record["stage"] == "collective" and record["comm_seq"] == number)]
    odd = [{**one, "target_tokens": [11, 99]} if one.get("round") == 2 else one for one in peers]
    folder = write_traces(tmp_path, {0: mixed, 1: odd})
    Job({GROUP: [0, 1]}, {0: issued(5), 1: issued(4)}, backend="gloo").write(folder)
    report = analyze(folder)
    (timeout,) = report.timeouts
    assert (timeout.source, timeout.ranks, timeout.comm_seq) == ("flight-recorder", (0,), number)
    assert report.precedence == "shown"
    assert any("CUDA graph" in note for note in report.notes)


def test_without_a_place_in_the_trace_precedence_is_not_shown(tmp_path: Path) -> None:
    decisions = [one for one in steps(4) if one["stage"] == "verify"]
    odd = [one for one in steps(4, odd_at=2) if one["stage"] == "verify"]
    folder = write_traces(tmp_path, {0: decisions, 1: odd})
    report = analyze(log(folder, watchdog(0, 0, 331, 331, GROUP_TAG)))
    assert (report.verdict, report.precedence) == ("divergence", "not shown")


def test_a_timeout_without_a_rank_is_the_only_operation_that_is_stuck(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, {0: steps(5, last="enqueued"), 1: steps(4, odd_at=3)})
    report = analyze(log(folder, TIMEOUT + "\n"))
    assert (report.timeouts[0].ranks, report.timeouts[0].comm_seq, report.precedence) == ((0,), 5, "shown")
    (folder / "rank1.jsonl").unlink()
    report = analyze(folder)
    assert report.timeouts[0].ranks == (), "another rank may be the one that gave up"


def test_one_error_text_and_two_right_answers(tmp_path: Path) -> None:
    """The straggler's peer raises the timeout's own error; only a rank's own error makes it the failed one."""
    waiting = raised(0, TIMEOUT)
    for name, text, verdict in (
        ("straggler", waiting, "rank_silent"),
        ("raise", raised(1, "ValueError: no such row") + waiting, "rank_failed"),
        ("stuck", raised(0, "ValueError: no such row") + waiting, "rank_silent"),
    ):
        folder = write_traces(tmp_path / name, {0: steps(5, last="enqueued"), 1: steps(4)})
        report = analyze(log(folder, text))
        assert (name, report.verdict, report.progress.behind) == (name, verdict, (1,))
    report = analyze(tmp_path / "raise")
    assert any("Rank 1 failed: ValueError: no such row (server.log:3)" in note for note in report.notes)


def test_a_failed_rank_may_have_left_no_trace(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, {0: steps(5, last="enqueued")})
    assert analyze(folder).verdict == "insufficient"
    report = analyze(log(folder, raised(1, "ValueError: no such row") + raised(0, TIMEOUT)))
    assert (report.verdict, report.summary.startswith("Rank 1 raised")) == ("rank_failed", True)


def test_mismatches_of_dumps_are_consequences_of_an_earlier_divergence(tmp_path: Path) -> None:
    other = {0: issued(5, shape=(4, 8), done=False), 1: issued(5, shape=(3, 8), done=False)}
    folder = dumps(write_traces(tmp_path / "clean", {0: steps(4), 1: steps(4)}), other)
    report = analyze(folder)
    assert rules(report) == [("collective-shape", "origin")]
    folder = dumps(write_traces(tmp_path / "odd", {0: steps(4), 1: steps(4, odd_at=2)}), other)
    report = analyze(folder)
    assert rules(report) == [("target-tokens", "origin"), ("collective-shape", "consequence")]
    effect = report.findings[1]
    assert (effect.caused_by, effect.where["1"].file) == (report.findings[0].id, "trace_rank_1")
    assert isinstance(report.evidence, Evidence)


def test_a_mismatch_that_the_traces_have_stands_once(tmp_path: Path) -> None:
    ranks = {rank: steps(4) for rank in (0, 1)}
    ranks[1] = [{**one, "numel": 24} if one.get("comm_seq") == 4 else one for one in ranks[1]]
    folder = dumps(write_traces(tmp_path, ranks), {0: issued(4), 1: issued(4, shape=(3, 8))})
    report = analyze(folder)
    assert rules(report) == [("collective-shape", "origin")]
    assert report.findings[0].where["0"].file == "rank0.jsonl"


def test_a_joined_mismatch_stands_where_the_traces_have_its_operation(tmp_path: Path) -> None:
    """The traces have no sizes; those of the dumps differ at operation 2, before the tokens differ."""
    bare = {rank: [{k: v for k, v in one.items() if k != "numel"} for one in steps(4)] for rank in (0, 1)}
    bare[1] = [{**one, "target_tokens": [11, 99]} if one.get("round") == 4 else one for one in bare[1]]
    folder = write_traces(tmp_path, bare)
    dumps(folder, {0: issued(4), 1: [Op(GROUP), Op(GROUP, shape=(3, 8)), *issued(2)]})
    report = analyze(folder)
    assert rules(report)[:2] == [("collective-shape", "origin"), ("target-tokens", "consequence")]
    assert (report.first and report.first.step) == 2


def batch(rank: int, size: int) -> str:
    rids = ", ".join(f"Req(rid=r{i}, input_ids=[1], output_ids=[2])" for i in range(size))
    return (
        f"[2026-08-01 10:00:0{rank} TP{rank}] Scheduler debug info:\n"
        f"scheduler.cur_batch_for_debug.batch_size()={size}\nscheduler.cur_batch_for_debug.reqs=[{rids}]\n"
    )


def test_batches_that_schedulers_printed(tmp_path: Path) -> None:
    text = batch(0, 24) + batch(1, 25)
    report = analyze(log(write_traces(tmp_path / "clean", {0: steps(4), 1: steps(4)}), text))
    assert rules(report) == [("batch-membership", "origin")]
    assert report.first is not None
    assert (report.first.rule_class, report.first.stage, report.first.field) == ("control", "schedule", "batch")
    report = analyze(log(write_traces(tmp_path / "odd", {0: steps(4), 1: steps(4, odd_at=2)}), text))
    assert rules(report) == [("target-tokens", "origin"), ("batch-membership", "consequence")]
    ranks = {rank: [{"stage": "schedule", "step": 1, "batch": ["r"] * (rank + 1) + [f"q{rank}"]}] for rank in (0, 1)}
    report = analyze(log(write_traces(tmp_path / "traced", ranks), text))
    assert [rule for rule, _ in rules(report)].count("batch-membership") == 1, "the traces show it already"


def test_waits_come_from_dumps_where_the_traces_have_no_collectives(tmp_path: Path) -> None:
    decisions = {rank: [one for one in steps(4) if one["stage"] == "verify"] for rank in (0, 1)}
    folder = dumps(write_traces(tmp_path, decisions), {0: issued(5, done=False), 1: issued(4)})
    report = analyze(folder)
    assert (report.verdict, report.progress.behind) == ("rank_silent", (1,))
    assert [(wait.rank, wait.waits_for, wait.comm_seq) for wait in report.progress.waits] == [(0, 1, 5)]


@pytest.mark.parametrize("worlds", [(1,), (0, 1)])
def test_evidence_belongs_to_world_0_unless_traces_say_otherwise(tmp_path: Path, worlds: tuple[int, ...]) -> None:
    for world in worlds:
        write_traces(tmp_path, {0: steps(3), 1: steps(3)}, world=world, name=f"w{world}_rank{{}}")
    report = analyze(dumps(tmp_path, {0: issued(4, done=False), 1: issued(3)}))
    assert report.verdict == "rank_silent"
    assert report.progress.behind == ((1,) if worlds == (1,) else ("0/1",))
    assert isinstance(report.evidence, Evidence)
    assert list(report.evidence.windows) == (["0", "1"] if worlds == (1,) else ["0/0", "0/1"])


def test_a_folder_of_traces_has_no_evidence_and_stray_texts_stay_ignored(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, {0: steps(3), 1: steps(3)})
    log(folder, "Loaded the model in 3 s.\n", "worker.log")
    log(folder, (folder / "rank0.jsonl").read_text(), "rank0.jsonl.bak")
    report = analyze(folder)
    assert not isinstance(report.evidence, Evidence)
    assert report.coverage.ignored_files == 2


@pytest.mark.parametrize(
    ("number", "absent", "verdict"), [(5, False, "clean"), (9, False, "insufficient"), (5, True, "insufficient")]
)
def test_what_a_timeout_leaves_open(tmp_path: Path, number: int, absent: bool, verdict: str) -> None:
    """Where the traces have the operation on all its members, a log that repeats it adds nothing.

    Elsewhere it is an operation of which a member has no trace (SPEC section 6).
    """
    folder = write_traces(tmp_path, {0: steps(5, last="timeout"), 1: [*steps(5), target(6, [11, 12])]})
    if number == 5 and not absent:
        assert analyze(folder).verdict == verdict
    if absent:
        (folder / "rank1.jsonl").unlink()
    report = analyze(log(folder, watchdog(0, 0, number, number, "8(other_group)" if number == 9 else GROUP_TAG)))
    assert report.verdict == verdict
    assert report.timeouts[-1].source == "log"
