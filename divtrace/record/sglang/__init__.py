"""The SGLang plugin (entry point group `sglang.srt.plugins`), SGLang 0.5.23 or newer.

SGLang calls `load` in every process before it knows its ranks. Only scheduler processes record: the hook waits for a
`Scheduler` to be built and then registers the rest with SGLang's own `HookRegistry`, which also patches names that
other modules have imported.
"""

from __future__ import annotations

import os
from importlib import import_module

from divtrace.record.report import warn_once
from divtrace.record.settings import DIRECTORY, ensure_run_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEDULER_INIT = "sglang.srt.managers.scheduler.Scheduler.__init__"


def load() -> None:
    """Called by SGLang. Does nothing at all unless `DIVTRACE_DIR` is set."""
    if not os.environ.get(DIRECTORY):
        return
    try:
        ensure_run_name()
        registry = import_module("sglang.srt.plugins.hook_registry")
        registry.HookRegistry.register(SCHEDULER_INIT, _scheduler_is_up, registry.HookType.AFTER)
    except Exception as error:
        warn_once(f"the SGLang plugin does not start: {type(error).__name__}: {error}")


def _scheduler_is_up(_result: Any, scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
    # SGLang passes exceptions of hooks on, which would kill the scheduler.
    try:
        from divtrace.record.sglang.process import record_scheduler

        record_scheduler(scheduler)
    except Exception as error:
        warn_once(f"this scheduler is not recorded: {type(error).__name__}: {error}")
