"""The records of a trace: the one definition of every field.

Name, type, kind, rule, order and meaning of a field stand here and nowhere else. The readers decode into these
structs, the comparison asks `FIELDS` what a field is compared for, and the JSON Schemas and the field reference in
`docs/` are generated from them (`divtrace.schema_files`). The order of the fields is the causal order of the decisions,
from upstream to downstream: it decides which differing field is named first.

Only msgspec is imported: the recorder, which runs inside serving processes, shares this module. Annotations are no
strings here: several readers of them would each evaluate the more than a hundred anew, in every process.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

TRACE_FORMAT = "divtrace.trace/1"

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1

StageName = Literal["init", "schedule", "prefill", "draft", "verify", "accept", "commit", "collective", "host"]
PhaseName = Literal["local", "synced", "used"]

STAGES: tuple[str, ...] = get_args(StageName)
"""All stages. Those up to `commit` are the model events, in causal order."""
MODEL_STAGES: tuple[str, ...] = STAGES[:7]
STAGE_ORDER: dict[str, int] = {stage: order for order, stage in enumerate(STAGES)}
PHASES: tuple[str, ...] = get_args(PhaseName)


class Kind(StrEnum):
    """What a field tells, and thereby with whom it may be compared."""

    IDENTITY = "identity"
    CONTROL = "control"
    LAYOUT = "logical-layout"
    SHAPE = "shape"
    COMMUNICATOR = "communicator"
    PHYSICAL = "physical"
    EVIDENCE = "evidence"


def _about(kind: Kind, meaning: str, rule: str | None = None) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, extra={"kind": kind.value, "rule": rule})


_IDENTITY, _CONTROL, _LAYOUT, _SHAPE = Kind.IDENTITY, Kind.CONTROL, Kind.LAYOUT, Kind.SHAPE
_COMMUNICATOR, _PHYSICAL, _EVIDENCE = Kind.COMMUNICATOR, Kind.PHYSICAL, Kind.EVIDENCE


class Event(msgspec.Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    """One event of one rank. A field that is `None` was not recorded: neither equal nor unequal to anything."""

    kind: Annotated[Literal["event"] | None, _about(_IDENTITY, "absent, or event")] = None
    world: Annotated[
        int | None, _about(_IDENTITY, "data-parallel replica without DP attention; ranks repeat in it")
    ] = None
    rank: Annotated[int | None, _about(_IDENTITY, "global rank, from 0; wins over the meta's and the file name's")] = (
        None
    )
    seq: Annotated[int | None, _about(_IDENTITY, "this rank's event counter, rising by 1; a gap means lost events")] = (
        None
    )
    ts: Annotated[int | None, _about(_IDENTITY, "Unix time in ns, for display and lag only")] = None
    step: Annotated[int | None, _about(_IDENTITY, "engine step that verifies the record's round")] = None
    req: Annotated[str | None, _about(_IDENTITY, "request id; absent on batch-level events")] = None
    attempt: Annotated[int | None, _about(_IDENTITY, "retractions of the request so far; default 0")] = None
    round: Annotated[
        int | None, _about(_IDENTITY, "Draft-Verify-Accept-Commit pass of the request; 0 is the prefill")
    ] = None
    stage: Annotated[StageName, _about(_IDENTITY, "where in the step; the model stages stand in causal order")]
    site: Annotated[str | None, _about(_IDENTITY, "which place inside the stage, such as dspark-plan or layout")] = None
    phase: Annotated[
        PhaseName | None, _about(_IDENTITY, "before a sync, right after it, or what the engine went on with (default)")
    ] = None
    n: Annotated[int | None, _about(_IDENTITY, "occurrence within the same key; default 0")] = None

    forward_mode: Annotated[str | None, _about(_CONTROL, "extend, decode, verify or idle", "forward-mode")] = None
    decision: Annotated[
        str | None, _about(_CONTROL, "admit, keep, abort, evict, retract and so on", "schedule-decision")
    ] = None
    reason: Annotated[str | None, _about(_CONTROL, "why the decision was taken", "schedule-decision")] = None
    gate: Annotated[bool | None, _about(_CONTROL, "a yes or no that chooses a code path", "gate")] = None
    batch: Annotated[
        list[str] | None,
        _about(
            _CONTROL, "request ids of the step in row order; control as a set, layout in its order", "batch-membership"
        ),
    ] = None
    row: Annotated[int | None, _about(_LAYOUT, "row of this request in the batch", "row-order")] = None
    prefix_hit: Annotated[int | None, _about(_LAYOUT, "tokens of the prompt found in the cache", "prefix-length")] = (
        None
    )
    seq_len: Annotated[
        int | None,
        _about(_LAYOUT, "confirmed length before the round, which is the position of the root row", "sequence-length"),
    ] = None
    draft_root: Annotated[
        int | None, _about(_CONTROL, "last committed token, from which the draft starts", "draft-tokens")
    ] = None
    draft_steps: Annotated[int | None, _about(_CONTROL, "draft forwards run", "draft-steps")] = None
    num_draft_tokens: Annotated[int | None, _about(_CONTROL, "verify width, root row included", "draft-steps")] = None
    draft_tokens: Annotated[
        list[int] | None,
        _about(
            _CONTROL,
            "candidates without the root; with one event per draft step, those of all n in order",
            "draft-tokens",
        ),
    ] = None
    draft_parents: Annotated[
        list[int] | None,
        _about(
            _CONTROL,
            "parent node of each candidate; 0 is the root, node i+1 is draft_tokens[i]; absent: a chain",
            "draft-tree",
        ),
    ] = None
    verify_budget: Annotated[
        int | None, _about(_CONTROL, "rows the batch may verify; -1 for no budget", "verify-plan")
    ] = None
    verify_len: Annotated[int | None, _about(_CONTROL, "rows this request verifies", "verify-plan")] = None
    positions: Annotated[list[int] | None, _about(_LAYOUT, "logical position of each row", "positions")] = None
    num_tokens: Annotated[int | None, _about(_SHAPE, "rows launched", "launch-shape")] = None
    padded_tokens: Annotated[int | None, _about(_SHAPE, "rows launched, after padding", "launch-shape")] = None
    batch_size: Annotated[int | None, _about(_SHAPE, "requests launched", "launch-shape")] = None
    shape: Annotated[list[int] | None, _about(_SHAPE, "of the tensor that the site names", "launch-shape")] = None
    dtype: Annotated[str | None, _about(_SHAPE, "of the tensor that the site names", "launch-shape")] = None
    graph: Annotated[str | None, _about(_SHAPE, "eager, or the key of the captured graph", "launch-shape")] = None
    target_tokens: Annotated[
        list[int] | None,
        _about(
            _CONTROL, "the target's token after each verified row, row 0 being the root; greedy only", "target-tokens"
        ),
    ] = None
    branch: Annotated[str | None, _about(_CONTROL, "greedy, sampling and so on", "accept-branch")] = None
    accept_path: Annotated[list[int] | None, _about(_CONTROL, "accepted nodes, root 0 first", "accept-path")] = None
    correct_len: Annotated[int | None, _about(_CONTROL, "accepted drafts", "accept-length")] = None
    bonus: Annotated[int | None, _about(_CONTROL, "the token that the target adds", "bonus-token")] = None
    cap_trim_len: Annotated[int | None, _about(_CONTROL, "drafts cut by a cap", "cap-trim")] = None
    commit_len: Annotated[int | None, _about(_CONTROL, "tokens committed, bonus included", "commit-length")] = None
    new_seq_len: Annotated[int | None, _about(_LAYOUT, "confirmed length after the round", "sequence-length")] = None
    kv_positions: Annotated[
        list[int] | None,
        _about(_LAYOUT, "logical positions whose state the slots in kv_slots hold, same order", "kv-ownership"),
    ] = None
    out_tokens: Annotated[list[int] | None, _about(_CONTROL, "committed tokens, bonus last", "out-tokens")] = None
    finished: Annotated[str | None, _about(_CONTROL, "empty while running, else the reason", "finish")] = None
    extra: Annotated[
        dict[str, Any] | None,
        _about(
            _EVIDENCE,
            "anything else; keys start with control., layout., shape., physical. or info.; scalars or lists",
            "extra-field",
        ),
    ] = None

    comm: Annotated[str | None, _about(_COMMUNICATOR, "communicator: its name")] = None
    comm_ranks: Annotated[list[int] | None, _about(_COMMUNICATOR, "communicator: its global ranks")] = None
    comm_seq: Annotated[int | None, _about(_COMMUNICATOR, "communicator: its operation counter on this rank")] = None
    op: Annotated[
        str | None, _about(_SHAPE, "all_reduce, broadcast, all_gather, send, recv and so on", "collective-order")
    ] = None
    src: Annotated[int | None, _about(_SHAPE, "global rank that the operation starts from", "collective-order")] = None
    numel: Annotated[int | None, _about(_SHAPE, "elements of the operation", "collective-shape")] = None
    state: Annotated[str | None, _about(_EVIDENCE, "enqueued, started, completed or timeout")] = None
    kv_slots: Annotated[list[int] | None, _about(_PHYSICAL, "physical slots, never compared across ranks")] = None
    pool_index: Annotated[int | None, _about(_PHYSICAL, "row of the request pool, never compared across ranks")] = None
    pool_free: Annotated[int | None, _about(_PHYSICAL, "free slots, never compared across ranks")] = None
    decided_on: Annotated[
        int | float | None, _about(_EVIDENCE, "the input that a decision compared: an age, free pages")
    ] = None
    margin: Annotated[float | None, _about(_EVIDENCE, "smallest top-1 minus top-2 logit of the deciding rows")] = None
    dummy: Annotated[bool | None, _about(_EVIDENCE, "filler batch of an idle rank")] = None
    error: Annotated[str | None, _about(_EVIDENCE, "text of an exception")] = None
    error_type: Annotated[str | None, _about(_EVIDENCE, "type of an exception")] = None
    note: Annotated[str | None, _about(_EVIDENCE, "free text")] = None


class Engine(msgspec.Struct, gc=False):
    """Name and version of the serving engine."""

    name: str | None = None
    version: str | None = None


class Meta(msgspec.Struct, gc=False, kw_only=True):
    """One meta record: whose trace this is, and the sizes from which the groups follow."""

    kind: Annotated[Literal["meta"], msgspec.Meta(description="always meta")] = "meta"
    format: Annotated[str | None, msgspec.Meta(description=f"the format's name and version, {TRACE_FORMAT}")] = None
    run: Annotated[str | None, msgspec.Meta(description="name of the run; a meta without it belongs to any run")] = None
    world: Annotated[int | None, msgspec.Meta(description="data-parallel replica without DP attention")] = None
    rank: Annotated[int | None, msgspec.Meta(description="global rank; absent: holds for every rank of the file")] = (
        None
    )
    host: Annotated[str | None, msgspec.Meta(description="host name, for display")] = None
    pid: Annotated[int | None, msgspec.Meta(description="process id, for display")] = None
    engine: Annotated[Engine | None, msgspec.Meta(description="serving engine")] = None
    algorithm: Annotated[str | None, msgspec.Meta(description="speculative algorithm")] = None
    device: Annotated[str | None, msgspec.Meta(description="cuda, npu, rocm, cpu")] = None
    backend: Annotated[str | None, msgspec.Meta(description="nccl, hccl, gloo")] = None
    parallel: Annotated[dict[str, Any] | None, msgspec.Meta(description="sizes that give the groups")] = None
    groups: Annotated[
        dict[str, list[list[int]]] | None, msgspec.Meta(description="explicit groups, which win over the sizes")
    ] = None
    sync: Annotated[
        str | list[str] | None, msgspec.Meta(description="raw SGLANG_SPEC_TP_SYNC, or a list of site slugs")
    ] = None
    dropped: Annotated[int | None, msgspec.Meta(description="events that the recorder lost so far")] = None
    tokens: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="how token ids are recorded: mode plain, hash or off, and the fingerprint of a hash's key; "
            "tokens of ranks that differ in it are not compared"
        ),
    ] = None


class Field(msgspec.Struct, frozen=True):
    """What the comparison, the schemas and the reference know about one field of `Event`."""

    name: str
    type: str
    """As the field reference writes it: int, str, bool, float, number, object, [int] or [str]."""
    kind: Kind
    rule: str | None
    """The rule that a difference in this field breaks; None where it is never compared by itself."""
    meaning: str
    order: int
    """Place in the causal order of the fields."""


_TYPE_NAMES: dict[str, str] = {
    "int | None": "int",
    "str | None": "str",
    "bool | None": "bool",
    "float | None": "float",
    "int | float | None": "number",
    "list[int] | None": "[int]",
    "list[str] | None": "[str]",
    "dict[str, typing.Any] | None": "object",
}


def _fields() -> tuple[Field, ...]:
    hints = get_type_hints(Event, include_extras=True)
    found = []
    for order, name in enumerate(Event.__struct_fields__):
        plain, about = get_args(hints[name])
        extra = about.extra
        found.append(
            Field(
                name=name,
                type=_TYPE_NAMES.get(str(plain), "str"),
                kind=Kind(extra["kind"]),
                rule=extra["rule"],
                meaning=about.description,
                order=order,
            )
        )
    return tuple(found)


FIELDS: tuple[Field, ...] = _fields()
FIELD: dict[str, Field] = {field.name: field for field in FIELDS}

EXTRA_KINDS: dict[str, Kind] = {
    "control": Kind.CONTROL,
    "layout": Kind.LAYOUT,
    "shape": Kind.SHAPE,
    "physical": Kind.PHYSICAL,
    "info": Kind.EVIDENCE,
}


def extra_kind(key: str) -> Kind:
    """The kind of a key of `extra`, by its prefix; an unknown prefix counts as `info.`."""
    return EXTRA_KINDS.get(key.partition(".")[0], Kind.EVIDENCE)


TOKEN_FIELDS = frozenset({"draft_root", "draft_tokens", "target_tokens", "bonus", "out_tokens"})
"""Fields that hold token ids, which may be keyed hashes."""

VALUE_FIELDS: tuple[str, ...] = tuple(
    field.name for field in FIELDS if field.kind in (Kind.CONTROL, Kind.LAYOUT, Kind.SHAPE) and field.name != "extra"
)
"""The compared fields, upstream first; the keys of `extra` follow them in alphabetical order."""
