# ruff: noqa: E501 - log lines keep their length
"""NCCL's own log: what it tells of each operation, and how ranks are compared by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.jobs import analyse
from evidence.log_rows import check, read, row

POINTERS = ("0x55fca23fc0f0", "0x55e290bd32d0", "0x7f5128002e10", "0x7cfda045840")
NEW = "[{0}] NCCL INFO ncclCommInitRankConfig comm {1} rank {2} nranks {3} cudaDev {0} nvmlDev {0} busId 4c000 commId 0x5b1f9a3c - Init COMPLETE\n"
OLD = "[{0}] NCCL INFO comm {1} rank {2} nranks {3} cudaDev {0} nvmlDev {0} - Init COMPLETE\n"


def created(rank: int, size: int, form: str = NEW, prefix: str = "") -> str:
    return f"{prefix}hopper01:{1913 + rank}:{2000 + rank} " + form.format(rank, POINTERS[rank], rank, size)


def issued(
    rank: int, number: int, size: int, op: str = "AllReduce", count: int = 512, kind: int = 9, prefix: str = ""
) -> str:
    return (
        f"{prefix}hopper01:{1913 + rank}:{1913 + rank} [{rank}] NCCL INFO {op}: opCount {number:x} sendbuff 0x7fa917c00000 "
        f"recvbuff 0x7fa921a00000 count {count} datatype {kind} op 0 root 0 comm {POINTERS[rank]} [nranks={size}] stream 0x55fca1\n"
    )


def write(folder: Path, texts: list[str], name: str = "nccl.rank{}.log") -> Path:
    for rank, text in enumerate(texts):
        (folder / name.format(rank)).write_text(text)
    return folder


def test_lines(tmp_path: Path) -> None:
    text = (
        created(1, 2)
        + issued(1, 0x139D, 2, "ReduceScatter", 480, 7)
        + "(RayTrainWorker pid=615, ip=10.72.7.6) \x1b[36m"
        + issued(0, 0xF, 2, "AllGather", 96, 4)
        + issued(0, 12, 2, "Send")
    )
    check(
        read(tmp_path, text),
        [
            row(
                number=0x139D,
                op="reduce_scatter",
                numel_in=960,
                numel_out=480,
                dtype="Float",
                state="enqueued",
                rank=None,
            ),
            row(
                number=15,
                op="all_gather",
                numel_in=96,
                numel_out=192,
                dtype="Long",
                process="RayTrainWorker pid=615, ip=10.72.7.6",
            ),
            row(number=12, op="send"),
        ],
        [row(kind="communicator", group_rank=1, details={"id": "0x5b1f9a3c", "size": 2})],
    )


def test_damaged_lines(tmp_path: Path) -> None:
    whole = issued(2, 0x1F, 4, prefix="[rank2]:")
    assert [o.number for o in read(tmp_path, whole[:90] + "\n" + whole[90:]).operations] == [31]
    cut = read(tmp_path, whole[:120] + "\n")
    assert (cut.operations, cut.not_understood) == ([], {"nccl-info": 1})
    foreign = read(tmp_path, "tool: opCount 12 of the queue\nserver - Init COMPLETE\n")
    assert not foreign.recognised


def test_the_odd_operation_is_found_by_the_shared_id(tmp_path: Path) -> None:
    """Each process has its own pointer; rank 2 gathers where the others reduce."""
    texts = [
        created(rank, 4)
        + "".join(issued(rank, n, 4, count=100 + n) for n in range(0x1E, 0x22))
        + issued(rank, 0x22, 4, "AllGather" if rank == 2 else "AllReduce")
        for rank in range(4)
    ]
    found = analyse(write(tmp_path, texts))
    (finding,) = found.findings
    assert (found.verdict, finding.rule, finding.number, finding.odd_ranks) == (
        "divergence",
        "collective-order",
        0x22,
        (2,),
    )
    assert finding.where[2] == ("nccl.rank2.log", 6)


def test_another_count_is_another_shape(tmp_path: Path) -> None:
    texts = [created(rank, 2) + issued(rank, 7, 2, count=512 - rank) for rank in range(2)]
    (finding,) = analyse(write(tmp_path, texts)).findings
    assert (finding.rule, finding.number, finding.odd_ranks) == ("collective-shape", 7, ())


def test_operations_that_agree_show_no_completion(tmp_path: Path) -> None:
    texts = [created(rank, 2) + "".join(issued(rank, n, 2) for n in range(1, 9 - rank)) for rank in range(2)]
    found = analyse(write(tmp_path, texts))
    assert (found.verdict, found.behind, found.findings) == ("insufficient", (), ())
    assert any("issued by rank 1 to #7; rank 0 to #8; it tells none completed" in note for note in found.notes)


def test_operations_of_one_group_call_share_a_number(tmp_path: Path) -> None:
    texts = [
        created(rank, 2) + issued(rank, 7, 2, count=64) + issued(rank, 7, 2, count=128 + rank) for rank in range(2)
    ]
    (finding,) = analyse(write(tmp_path, texts)).findings
    assert (finding.rule, finding.number) == ("collective-shape", 7)


@pytest.mark.parametrize(
    ("texts", "name", "said"),
    [
        ([created(r, 2, OLD) + issued(r, 7, 2, count=9 + r) for r in range(2)], "rank{}.log", "whose initialisation"),
        ([issued(r, 7, 2, count=9 + r) for r in range(2)], "rank{}.log", "whose initialisation"),
        ([created(r, 2) + issued(r, 7, 2, count=9 + r) for r in range(2)], "node{}.log", "tell no global rank"),
        (
            [created(r, 2) + issued(r, 0, 2) + issued(r, 0, 2, count=8 + r) for r in range(2)],
            "rank{}.log",
            "does not count",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_not_compared(tmp_path: Path, texts: list[str], name: str, said: str) -> None:
    found = analyse(write(tmp_path, texts, name))
    assert (found.findings, len(found.log_operations)) == ((), sum(text.count("opCount") for text in texts))
    assert any(said in note for note in found.notes)


def test_send_and_recv_count_apart(tmp_path: Path) -> None:
    texts = [created(r, 2) + (issued(r, 7, 2, "Send") if r else "") + issued(r, 8, 2, count=9 + r) for r in range(2)]
    assert analyse(write(tmp_path, texts)).findings == ()
