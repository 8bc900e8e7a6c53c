"""Recording: traces of what each rank decided, from inside the serving process.

    from divtrace.record import Recorder

    with Recorder("/logs", rank=0, parallel={"tp_size": 2}, engine=("mine", "1.0")) as recorder:
        recorder.event("accept", "greedy", req="r1", round=3, step=7, correct_len=2, bonus=42)

Nothing here imports more than the standard library; the first recorder loads msgspec.
"""

from __future__ import annotations

from divtrace.record.recorder import Recorder
from divtrace.record.settings import Settings, from_environment

__all__ = ["Recorder", "Settings", "from_environment"]
