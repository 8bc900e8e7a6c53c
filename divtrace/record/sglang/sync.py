"""The sync layer: every value before and after its broadcast, and the collectives of the process.

Calls inside a captured graph run once, at capture, when nothing may be added to the stream; a replay runs no Python.
The values of those sites are in the stage layer, after the broadcast.
"""

from __future__ import annotations

import threading

from divtrace.record.deferred import record_later
from divtrace.record.hooks import Hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from divtrace.record.sglang.process import ProcessState

# Per site: the stage, and the fields in the order in which one round synchronises them.
SITES: dict[str, tuple[str, tuple[str, ...]]] = {
    "dspark-draft": ("draft", ("draft_tokens",)),
    "dspark-plan": ("verify", ("verify_len",)),
    "dspark-accept-greedy": ("accept", ("correct_len", "bonus", "cap_trim_len")),
    "dspark-accept-sample": ("accept", ("correct_len", "bonus", "cap_trim_len")),
    "dspark-accept-graph": ("accept", ("correct_len", "bonus", "cap_trim_len")),
    "dspark-target": ("prefill", ("bonus",)),
    "dflash-selector": ("accept", ("correct_len", "bonus")),
    "dflash-accept-sample": ("accept", ("correct_len", "bonus")),
    "dflash-accept-greedy": ("verify", ("target_tokens",)),
    "dflash-target": ("prefill", ("bonus",)),
}
_NAMES = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_along_dim": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


def sync_hooks(state: ProcessState) -> dict[str, Hook]:
    """The hook on `SpecTpSync.sync`; those on collectives come from `collective_hook`."""
    sync = SyncHooks(state)
    return {"sync": Hook("SpecTpSync.sync", before=sync.before, after=sync.after)}


class SyncHooks:
    """One speculative decision, at the moment when the ranks are made equal."""

    def __init__(self, state: ProcessState) -> None:
        self._state = state
        self._step: int | None = None
        self._calls: dict[str, int] = {}

    def before(self, sync: Any, site: Any, values: Any) -> dict[str, Any] | None:
        """This rank's own values. Where the site is switched off they are what the engine goes on with."""
        state = self._state
        slug = str(getattr(site, "slug", site))
        if slug not in SITES or state.device.capturing():
            return None
        if self._step != state.step:
            self._step, self._calls = state.step, {}
        call = self._calls.get(slug, 0)
        self._calls[slug] = call + 1
        stage, fields = SITES[slug]
        field = fields[call % len(fields)]
        requests = state.requests
        if values.shape[0] < len(requests) or not requests:
            return None
        token: dict[str, Any] = {"stage": stage, "slug": slug, "field": field, "n": call}
        token["count"] = len(requests)
        enabled = site in sync._sites
        self._record(token, values, "local" if enabled else "used", {})
        return token if enabled else None

    def after(self, token: dict[str, Any] | None, _result: Any, sync: Any, _site: Any, values: Any) -> None:
        """The values after the broadcast, which worked in place."""
        if token is not None:
            ranks = [int(rank) for rank in sync._tp_group.ranks]
            self._record(token, values, "synced", {"comm_ranks": ranks, "src": ranks[0]})

    def _record(self, token: dict[str, Any], values: Any, phase: str, more: dict[str, Any]) -> None:
        state = self._state
        keys = [state.key(token["stage"], token["slug"], request) for request in state.requests[: token["count"]]]
        for key in keys:
            key.update(more, phase=phase)
            if token["n"]:
                key["n"] = token["n"]
        field = token["field"]
        listed = field in ("draft_tokens", "target_tokens")

        def build(rows: list[Any]) -> list[dict[str, Any]]:
            return [{**key, field: _as_list(rows[row]) if listed else rows[row]} for row, key in enumerate(keys)]

        record_later(state.recorder, state.device, [values[: len(keys)]], len(keys), build)


def _as_list(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


_inside = threading.local()


def collective_hook(state: ProcessState, name: str) -> Hook:
    """A hook on one method of `GroupCoordinator`. Methods that call each other count once, as the outermost."""

    def before(group: Any, *args: Any, **kwargs: Any) -> tuple[Any]:
        depth = getattr(_inside, "depth", 0)
        token = None if depth or group.world_size < 2 else begin(group, args, kwargs)
        # Last: a failure in here must not leave the thread inside for good.
        _inside.depth = depth + 1
        return (token,)

    def begin(group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [value for value in (*args, *kwargs.values()) if hasattr(value, "numel")]
        # The input comes last where an output comes first.
        tensor = tensors[-1] if tensors and name in _NAMES else tensors[0] if tensors else None
        ranks = [int(rank) for rank in group.ranks]
        source = None
        if name == "broadcast":
            source = ranks[int(kwargs.get("src", args[1] if len(args) > 1 else 0))]
        comm = str(getattr(group, "unique_name", "group")).partition(":")[0]
        op = name if name in ("all_gatherv", "reduce_scatterv") else _NAMES.get(name, name)
        return state.collectives.begin(op, comm, ranks, tensor, source)

    def after(begun: tuple[Any] | None, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        if begun is not None:
            _inside.depth -= 1
            state.collectives.done(begun[0])

    def failed(begun: tuple[Any] | None, error: BaseException, *_args: Any, **_kwargs: Any) -> None:
        if begun is not None:
            _inside.depth -= 1
            state.collectives.failed(begun[0], error)

    return Hook(f"GroupCoordinator.{name}", before=before, after=after, failed=failed)
