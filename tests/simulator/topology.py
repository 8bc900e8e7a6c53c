"""Which rank works with which: the groups of SPEC section 4, written out by coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where one global rank stands in the engine."""

    pipeline: int
    data: int
    context: int
    tensor: int


@lru_cache(maxsize=4096)
def _peers(topology: Topology, rank: int, *shared: str) -> tuple[int, ...]:
    """The ranks that stand where `rank` stands in these coordinates."""
    here = topology.coordinates(rank)
    return tuple(
        other
        for other in topology.ranks
        if all(getattr(topology.coordinates(other), name) == getattr(here, name) for name in shared)
    )


@dataclass(frozen=True, slots=True)
class Topology:
    """Sizes of one world. `tensor` is the width of one attn_tp group, so `tp_size` is the product of three sizes."""

    tensor: int = 2
    data: int = 1
    context: int = 1
    pipeline: int = 1

    @property
    def tp_size(self) -> int:
        return self.tensor * self.context * self.data

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(self.tp_size * self.pipeline))

    def coordinates(self, rank: int) -> Coordinates:
        pipeline, tp_rank = divmod(rank, self.tp_size)
        block, tensor = divmod(tp_rank, self.tensor)
        data, context = divmod(block, self.context)
        return Coordinates(pipeline=pipeline, data=data, context=context, tensor=tensor)

    def attn_tp(self, rank: int) -> tuple[int, ...]:
        """The ranks that share a request by attention tensor parallelism."""
        return _peers(self, rank, "pipeline", "data", "context")

    def attn_cp(self, rank: int) -> tuple[int, ...]:
        return _peers(self, rank, "pipeline", "data", "tensor")

    def tp(self, rank: int) -> tuple[int, ...]:
        """All ranks of one pipeline stage."""
        return _peers(self, rank, "pipeline")

    def lane(self, rank: int) -> tuple[int, ...]:
        """The ranks of all pipeline stages that hand activations to each other."""
        return _peers(self, rank, "data", "context", "tensor")

    def replica(self, rank: int) -> tuple[int, ...]:
        """All ranks that serve the same requests."""
        return _peers(self, rank, "data")

    def replica_ranks(self, index: int) -> tuple[int, ...]:
        return tuple(r for r in self.ranks if self.coordinates(r).data == index)

    def sync_group(self, rank: int) -> tuple[int, ...]:
        """attn_tp if there is more than one replica, else tp."""
        return self.attn_tp(rank) if self.data > 1 else self.tp(rank)

    def is_last_stage(self, rank: int) -> bool:
        return self.coordinates(rank).pipeline == self.pipeline - 1

    def parallel(self) -> dict[str, Any]:
        """The `parallel` object of a meta record."""
        return {
            "tp_size": self.tp_size,
            "dp_size": self.data,
            "enable_dp_attention": self.data > 1,
            "attn_cp_size": self.context,
            "pp_size": self.pipeline,
            "ep_size": 1,
        }
