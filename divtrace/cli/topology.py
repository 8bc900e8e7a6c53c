"""`divtrace topology`: the groups that sizes give, without any trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.cli._files import document, write_answer
from divtrace.cli._options import Answer, Layout, Terminal, spelled_out
from divtrace.cli._text import paragraph, table
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.topology import RankGroup, RankGroups, Sizes, Topology

COMMUNICATORS = ("tp", "attn_tp", "attn_cp", "pp")
"""Those that the sizes of the command line decide."""


@spelled_out
def command(*, layout: Layout, answer: Answer, _terminal: Terminal) -> ExitCode:
    """Print the groups that parallel sizes give: replicas, attn_tp groups, sync sources, communicators.

    Reads no trace. Ranks of one replica serve the same requests and are compared with each other; a decision is
    broadcast in a sync group, from its first rank.
    """
    as_json = answer.as_json()
    from divtrace.topology import Sizes, override, topology

    explicit = layout.attn_tp_groups()
    sized = any(size is not None for size in (layout.tp, layout.dp, layout.cp, layout.pp))
    if not sized and not explicit:
        raise UsageError("no sizes are given", hint="for instance: divtrace topology --tp 16 --dp 8 --dp-attention")
    sizes = (
        override(Sizes(), tp=layout.tp, dp=layout.dp, cp=layout.cp, pp=layout.pp, dp_attention=layout.dp_attention)
        if sized
        else None
    )
    ranks = range(sizes.tp * sizes.pp) if sizes else sorted({rank for group in explicit for rank in group})
    groups = topology(ranks, parallel=sizes, groups={"attn_tp": explicit} if explicit else None)
    write_answer(answer.output, _as_json(groups, sizes, len(ranks)) if as_json else _as_text(groups, sizes, len(ranks)))
    return ExitCode.CLEAN


def _as_json(groups: Topology, sizes: Sizes | None, ranks: int) -> bytes:
    answer = {
        "schema": "divtrace.topology/1",
        "ranks": ranks,
        "sizes": _sizes(sizes),
        "replicas": [
            {"id": number, "ranks": replica.ranks, "attn_tp": replica.attn_tp}
            for number, replica in enumerate(groups.replicas)
        ],
        "sync_groups": [{"ranks": group, "source": group[0]} for group in groups.sync_groups],
        "communicators": {name: groups.named[name] for name in COMMUNICATORS if name in groups.named},
        "notes": groups.notes,
    }
    return document(answer)


def _sizes(sizes: Sizes | None) -> dict[str, int | bool] | None:
    if sizes is None:
        return None
    return {"tp": sizes.tp, "dp": sizes.dp, "dp_attention": sizes.dp_attention, "cp": sizes.cp, "pp": sizes.pp}


def _as_text(groups: Topology, sizes: Sizes | None, ranks: int) -> str:
    lines = [f"{ranks} ranks, {len(groups.replicas)} {'replica' if len(groups.replicas) == 1 else 'replicas'}"]
    notes = list(groups.notes)
    if sizes is not None:
        attention = "with" if sizes.dp_attention else "without"
        lines.append(f"tp {sizes.tp}, dp {sizes.dp} {attention} DP attention, cp {sizes.cp}, pp {sizes.pp}")
        if sizes.dp > 1 and not sizes.dp_attention:
            notes.append(f"dp {sizes.dp} without DP attention makes {sizes.dp} worlds of these ranks")
    lines += [
        "",
        *table(
            ("replica", "ranks", "attn_tp groups"),
            [
                (str(number), _ranges(replica.ranks), _groups(replica.attn_tp))
                for number, replica in enumerate(groups.replicas)
            ],
        ),
    ]
    lines += [
        "",
        *table(("sync group", "source"), [(_ranges(group), f"rank {group[0]}") for group in groups.sync_groups]),
    ]
    lines += [
        "",
        *table(
            ("communicator", "ranks"),
            [(name, _groups(groups.named[name])) for name in COMMUNICATORS if name in groups.named],
        ),
    ]
    lines += [paragraph(note, first="note: ") for note in notes]
    return "\n".join(lines) + "\n"


def _groups(groups: RankGroups) -> str:
    """Groups separated by blanks; ranks that are alone in theirs are not worth a list."""
    if len(groups) > 1 and all(len(group) == 1 for group in groups):
        return "every rank by itself"
    return " ".join(_ranges(group) for group in groups)


def _ranges(ranks: RankGroup) -> str:
    from divtrace.output.ranks import rank_ranges

    return rank_ranges(ranks, most=len(ranks))
