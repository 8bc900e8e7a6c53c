"""Jobs with a known fault, and what their dumps support."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from divtrace.evidence import pool
from divtrace.evidence.read import read_evidence
from divtrace.evidence.report import EvidenceReport
from evidence.jobs import LEFT, RIGHT, WORLD, Job, Op, analyse, as_json, as_pickle, four_ranks, rounds

PENDING = Op(LEFT, done=False)
VICTIM = Op(WORLD, "_all_gather_base", (2, 8), output=(8, 8), done=False)


def gloo(job: Job) -> Job:
    """The same job over gloo, where a retired operation is completed or timed out."""
    ranks = {rank: [dataclasses.replace(op, done=True) for op in ops] for rank, ops in job.ranks.items()}
    return dataclasses.replace(job, backend="gloo", ranks=ranks)


def crossed() -> Job:
    """Rank 1 runs the world's operation before its group's; ranks 2 and 3 run them in the usual order."""
    world = Op(WORLD, shape=(6, 8), done=False)
    return four_ranks(r0=[PENDING], r1=[world], r2=[Op(RIGHT), world], r3=[Op(RIGHT), world])


@pytest.fixture(params=["pickle", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def report(job: Job, folder: Path, form: str = "pickle", only: tuple[int, ...] = ()) -> EvidenceReport:
    return analyse(job.write(folder, form=form, only=only))


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_nothing_wrong(tmp_path: Path, form: str, backend: str) -> None:
    job = dataclasses.replace(four_ranks(), backend=backend)
    found = report(job, tmp_path, form)
    assert (found.verdict, found.findings, found.behind, found.cycle) == ("clean", (), (), ())
    assert found.compared == 15
    assert found.operation_count == 36


@pytest.mark.parametrize("over_gloo", [False, True])
def test_a_rank_that_lacks_an_operation_is_waited_for(tmp_path: Path, form: str, over_gloo: bool) -> None:
    job = four_ranks(r0=[PENDING])
    found = report(gloo(job) if over_gloo else job, tmp_path, form)
    assert (found.verdict, found.behind, found.ahead) == ("rank_silent", (1,), (0,))
    assert not found.findings
    assert found.waits.stalls[0].waiters[0].number == 7


def test_many_operations_enqueued_behind_the_pending_one(tmp_path: Path) -> None:
    job = four_ranks(r0=[PENDING] * 40, r2=[VICTIM], r3=[VICTIM])
    found = report(job, tmp_path)
    assert found.behind == (1,)


@pytest.mark.parametrize("over_gloo", [False, True])
def test_crossed_order_is_a_cycle(tmp_path: Path, form: str, over_gloo: bool) -> None:
    job = crossed()
    found = report(gloo(job) if over_gloo else job, tmp_path, form)
    assert (found.verdict, found.cycle) == ("divergence", (0, 1))
    (finding,) = found.findings
    assert (finding.rule, finding.field, finding.ranks, finding.comm) == ("collective-order", "comm", (0, 1), LEFT)
    assert "rank 0 waits in attention_tp:device #7 for rank 1" in finding.attribution
    assert "rank 1 waits in default_pg #4 for rank 0" in finding.attribution


def test_another_size_has_no_odd_rank_in_a_group_of_two(tmp_path: Path, form: str) -> None:
    job = four_ranks(r0=[PENDING], r1=[Op(LEFT, shape=(3, 8), done=False)], r2=[VICTIM], r3=[VICTIM])
    found = report(job, tmp_path, form)
    finding = found.findings[0]
    assert (found.verdict, finding.rule, finding.comm, finding.number) == ("divergence", "collective-shape", LEFT, 7)
    assert (finding.field, finding.values) == ("shape", {0: (4, 8), 1: (3, 8)})
    assert (finding.ranks, finding.odd_ranks) == ((0, 1), ())
    assert finding.where == {rank: (f"trace_rank_{rank}" + (".json" if form == "json" else ""), 10) for rank in (0, 1)}
    assert found.behind == (0, 1)


@pytest.mark.parametrize(
    ("usual", "odd", "rule", "field"),
    [
        (Op(WORLD), Op(WORLD, shape=(2, 8)), "collective-shape", "shape"),
        (Op(WORLD), Op(WORLD, dtype="Float"), "collective-shape", "dtype"),
        (Op(WORLD), Op(WORLD, "all_gather"), "collective-order", "op"),
    ],
)
def test_a_strict_majority_makes_a_rank_odd(
    tmp_path: Path, form: str, usual: Op, odd: Op, rule: str, field: str
) -> None:
    job = four_ranks(r0=[usual], r1=[usual], r2=[odd], r3=[usual])
    finding = report(job, tmp_path, form).findings[0]
    assert (finding.rule, finding.field, finding.odd_ranks) == (rule, field, (2,))


def test_sizes_of_an_uneven_exchange_may_differ(tmp_path: Path) -> None:
    job = four_ranks(**{f"r{rank}": [Op(WORLD, "all_to_allv", (rank + 1, 8))] for rank in range(4)})
    assert report(job, tmp_path).verdict == "clean"


def test_reduce_scatter_is_compared_by_its_output(tmp_path: Path) -> None:
    tails = {f"r{rank}": [Op(WORLD, "_reduce_scatter_base", (8, 8), output=(2, 8))] for rank in range(4)}
    tails["r3"] = [Op(WORLD, "_reduce_scatter_base", (8, 8), output=(3, 8))]
    finding = report(four_ranks(**tails), tmp_path).findings[0]
    assert (finding.values, finding.odd_ranks) == ({0: (2, 8), 1: (2, 8), 2: (2, 8), 3: (3, 8)}, (3,))


def test_an_absent_rank_is_unobserved_and_not_behind(tmp_path: Path, form: str) -> None:
    job = four_ranks(r0=[PENDING], r2=[VICTIM], r3=[VICTIM])
    found = report(job, tmp_path, form, only=(0, 2, 3))
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert found.not_compared[0][0] == 1
    assert found.next[0].startswith("rank 1 ")


def test_an_absent_rank_over_gloo_leaves_the_group_open(tmp_path: Path, form: str) -> None:
    job = gloo(four_ranks(r0=[PENDING], r2=[VICTIM], r3=[VICTIM]))
    found = report(job, tmp_path, form, only=(0, 2, 3))
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert [rank for rank, _ in found.not_compared] == [1]


def test_the_highest_rank_absent_is_known_from_the_gathered_size(tmp_path: Path) -> None:
    found = report(gloo(four_ranks()), tmp_path, only=(0, 1, 2))
    assert [rank for rank, _ in found.not_compared] == [3]
    assert found.verdict == "insufficient"


def test_a_stale_dump_bounds_what_is_said(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT), Op(LEFT), PENDING])
    found = report(job, tmp_path)
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert found.windows[1].horizon is not None
    assert "past rank 1's horizon" in dict(found.not_compared)[1]


def test_a_rank_that_raised_is_not_stale(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT, "broadcast", (4,), "Int"), PENDING])
    folder = job.write(tmp_path)
    (folder / "rank1.err").write_text(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/srv/a.py", line 3, in step\n'
        "[rank1]:     verify()\n[rank1]: ValueError: no such row: 17\n"
    )
    found = analyse(folder)
    assert (found.verdict, found.behind, found.failed) == ("rank_failed", (1,), (1,))


def test_an_active_only_dump_is_decided_by_its_status(tmp_path: Path) -> None:
    job = four_ranks(r0=[PENDING], r2=[VICTIM], r3=[VICTIM])
    job.active_only, job.first_record = True, 90_000
    job.numbers_from = {WORLD: 500, LEFT: 7_000, RIGHT: 6_000}
    found = report(job, tmp_path)
    # Rank 1's dump is empty: its counters tell that it issued nothing behind the others' last completed operation.
    assert (found.verdict, found.behind) == ("rank_silent", (1,))
    assert found.windows[0].active_only


def test_a_group_that_left_the_ring_is_unobserved_without_a_status(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT)] * 5, r1=[Op(LEFT)] * 5, r2=[VICTIM], r3=[VICTIM])
    job.first_record = 50_000
    dumps = {rank: job.dump(rank) for rank in range(4)}
    for rank in (0, 1):
        dumps[rank]["entries"] = dumps[rank]["entries"][-5:]
        dumps[rank]["pg_status"] = {}
    for rank, dump in dumps.items():
        (tmp_path / f"trace_rank_{rank}.json").write_bytes(as_json(dump))
    found = analyse(tmp_path)
    assert (found.verdict, found.behind) == ("insufficient", ())


def test_the_same_group_is_behind_with_a_status(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT)] * 5, r1=[Op(LEFT)] * 5, r2=[VICTIM], r3=[VICTIM])
    job.first_record = 50_000
    for rank in range(4):
        dump = job.dump(rank)
        dump["entries"] = dump["entries"][-5:]
        (tmp_path / f"trace_rank_{rank}.json").write_bytes(as_json(dump))
    assert analyse(tmp_path).behind == (0, 1)


def test_everybody_in_one_operation_is_a_uniform_stall(tmp_path: Path) -> None:
    found = report(four_ranks(**{f"r{rank}": [VICTIM] for rank in range(4)}), tmp_path)
    assert (found.verdict, found.behind) == ("uniform_stall", ())


def test_two_stalls_are_two(tmp_path: Path) -> None:
    job = four_ranks(r0=[PENDING], r2=[Op(RIGHT, done=False)])
    found = report(job, tmp_path)
    assert found.behind == (1, 3)
    assert [stall.awaited for stall in found.waits.stalls] == [((0, 1),), ((0, 3),)]
    assert any("2 independent stalls" in note for note in found.notes)


def test_an_operation_left_out_is_placed_before_the_first_visible_difference(tmp_path: Path) -> None:
    usual = [Op(WORLD, shape=(4, 8))] * 3 + [Op(WORLD, "broadcast", (9,), "Int"), Op(WORLD, shape=(7, 7)), Op(WORLD)]
    lacking = usual[1:]
    job = Job({WORLD: [0, 1, 2]}, {0: usual, 1: lacking, 2: usual})
    found = report(job, tmp_path)
    finding = found.findings[0]
    assert (finding.number, finding.odd_ranks, finding.following) == (3, (1,), 2)
    ((rank, shift),) = finding.shifts
    assert (rank, shift.kind, shift.earliest, shift.latest) == (1, "missing", 1, 3)
    assert "results from #1 on cannot be trusted" in finding.attribution


def test_an_operation_put_in(tmp_path: Path) -> None:
    usual = [Op(WORLD, shape=(width, 8)) for width in (4, 5, 6, 7)]
    job = Job({WORLD: [0, 1, 2]}, {0: usual, 1: usual, 2: [*usual[:2], Op(WORLD, shape=(1, 1)), *usual[2:]]})
    finding = report(job, tmp_path).findings[0]
    assert finding.number == 3
    assert [(rank, shift.kind) for rank, shift in finding.shifts] == [(2, "extra")]


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.7", "2.9", "2.10"])
@pytest.mark.parametrize("backend", ["nccl", "rccl", "hccl", "xccl", "nccl2"])
def test_versions_and_backends(tmp_path: Path, version: str, backend: str) -> None:
    job = dataclasses.replace(four_ranks(r0=[PENDING]), version=version, backend=backend)
    assert report(job, tmp_path).behind == (1,)


def test_pickle_and_json_of_one_buffer_are_one_dump(tmp_path: Path) -> None:
    job = four_ranks(r0=[PENDING])
    job.write(tmp_path)
    job.write(tmp_path, form="json")
    found = analyse(tmp_path)
    assert (found.behind, found.operation_count) == ((1,), 37)


def test_an_earlier_dump_of_the_same_process_widens_the_window(tmp_path: Path) -> None:
    job = four_ranks(r0=[PENDING])
    job.write(tmp_path)
    early = job.dump(0)
    early["entries"] = early["entries"][:4]
    (tmp_path / "early_rank_0.json").write_bytes(as_json(early))
    found = analyse(tmp_path)
    assert found.behind == (1,)
    assert not any("another process" in note for note in found.notes)


def test_a_mismatch_that_only_an_earlier_dump_still_holds(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT, shape=(5, 8)), Op(LEFT)], r1=[Op(LEFT, shape=(4, 8)), Op(LEFT)])
    job.write(tmp_path)
    late = job.dump(0)
    early = as_json(late | {"entries": late["entries"][:10]})
    (tmp_path / "trace_rank_0").write_bytes(as_pickle(late | {"entries": late["entries"][10:]}))
    assert not analyse(tmp_path).findings
    (tmp_path / "early_rank_0.json").write_bytes(early)
    assert [finding.number for finding in analyse(tmp_path).findings] == [7]


def test_counters_that_send_and_recv_share_are_not_read_as_numbers(tmp_path: Path) -> None:
    """`pg_status` counts both kinds: its 7,000 says nothing about collectives where the group also sends."""
    job = four_ranks(r2=[VICTIM], r3=[VICTIM])
    job.first_record = 50_000
    for rank in range(4):
        dump = job.dump(rank)
        sent = {"record_id": 50_001, "profiling_name": "nccl:send 0->1", "is_p2p": True}
        dump["entries"] = [
            dump["entries"][-2] | sent | {"process_group": ("0", WORLD), "pg_id": 0},
            dump["entries"][-1],
        ]
        if rank < 2:
            dump["entries"] = [dump["entries"][0] | {"process_group": ("1", LEFT), "pg_id": 1, "is_p2p": False}]
        (tmp_path / f"trace_rank_{rank}.json").write_bytes(as_json(dump))
    found = analyse(tmp_path)
    assert (found.behind, found.verdict) == ((), "insufficient")


def test_order_and_names_of_files_do_not_matter(tmp_path: Path) -> None:
    job = crossed()
    first = analyse(job.write(tmp_path / "a", name="x_trace_rank_{}", form="json"))
    for rank in range(4):
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b" / f"{9 - rank}_host{rank * 7}_rank_{rank}.json").write_bytes(as_json(job.dump(rank)))
    second = analyse(tmp_path / "b")
    assert (first.verdict, first.behind, first.cycle) == (second.verdict, second.behind, second.cycle)
    assert first.findings[0].attribution == second.findings[0].attribution


def test_groups_of_one_description_are_told_apart(tmp_path: Path) -> None:
    job = Job({"tp": [0, 1]}, {0: rounds_of("tp"), 1: rounds_of("tp")})
    other = Job({"pad": [9], "tp": [2, 3]}, {2: rounds_of("tp"), 3: [*rounds_of("tp"), Op("tp", done=False)]})
    job.write(tmp_path)
    other.write(tmp_path)
    found = analyse(tmp_path)
    assert found.behind == (2,)
    assert sorted(found.counts) == ["tp #0", "tp #1"]


def rounds_of(group: str) -> list[Op]:
    return [Op(group)] * 3


def test_a_receive_that_was_never_sent(tmp_path: Path) -> None:
    job = four_ranks()
    for rank in range(4):
        dump = job.dump(rank)
        if rank == 1:
            dump["entries"].append(
                dump["entries"][-1]
                | {"record_id": 9, "profiling_name": "nccl:recv 1<-0", "is_p2p": True, "state": "scheduled"}
                | {"retired": False, "p2p_seq_id": 1, "process_group": ("1", LEFT), "pg_id": 1}
            )
        (tmp_path / f"trace_rank_{rank}.json").write_bytes(as_json(dump))
    found = analyse(tmp_path)
    assert (found.behind, found.waits.stalls[0].waiters[0].waiter) == ((0,), (0, 1))


def test_detail_dumps_name_no_group_and_are_not_compared(tmp_path: Path) -> None:
    job = gloo(four_ranks(r0=[PENDING]))
    for rank in range(4):
        dump = job.dump(rank)
        for entry in dump["entries"]:
            entry["process_group"] = ("", "")
        (tmp_path / f"trace_rank_{rank}.json").write_bytes(as_json(dump))
    found = analyse(tmp_path)
    assert (found.verdict, found.behind, found.compared) == ("insufficient", (), 0)
    assert [rank for rank, _ in found.not_compared] == [0, 1, 2, 3]


def test_pipeline_job_with_two_stalled_columns(tmp_path: Path) -> None:
    """Eight ranks, two per tensor group, enqueued far ahead, active entries only: the shape of real Megatron hangs."""
    groups = {WORLD: list(range(8)), **{f"tp{i}": [2 * i, 2 * i + 1] for i in range(4)}, "dp": [1, 3, 5, 7]}
    ranks: dict[int, list[Op]] = {}
    for rank in range(8):
        tp = f"tp{rank // 2}"
        ahead = [Op(tp, "_all_gather_base", (4, 8), output=(8, 8), done=False)] * (3 if rank not in (5,) else 1)
        data = [Op("dp", done=False)] if rank in (1, 3, 7) else []
        ranks[rank] = [*rounds(tp, size=8), *ahead, *data]
    job = Job(groups, ranks, version="2.9", active_only=True, first_record=190_000)
    found = report(job, tmp_path, "pickle")
    assert (found.verdict, found.behind, found.findings) == ("rank_silent", (5,), ())


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = four_ranks(r0=[Op(LEFT, done=False)]).write(tmp_path)
    (folder / "trace_rank_3").write_bytes(b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x03")
    (folder / "rank1.log").write_text("[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n")
    files = {path.name: path for path in folder.iterdir()}
    alone = read_evidence(files, jobs=1)
    monkeypatch.setattr(pool, "SMALLEST", 0)
    assert len(pool.split(sorted(files.items()), 2)) > 1
    assert read_evidence(files, jobs=2) == alone
