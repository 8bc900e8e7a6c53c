"""The sync sites of SGLang's SpecTpSync, and how `SGLANG_SPEC_TP_SYNC` names them.

Facts from SGLang 0.5.23, `speculative/spec_tp_sync.py`: numbers, slugs, presets, retired names, and the syntax (a comma
list read from left to right, `-` negates, `_` counts as `-`, case does not matter, the starting set is empty).
"""

from __future__ import annotations

from collections.abc import Iterable

SITES: dict[int, str] = {
    1: "dspark-mem",
    7: "dspark-plan",
    8: "dspark-accept-greedy",
    9: "dspark-accept-sample",
    10: "dspark-accept-graph",
    11: "dspark-target",
    12: "dflash-mem",
    13: "dflash-selector",
    14: "dflash-accept-sample",
    15: "dflash-accept-greedy",
    16: "dflash-target",
    17: "dspark-draft",
}
_NUMBERS = {slug: number for number, slug in SITES.items()}
_PRESETS: dict[str, frozenset[int]] = {
    "all": frozenset(SITES),
    "off": frozenset(),
    "none": frozenset(),
    "init": frozenset({1, 12}),
    "rng": frozenset({1, 9, 11, 12, 13, 14, 16}),
}
_RETIRED: dict[str, int] = dict.fromkeys(
    (
        "dspark-draft-greedy",
        "dspark-draft-sample",
        "dspark-draft-multinomial",
        "dspark-graph-sample",
        "dspark-graph-greedy",
        *"23456",
    ),
    17,
)


def token_for(site: str | None) -> str | None:
    """The `SGLANG_SPEC_TP_SYNC` token that switches the sync of this site, or None if it has none."""
    if site is None:
        return None
    slug = site.lower().replace("_", "-")
    if slug in _NUMBERS:
        return slug
    return SITES[_RETIRED[slug]] if slug in _RETIRED else None


def parse_sync(value: str | Iterable[str]) -> frozenset[str]:
    """The set of sites that a raw setting, or a list of slugs, selects.

    An unknown token stays in the set under its own name: two ranks that carry it agree, a rank without it differs.
    """
    tokens = value.split(",") if isinstance(value, str) else list(value)
    chosen: set[str] = set()
    for raw in tokens:
        token = raw.strip().lower().replace("_", "-")
        negated = token.startswith("-")
        token = token.removeprefix("-")
        if not token:
            continue
        selected = _selected(token)
        chosen = chosen - selected if negated else chosen | selected
    return frozenset(chosen)


def _selected(token: str) -> set[str]:
    if token in _PRESETS:
        return {SITES[number] for number in _PRESETS[token]}
    if token in _RETIRED:
        return {SITES[_RETIRED[token]]}
    if token.isdecimal() and int(token) in SITES:
        return {SITES[int(token)]}
    return {token}
