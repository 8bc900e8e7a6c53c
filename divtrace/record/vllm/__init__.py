"""The vLLM plugin (entry point group `vllm.general_plugins`), vLLM 0.32 or newer.

vLLM calls `load` in every process, maybe more than once. Only worker processes record: the hook waits for a worker's
`init_device` and then wraps the methods of its model runner.
"""

from __future__ import annotations

import os

from divtrace.record.hooks import MARK, Hook, attach, resolve
from divtrace.record.report import warn_once
from divtrace.record.settings import DIRECTORY, ensure_run_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORKER = "vllm.v1.worker.worker_base:WorkerWrapperBase"


def load() -> None:
    """Called by vLLM. Does nothing at all unless `DIVTRACE_DIR` is set."""
    if not os.environ.get(DIRECTORY):
        return
    try:
        ensure_run_name()
        worker = resolve(WORKER)
        if worker is None:
            warn_once(f"{WORKER} is not there: this vLLM is not recorded")
        elif not hasattr(getattr(worker, "init_device", None), MARK):
            attach(worker, "init_device", Hook("WorkerWrapperBase.init_device", after=_worker_is_up))
    except Exception as error:
        warn_once(f"the vLLM plugin does not start: {type(error).__name__}: {error}")


def _worker_is_up(_token: Any, _result: Any, wrapper: Any, *_args: Any, **_kwargs: Any) -> None:
    from divtrace.record.vllm.worker import record_worker

    record_worker(wrapper)
