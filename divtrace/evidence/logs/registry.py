"""All families of log formats, one line each."""

from __future__ import annotations

from divtrace.evidence.logs import deepep, desync, failures, gloo, hccl, nccl, nccl_info, pyspy, ras_text, sglang, vllm
from divtrace.evidence.logs.reader import Family

FAMILIES: tuple[Family, ...] = (
    Family("nccl-watchdog", nccl.LITERALS, nccl.read),
    Family("nccl-desync", desync.LITERALS, desync.read),
    Family("gloo", gloo.LITERALS, gloo.read),
    Family("hccl", hccl.LITERALS, hccl.read),
    Family("deepep", deepep.LITERALS, deepep.read),
    Family("sglang", sglang.LITERALS, sglang.read),
    Family("py-spy", pyspy.LITERALS, pyspy.read),
    Family("vllm", vllm.LITERALS, vllm.read),
    Family("nccl-ras", ras_text.LITERALS, ras_text.read),
    Family("nccl-info", nccl_info.LITERALS, nccl_info.read),
    Family("failure", failures.LITERALS, failures.read),
)

LITERALS: tuple[str, ...] = tuple(dict.fromkeys(literal for family in FAMILIES for literal in family.literals))
"""Everything that the scanner looks for before it looks at a line."""
