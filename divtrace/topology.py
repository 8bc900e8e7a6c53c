"""Which ranks share a request, and which communicators they form.

The rank layout is SGLang's (0.5.23, `srt/runtime_context.py` and `srt/distributed/parallel_state.py`): attn_tp varies
fastest, then attention CP, then attention DP, then PP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from divtrace.errors import TopologyError

RankGroup = tuple[int, ...]
RankGroups = tuple[RankGroup, ...]

MOST_RANKS = 1 << 17
"""Ranks of one world beyond which sizes are taken for damage, so that a wrong number cannot fill the memory."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The parallel sizes of one world, as a launch command states them."""

    tp: int = 1
    dp: int = 1
    dp_attention: bool = False
    attn_dp: int | None = None
    """The newer explicit attention-DP size; wins over `dp` with `dp_attention`."""
    cp: int = 1
    pp: int = 1
    ep: int = 1
    moe_dp: int = 1

    @property
    def attention_dp(self) -> int:
        """Number of replicas that share one world."""
        if self.attn_dp is not None and self.attn_dp > 0:
            return self.attn_dp
        return self.dp if self.dp_attention else 1

    @property
    def attn_tp(self) -> int:
        """Ranks of one attn_tp group; raises TopologyError if the sizes do not divide."""
        return self.tp // self.attention_dp // self.cp

    def check(self) -> None:
        """Raise TopologyError, naming the sizes, unless they make a layout."""
        for name in ("tp", "dp", "cp", "pp", "ep", "moe_dp"):
            if getattr(self, name) < 1:
                raise TopologyError(f"{name} is {getattr(self, name)}; every parallel size is at least 1")
        world = self.tp * self.pp
        if world > MOST_RANKS:
            raise TopologyError(
                f"tp {self.tp} x pp {self.pp} = {world} ranks; more than {MOST_RANKS} are taken for an error"
            )
        parts = self.attention_dp * self.cp
        if self.tp % parts:
            raise TopologyError(
                f"tp {self.tp} is not divisible by attention dp {self.attention_dp} x cp {self.cp} = {parts}",
                hint="give the sizes of the launch command with --tp, --dp, --cp, --pp and --dp-attention",
            )
        if self.tp % (self.ep * self.moe_dp):
            raise TopologyError(f"tp {self.tp} is not divisible by ep {self.ep} x moe_dp {self.moe_dp}")


_ALIASES: dict[str, tuple[str, ...]] = {
    "tp": ("tp_size", "tp", "tensor_parallel_size"),
    "dp": ("dp_size", "dp", "data_parallel_size"),
    "attn_dp": ("attn_dp_size", "attn_dp"),
    "cp": ("attn_cp_size", "cp_size", "cp"),
    "pp": ("pp_size", "pp", "pipeline_parallel_size"),
    "ep": ("ep_size", "ep"),
    "moe_dp": ("moe_dp_size", "moe_dp"),
}


def sizes_from(parallel: Mapping[str, Any]) -> Sizes:
    """The sizes that a meta's `parallel` states; unknown keys are ignored, a size that is no integer is an error."""
    found: dict[str, Any] = {}
    for name, aliases in _ALIASES.items():
        for alias in aliases:
            value = parallel.get(alias)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TopologyError(f"parallel.{alias} is {value!r}; a parallel size is an integer")
            found[name] = value
            break
    flag = parallel.get("enable_dp_attention", parallel.get("dp_attention"))
    return Sizes(**found, dp_attention=flag is True)


class ReplicaGroup(msgspec.Struct, frozen=True):
    """The ranks of one attention-DP index, and their attn_tp groups."""

    ranks: RankGroup
    attn_tp: RankGroups

    def attn_tp_group(self, rank: int) -> RankGroup:
        """The attn_tp group of a rank; the rank alone if it is in none."""
        return next((group for group in self.attn_tp if rank in group), (rank,))


class Topology(msgspec.Struct, frozen=True):
    """The groups of one world."""

    replicas: tuple[ReplicaGroup, ...]
    named: Mapping[str, RankGroups] = msgspec.field(default_factory=dict)
    """Communicators by name: tp, attn_tp, attn_cp, pp, moe_ep and so on."""
    sync_groups: RankGroups = ()
    """The ranks in which a decision is broadcast; the source of each is its first rank."""
    notes: tuple[str, ...] = ()

    def sync_group(self, rank: int) -> RankGroup:
        """The sync group of a rank; the rank alone if it is in none."""
        return next((group for group in self.sync_groups if rank in group), (rank,))

    def members(self, communicator: str, rank: int) -> RankGroup | None:
        """The ranks of the communicator of this name that holds this rank; None if the name is not known."""
        groups = self.named.get(communicator_name(communicator), ())
        return next((group for group in groups if rank in group), None)


_COMMUNICATOR_ALIASES = {"attention_tp": "attn_tp", "attention_cp": "attn_cp", "ep": "moe_ep"}


def communicator_name(name: str) -> str:
    """One name for one group, whichever of its names an engine uses (`attention_tp` is `attn_tp`)."""
    return _COMMUNICATOR_ALIASES.get(name, name)


