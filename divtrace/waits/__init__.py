"""Who waits for whom: the wait-for relation of collective operations, whatever recorded them."""

from divtrace.waits.mismatch import Difference, Disagreement, disagreements
from divtrace.waits.model import Progress, RankKey, Wait
from divtrace.waits.pairing import Shift, find_shift
from divtrace.waits.relation import Crossing, Stall, Waits, who_waits

__all__ = [
    "Crossing",
    "Difference",
    "Disagreement",
    "Progress",
    "RankKey",
    "Shift",
    "Stall",
    "Wait",
    "Waits",
    "disagreements",
    "find_shift",
    "who_waits",
]
