"""From the coordinates in an engine's log prefix to a global rank."""

from __future__ import annotations

import re
from dataclasses import dataclass

COORDINATE = r"(?:ATTN_CP|MOE_DP|DP|PP|TP|EP)\d{1,6}"


@dataclass(frozen=True, slots=True)
class Coordinates:
    """What a prefix such as ` DP1 PP0 TP3 EP3` states; None where the size is 1 and the prefix leaves it out."""

    dp: int | None = None
    pp: int | None = None
    attn_cp: int | None = None
    moe_dp: int | None = None
    tp: int | None = None
    ep: int | None = None

    def __str__(self) -> str:
        """The coordinates as the prefix writes them."""
        names = ("dp", "pp", "attn_cp", "moe_dp", "tp", "ep")
        return " ".join(f"{name.upper()}{value}" for name in names if (value := getattr(self, name)) is not None)


def coordinates(text: str) -> Coordinates | None:
    """The coordinates named in a prefix or in a process title; None if there is none."""
    found = dict(re.findall(r"(?<![A-Za-z0-9])(ATTN_CP|MOE_DP|DP|PP|TP|EP)(\d{1,6})(?!\d)", text))
    if not found:
        return None
    return Coordinates(**{name.lower(): int(value) for name, value in found.items()})


def global_rank(place: Coordinates, *, tp: int | None, pp: int = 1) -> int | None:
    """The rank inside one world (SGLang: `tp * pp_rank + tp_rank`; TP counts across attention DP and CP).

    Args:
        place: the parsed coordinates; a coordinate left out is 0, because its size is 1.
        tp: tensor-parallel size, None if not known.
        pp: pipeline-parallel size.

    None where the sizes are not known and the rank depends on them, or where the coordinates lie outside the sizes.
    """
    tp_rank, pp_rank = place.tp or 0, place.pp or 0
    if tp is None:
        return tp_rank if place.tp is not None and place.pp is None and pp == 1 else None
    if tp_rank >= tp or pp_rank >= pp:
        return None
    return tp * pp_rank + tp_rank