def layout(sizes: Sizes) -> dict[str, RankGroups]:
    """All groups of one world by name, from its sizes.

    Raises:
        TopologyError: a size does not divide.
    """
    sizes.check()
    tp, attn_dp, cp, attn_tp = sizes.tp, sizes.attention_dp, sizes.cp, sizes.attn_tp
    ep, moe_dp = sizes.ep, sizes.moe_dp
    moe_tp = tp // ep // moe_dp
    world = tp * sizes.pp
    blocks = range(0, world, tp)

    def runs(width: int) -> RankGroups:
        return tuple(tuple(range(first, first + width)) for first in range(0, world, width))

    def strided(starts: Iterable[int], length: int, stride: int) -> RankGroups:
        return tuple(tuple(range(first, first + length * stride, stride)) for first in starts)

    width = attn_tp * cp
    groups: dict[str, RankGroups] = {
        "tp": runs(tp),
        "attn_tp": runs(attn_tp),
        "attn_cp": strided(
            (b + d * width + t for b in blocks for d in range(attn_dp) for t in range(attn_tp)), cp, attn_tp
        ),
        "moe_ep": strided(
            (b + m * ep * moe_tp + t for b in blocks for m in range(moe_dp) for t in range(moe_tp)), ep, moe_tp
        ),
        "moe_tp": runs(moe_tp),
        "pp": tuple(tuple(range(first, world, tp)) for first in range(tp)),
        "world": (tuple(range(world)),),
    }
    groups["moe_dp"] = (
        groups["attn_cp"]
        if cp > moe_dp
        else strided((b + i for b in blocks for i in range(moe_tp * ep)), moe_dp, moe_tp * ep)
    )
    groups["replica"] = tuple(tuple(b + d * width + t for b in blocks for t in range(width)) for d in range(attn_dp))
    return groups


def topology(
    ranks: Sequence[int],
    *,
    parallel: Sizes | None = None,
    groups: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> Topology:
    """The topology of one world.

    Explicit `groups` win over `parallel`; with neither, all ranks form one attn_tp group and a note says so. A rank
    that is in no group is its own replica, with a note.

    Args:
        ranks: the ranks that have a trace.
        parallel: the sizes of the launch command.
        groups: explicit groups by name; `attn_tp` and `replica` decide who is compared with whom.

    Raises:
        TopologyError: sizes do not divide, or a rank stands in two groups of one kind.
    """
    named: dict[str, RankGroups] = layout(parallel) if parallel is not None else {}
    explicit = {name: _explicit(name, value) for name, value in (groups or {}).items()}
    notes: list[str] = []
    if explicit:
        derived_replicas = named.get("replica", ())
        named |= explicit
        named["attn_tp"] = explicit.get("attn_tp") or named.get("attn_tp") or explicit.get("replica", ())
        named["replica"] = explicit.get("replica") or derived_replicas or named["attn_tp"]
    if not named:
        everyone = tuple(sorted(ranks))
        named = {"tp": (everyone,), "attn_tp": (everyone,), "replica": (everyone,)}
        notes.append(
            "No sizes and no groups are recorded: all ranks are assumed to form one attn_tp group; "
            "--tp, --dp, --cp, --pp and --dp-attention say otherwise."
        )
    placed = {rank for group in named["replica"] for rank in group}
    alone = [rank for rank in sorted(ranks) if rank not in placed]
    notes += [f"Rank {rank} is outside all groups and is treated as a replica of its own." for rank in alone]
    replicas = [_replica(group, named["attn_tp"]) for group in (*named["replica"], *((rank,) for rank in alone))]
    replicas.sort(key=lambda replica: replica.ranks)
    if len(replicas) > 1:
        sync_groups = tuple(group for replica in replicas for group in replica.attn_tp)
    else:
        sync_groups = layout(parallel)["tp"] if parallel is not None else tuple(replica.ranks for replica in replicas)
    return Topology(replicas=tuple(replicas), named=named, sync_groups=sync_groups, notes=tuple(notes))


def _explicit(name: str, value: Sequence[Sequence[int]]) -> RankGroups:
    seen: set[int] = set()
    result = []
    for group in value:
        for rank in group:
            if rank in seen:
                raise TopologyError(f"groups.{name} names rank {rank} twice; groups of one kind do not overlap")
            seen.add(rank)
        if group:
            result.append(tuple(group))
    return tuple(sorted(result))


def _replica(ranks: RankGroup, attn_tp: RankGroups) -> ReplicaGroup:
    inside: list[RankGroup] = []
    for group in attn_tp:
        common = tuple(rank for rank in group if rank in ranks)
        if common and common != group:
            raise TopologyError(
                f"attn_tp group {list(group)} reaches beyond replica {list(ranks)}; it has to lie in one replica"
            )
        if common:
            inside.append(group)
    grouped = {rank for group in inside for rank in group}
    inside.extend((rank,) for rank in ranks if rank not in grouped)
    return ReplicaGroup(ranks=ranks, attn_tp=tuple(sorted(inside)))


def override(sizes: Sizes | None, **flags: int | bool | None) -> Sizes:
    """The sizes with those that flags name replaced."""
    given: dict[str, int | bool | None] = {name: value for name, value in flags.items() if value is not None}
    if "dp" in given or "dp_attention" in given:
        given["attn_dp"] = None  # the flag speaks of dp, so an explicit attn_dp_size of the meta no longer holds
    return msgspec.structs.replace(sizes or Sizes(), **given)
