"""A small speculative-decoding engine in plain torch: two processes, tensor parallel over gloo.

    python torch_job.py RANK PORT DIRECTORY [STEP REQUEST]

The target is one layer whose rows are split between the ranks and summed by an all_reduce; the drafter is a noisy copy
that every rank holds whole. Shapes are padded to a fixed size, as in a captured graph. With STEP and REQUEST, rank 1
takes a wrong target token there, and everything after it is the engine's own doing: nothing happens until one rank is
done earlier and the other waits alone, until the collective times out.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from divtrace.record import Recorder
from divtrace.record.torch import watch

VOCABULARY, WIDTH, DRAFTS, LENGTH = 64, 32, 4, 40
TIMEOUT_SECONDS = 4


class Model:
    """The next token from the last two tokens and the position."""

    def __init__(self, rank: int, ranks: int) -> None:
        torch.manual_seed(7)
        self.embedding = torch.randn(VOCABULARY, WIDTH)
        self.positions = torch.randn(256, WIDTH) * 0.3
        self.weight = torch.randn(WIDTH, WIDTH)
        self.noisy = self.weight + torch.randn(WIDTH, WIDTH) * 0.25
        part = WIDTH // ranks
        self.mine = slice(rank * part, (rank + 1) * part)

    def hidden(self, tokens: torch.Tensor, before: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.embedding[tokens] + 0.5 * self.embedding[before] + self.positions[positions])

    def draft(self, token: int, before: int, position: int) -> int:
        row = self.hidden(torch.tensor([token]), torch.tensor([before]), torch.tensor([position]))
        return int((row @ self.noisy @ self.embedding.T).argmax())

    def target(self, tokens: torch.Tensor, before: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows = self.hidden(tokens, before, positions)
        partial = rows[:, self.mine] @ self.weight[self.mine]
        dist.all_reduce(partial)
        return partial @ self.embedding.T


def serve(rank: int, recorder: Recorder, wrong: tuple[int, str] | None) -> None:
    model = Model(rank, 2)
    log = watch(recorder, name="tp")
    log.site = "target-forward"
    requests: dict[str, list[int]] = {f"r{i}": [3 + i, 11 + 5 * i] for i in range(3)}
    rounds = dict.fromkeys(requests, 0)
    recorder.event("init", "spec-config", num_draft_tokens=DRAFTS + 1)
    for row, (name, tokens) in enumerate(requests.items()):
        positions = list(range(len(tokens) - 1))
        slots = [row * 256 + position for position in positions]
        where: dict[str, Any] = {"req": name, "round": 0, "step": 0}
        recorder.event("prefill", "layout", **where, row=row, seq_len=0, positions=positions,
                       kv_positions=positions, kv_slots=slots)  # fmt: skip
        recorder.event("prefill", "target", **where, bonus=tokens[-1], new_seq_len=len(tokens) - 1)
    step = 0
    while True:
        live = [name for name, tokens in requests.items() if len(tokens) < LENGTH]
        if not live:
            return
        step += 1
        log.step = step
        recorder.event("schedule", "batch", step=step, batch=live, about_to_block=True)
        padded = 3 * (DRAFTS + 1)
        ids, before, positions = (torch.zeros(padded, dtype=torch.long) for _ in range(3))
        drafts: dict[str, list[int]] = {}
        for row, name in enumerate(live):
            tokens = requests[name]
            rounds[name] += 1
            where = {"req": name, "round": rounds[name], "step": step}
            line = list(tokens)
            for _ in range(DRAFTS):
                line.append(model.draft(line[-1], line[-2], len(line) - 1))
            drafts[name] = line[len(tokens) :]
            recorder.event("draft", "chain", **where, draft_root=tokens[-1], draft_tokens=drafts[name])
            first = len(tokens) - 1
            rows = list(range(first, first + DRAFTS + 1))
            slots = [list(requests).index(name) * 256 + position for position in rows]
            recorder.event("verify", "layout", **where, row=row, seq_len=first, positions=rows,
                           kv_positions=rows, kv_slots=slots, num_draft_tokens=DRAFTS + 1)  # fmt: skip
            part = slice(row * (DRAFTS + 1), (row + 1) * (DRAFTS + 1))
            ids[part] = torch.tensor(line[first:])
            before[part] = torch.tensor(line[first - 1 : -1])
            positions[part] = torch.tensor(rows)
        recorder.event("verify", "launch", step=step, num_tokens=len(live) * (DRAFTS + 1), padded_tokens=padded)
        targets = model.target(ids, before, positions).argmax(-1).reshape(3, DRAFTS + 1).tolist()
        for row, name in enumerate(live):
            tokens, target = requests[name], targets[row]
            where = {"req": name, "round": rounds[name], "step": step}
            if wrong == (step, name) and rank == 1:
                target[0] = (target[0] + 1) % VOCABULARY
            recorder.event("verify", "target", **where, branch="greedy", target_tokens=target)
            correct = 0
            while correct < DRAFTS and drafts[name][correct] == target[correct]:
                correct += 1
            recorder.event("accept", "greedy", **where, branch="greedy", correct_len=correct, bonus=target[correct])
            committed = [*drafts[name][:correct], target[correct]]
            length = len(tokens) - 1
            tokens.extend(committed)
            recorder.event("commit", "commit", **where, seq_len=length, commit_len=len(committed),
                           new_seq_len=len(tokens) - 1, out_tokens=committed,
                           finished="length" if len(tokens) >= LENGTH else "")  # fmt: skip


def main(rank: int, port: str, directory: str, wrong: tuple[int, str] | None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    recorder = Recorder(
        directory, rank=rank, parallel={"tp_size": 2}, engine=("plain-torch", torch.__version__), backend="gloo",
        device="cpu", algorithm="chain",
    )  # fmt: skip
    with recorder:
        serve(rank, recorder, wrong)
    # The peer must find a silent process, not a closed connection.
    if wrong:
        time.sleep(TIMEOUT_SECONDS * 2)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], (int(sys.argv[4]), sys.argv[5]) if len(sys.argv) > 4 else None)
