"""The rule `prefix-length`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="prefix-length",
    rule_class="logical-layout",
    meaning=(
        "Ranks found a different number of prompt tokens in their cache. They will prefill a different number of rows."
    ),
    example="""\
request w-2, prefix_hit
  ranks 0-1: 64
  ranks 2-3: 48""",
    causes=(
        (
            "A cache of each rank or stage restored for itself: HiCache, host or remote storage (sglang#31108 "
            "describes a restored prefix and its index that do not match)."
        ),
        "Caches that drifted apart by eviction: ties broken by address (tokenspeed#248).",
        "A backup to the host that failed on some ranks only (sglang#27489).",
    ),
    look_next=(
        (
            "Run once without the hierarchical cache: if the finding goes, restoring differs between ranks; if not, "
            "compare the evictions before this step."
        ),
        "Record evictions, backups and restores as schedule decisions with `decided_on`.",
        "Run once without the prefix cache (SGLang: --disable-radix-cache).",
        (
            "Check whether some collective agrees on the prefix length before it is used; if so, record the value "
            "after it."
        ),
    ),
)
