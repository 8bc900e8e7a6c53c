"""What the metas of ranks, and the command line, say of a world: settings, sizes, groups.

It stands apart from the walk, since whoever only wants to know who is compared with whom should not load the walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from divtrace.events import Meta
from divtrace.topology import Sizes, Topology, override, sizes_from, topology


class GroupFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and groups from the command line; they win over what the metas say."""

    tp: int | None = None
    dp: int | None = None
    cp: int | None = None
    pp: int | None = None
    dp_attention: bool | None = None
    attn_tp_groups: tuple[tuple[int, ...], ...] = ()

    @property
    def sizes(self) -> dict[str, int | bool]:
        """The sizes that were given."""
        given = {"tp": self.tp, "dp": self.dp, "cp": self.cp, "pp": self.pp, "dp_attention": self.dp_attention}
        return {name: value for name, value in given.items() if value is not None}


def setting(metas: Iterable[Meta], name: str) -> Any:
    """The first recorded value of a meta key; `engine.name` and `engine.version` look inside the engine."""
    for meta in metas:
        holder: Any = meta.engine if name.startswith("engine.") else meta
        value = None if holder is None else getattr(holder, name.removeprefix("engine."))
        if value is not None:
            return value
    return None


def added_by_commit(algorithm: str | None) -> int:
    """What a commit adds to the accepted drafts: the bonus token, and with UNO one more."""
    return 2 if algorithm is not None and algorithm.upper() == "UNO" else 1


def token_key(metas: Iterable[Meta]) -> str:
    """How a rank recorded token ids: plain, off, or hashed under the key of this fingerprint."""
    tokens = setting(metas, "tokens") or {}
    return f"{tokens.get('mode', 'plain')}:{tokens.get('key', '')}"


def world_topology(ranks: Sequence[int], metas: Mapping[int, tuple[Meta, ...]], flags: GroupFlags) -> Topology:
    """The groups of a world: flags win over explicit groups, these over sizes; of several ranks the lowest speaks."""
    groups = None if flags.sizes else setting(_all(metas), "groups")
    if flags.attn_tp_groups:
        groups = {"attn_tp": flags.attn_tp_groups}
    return topology(ranks, parallel=world_sizes(metas, flags), groups=groups)


def world_sizes(metas: Mapping[int, tuple[Meta, ...]], flags: GroupFlags) -> Sizes | None:
    """The sizes of a world, None if nothing states them; flags win."""
    parallel = setting(_all(metas), "parallel")
    sizes: Sizes | None = sizes_from(parallel) if parallel else None
    return override(sizes, **flags.sizes) if flags.sizes else sizes


def _all(metas: Mapping[int, tuple[Meta, ...]]) -> list[Meta]:
    return [meta for rank in sorted(metas) for meta in metas[rank]]
