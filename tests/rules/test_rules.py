"""The rules: complete, in order, and the page in `docs/` in step with them."""

from __future__ import annotations

import re

import pytest

from divtrace.events import FIELDS
from divtrace.rules import INVARIANT_ORDER, RULES, rule_class
from divtrace.rules.__main__ import PAGE, main
from divtrace.rules.base import Rule
from divtrace.rules.page import markdown_pages
from divtrace.sync_sites import SITES

CONTROL = [
    "init-config",
    "schedule-decision",
    "batch-membership",
    "forward-mode",
    "gate",
    "draft-tokens",
    "draft-tree",
    "draft-steps",
    "verify-plan",
    "target-tokens",
    "accept-branch",
    "accept-length",
    "accept-path",
    "bonus-token",
    "cap-trim",
    "commit-length",
    "out-tokens",
    "finish",
    "skipped-event",
    "sync-ineffective",
    "sync-overridden",
    "sync-group",
]
LAYOUT = ["row-order", "prefix-length", "positions", "kv-ownership", "sequence-length"]
SHAPE = ["launch-shape", "collective-shape", "collective-order"]
INVARIANTS = {
    "commit-arithmetic": "control",
    "sequence-continuity": "logical-layout",
    "anchor-continuity": "control",
    "plan-bound": "control",
    "accept-derivation": "control",
    "path-derivation": "control",
    "out-token-derivation": "control",
    "position-arithmetic": "logical-layout",
    "kv-alias": "logical-layout",
}
# Rules of fields that SGLang synchronises at a site, with the tokens that switch those sites.
SYNCED = {
    "gate": ("dspark-mem", "dflash-mem"),
    "draft-tokens": ("dspark-draft",),
    "verify-plan": ("dspark-plan",),
    "target-tokens": ("dflash-accept-greedy",),
    "accept-branch": ("dspark-accept-greedy", "dspark-accept-sample", "dspark-accept-graph"),
    "accept-length": ("dspark-accept-greedy", "dspark-accept-sample", "dflash-selector", "dflash-accept-sample"),
    "bonus-token": ("dspark-target", "dflash-target", "dspark-accept-graph"),
    "cap-trim": ("dspark-accept-greedy", "dspark-accept-sample", "dspark-accept-graph"),
}

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


def test_every_rule_of_the_contract_is_there_in_its_order() -> None:
    assert list(RULES) == [*CONTROL, *LAYOUT, *SHAPE, *INVARIANTS, "extra-field"]
    assert tuple(INVARIANTS) == INVARIANT_ORDER


def test_classes_are_those_of_the_contract() -> None:
    expected = dict.fromkeys(CONTROL, "control") | dict.fromkeys(LAYOUT, "logical-layout")
    expected |= dict.fromkeys(SHAPE, "shape") | INVARIANTS

    assert {name: rule_class(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("extra.control.x", "control"),
        ("extra.layout.x", "logical-layout"),
        ("extra.shape.a.b", "shape"),
    ],
)
def test_the_class_of_an_extra_field_follows_from_the_prefix_of_its_key(field: str, expected: str) -> None:
    assert rule_class("extra-field", field) == expected


@pytest.mark.parametrize("field", ["extra.physical.x", "extra.info.x", "extra.mine"])
def test_an_extra_field_that_is_never_compared_has_no_class(field: str) -> None:
    with pytest.raises(KeyError):
        rule_class("extra-field", field)


def test_an_unknown_rule_has_no_class() -> None:
    with pytest.raises(KeyError):
        rule_class("no-such-rule")


def test_every_rule_of_a_field_has_a_page() -> None:
    assert {field.rule for field in FIELDS if field.rule} <= set(RULES)


@every_rule
def test_a_page_is_complete(rule: Rule) -> None:
    assert RULES[rule.name] is rule
    assert 80 <= len(rule.meaning) <= 500
    assert rule.meaning.endswith(".")
    assert re.search(r"\brank", rule.example), "an example gives values by rank"
    assert all(len(line) <= 76 for line in rule.example.splitlines())
    assert len(rule.causes) >= 3
    assert len(rule.look_next) >= 2
    assert all(entry.endswith((".", "?")) and not entry.startswith(" ") for entry in (*rule.causes, *rule.look_next))
    assert len(set(rule.causes)) == len(rule.causes)


def test_no_two_rules_mean_or_advise_the_same() -> None:
    assert len({rule.meaning for rule in RULES.values()}) == len(RULES)
    assert len({rule.example for rule in RULES.values()}) == len(RULES)
    assert len({rule.look_next[0] for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("name", SYNCED)
def test_a_rule_of_a_synced_field_names_the_token_of_its_site(name: str) -> None:
    advice = " ".join(RULES[name].look_next)

    assert all(f"`{token}`" in advice for token in SYNCED[name])


@every_rule
def test_sync_sites_and_rules_that_a_page_names_exist(rule: Rule) -> None:
    names = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", " ".join((rule.meaning, *rule.causes, *rule.look_next)))

    assert set(names) <= {*RULES, *SITES.values()}


def test_the_page_in_docs_is_what_the_rules_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown_pages(RULES), "run python -m divtrace.rules --write"


def test_the_command_prints_the_page_or_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == markdown_pages(RULES)

    assert main(["--wrong"]) == 2
    assert "usage" in capsys.readouterr().err
