"""Start-up settings of the ranks: what each rank's metas say, and where ranks of one replica disagree (init-config)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from divtrace.align.groups import Order
from divtrace.align.view import EventKey
from divtrace.events import Meta
from divtrace.sync_sites import parse_sync
from divtrace.walk import odd
from divtrace.walk.compare import Difference, differ
from divtrace.walk.divergence import Divergence
from divtrace.walk.settings import setting

SHARED = ("format", "parallel", "groups", "algorithm", "sync", "engine.name", "engine.version")
"""What all ranks of a replica must share, in the order in which a difference is named."""


def config_divergence(
    replica: int, world: int, ranks: Iterable[int], metas: Mapping[int, tuple[Meta, ...]]
) -> Divergence | None:
    """The one `init-config` finding of a replica, if its ranks' metas disagree in what must be shared."""
    differences = []
    for name in SHARED:
        values = {rank: value for rank in ranks if (value := setting(metas.get(rank, ()), name)) is not None}
        compared = {rank: sorted(parse_sync(value)) if name == "sync" else value for rank, value in values.items()}
        if len(values) > 1 and differ(compared):
            differences.append(Difference(name, "init-config", "control", None, values, compared))
    if not differences:
        return None
    first = differences[0]
    involved = tuple(sorted({rank for difference in differences for rank in difference.values}))
    return Divergence(
        world=world,
        replica=replica,
        key=EventKey(None, 0, None, None, "init", "meta", "used", 0),
        step=None,
        rule="init-config",
        also=(),
        rule_class="control",
        ranks=involved,
        odd_ranks=odd.by_majority(first.compared, involved) or (),
        records=dict.fromkeys(involved),
        orders={replica: Order(-math.inf, -1, 0)},
        field=first.name,
        values=first.values,
        differences=tuple(differences),
    )
