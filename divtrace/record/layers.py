"""Which layers of hooks can be on: one that lacks a function of its core is off as a whole (issue 3, point 6)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from divtrace.record.source import Target

# Stage and sync take the step, the round and the requests of an event from what the hooks of base have counted.
# Without them an event belongs to nothing that another rank could be compared by, and `SpecTpSync.sync` has no rows.
_BASE_IS_OFF = "layer base is off, which counts steps and rounds and knows the requests"


def layers_off(
    targets: Iterable[Target], layers: Sequence[str], why_missing: Callable[[Target], str | None]
) -> dict[str, str]:
    """Those of the wanted layers that have to stay off, with the reason.

    `why_missing` is asked for core functions only; it says why a function cannot be hooked, None if it can.
    """
    lacking: dict[str, list[str]] = {}
    for target in targets:
        if target.core and target.layer in layers and (reason := why_missing(target)) is not None:
            lacking.setdefault(target.layer, []).append(reason)
    off = {layer: "; ".join(lacking[layer]) for layer in layers if layer in lacking}
    if "base" in off:
        for layer in layers:
            off.setdefault(layer, _BASE_IS_OFF)
    return off
