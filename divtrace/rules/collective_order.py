"""The rule `collective-order`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="collective-order",
    rule_class="shape",
    meaning=(
        "At the same place in a communicator's sequence, members issued different operations: another kind, another "
        "source, or another place in the code. Or ranks wait for each other in crossed order. Operations of equal "
        "size pair up silently, so the hang can come dozens of operations later."
    ),
    example="""\
communicator moe_ep, operation 900
  rank 0: all_reduce at site verify
  rank 1: all_reduce at site draft""",
    causes=(
        (
            "Idle and working ranks run a different number of draft forwards (vllm#26086), or the same two "
            "collectives in opposite order (vllm-ascend#15079, #17233)."
        ),
        "An early return on one rank: empty queue (sglang#27489), no tokens in this step (vllm#43547).",
        (
            "Work of one replica on a communicator of all: a vision tower that reduces over the global TP group "
            "(sglang#36802)."
        ),
        "A gate or a draft step count that differs (vllm#49027: about 50 operations before a size differed).",
        "A broadcast whose source thinks it is a receiver (tokenspeed#786).",
    ),
    look_next=(
        (
            "Look at the last operation on which all members agree, and at what each rank decided right behind it: a "
            "gate, a number of draft steps, an early return."
        ),
        "Read the records of idle ranks: they have no request, but they must take part.",
        "With a crossed order, look across communicators: each sequence is complete by itself.",
        (
            "Hooks on torch.distributed alone miss operations of pynccl and symmetric memory; record at the engine's "
            "group wrapper."
        ),
    ),
)
