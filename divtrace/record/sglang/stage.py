"""The stage layer: draft, verify plan and layout, accept, from device tensors copied without waiting.

Row *i* of every tensor belongs to request *i* of the batch. What is read are values after any broadcast (phase `used`);
the sync layer has the values before.
"""

from __future__ import annotations

import os

from divtrace.record.deferred import record_later
from divtrace.record.hooks import Hook
from divtrace.record.sglang.rows import (
    accept_events,
    commit_events,
    dflash_events,
    draft_events,
    dspark_events,
    layout_events,
    published_events,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from divtrace.record.sglang.process import ProcessState


def stage_hooks(state: ProcessState) -> dict[str, Hook]:
    """The hooks by the name of their target."""
    stage = StageHooks(state)
    return {
        "verify": Hook("TpModelWorker.forward_batch_generation", before=stage.verify, after=stage.verified),
        "eagle_sample": Hook("eagle_sample", after=stage.eagle_sample),
        "eagle_commit": Hook("run_eagle_verify", after=stage.eagle_commit),
        "publish": Hook("FutureMap.publish", before=stage.publish),
        "eagle_draft": Hook("build_eagle_verify_input", after=stage.eagle_draft),
        "dspark": Hook("DsparkStepObservers.observe_verify_step", before=stage.dspark),
        "dflash": Hook("DFlashWorkerV2._accept_block", after=stage.dflash),
    }


class StageHooks:
    """Each hook takes copies now and builds its events when they have arrived."""

    def __init__(self, state: ProcessState) -> None:
        self._state = state
        self._simulated = _simulated()

    def _later(self, tensors: Sequence[Any], count: int, build: Callable[..., list[dict[str, Any]]]) -> None:
        record_later(self._state.recorder, self._state.device, tensors, count, build)

    def _keys(self, stage: str, site: str, requests: Sequence[Any]) -> list[dict[str, Any]]:
        return [self._state.key(stage, site, str(request)) for request in requests]

    # Verify --------------------------------------------------------------------------------------------------------

    def verify(
        self,
        _worker: Any,
        batch: Any,
        forward_batch: Any = None,
        _proxy: Any = None,
        is_verify: bool = False,
        *_args: Any,
        **_kwargs: Any,
    ) -> None:
        """The verify forward is about to run: ids, positions and slots of its rows, before padding."""
        if not is_verify:
            return
        state = self._state
        source = forward_batch if forward_batch is not None else batch
        requests = getattr(source, "rids", None) or [request.rid for request in getattr(source, "reqs", None) or ()]
        state.site = "target-verify"
        state.recorder.event("verify", "enter", step=state.step, batch_size=len(requests), about_to_block=True)
        spec = source.spec_info
        width = getattr(spec, "draft_token_num", None)
        positions = getattr(source, "positions", None)
        positions = positions if positions is not None else getattr(spec, "positions", None)
        ids = getattr(spec, "draft_token", None)
        ids = ids if ids is not None else source.input_ids
        if not requests or width is None or positions is None or ids is None:
            return
        width = int(width)
        # A ragged layout has its own number of rows per request, known only on the device.
        if positions.numel() != width * len(requests) or ids.numel() != positions.numel():
            return
        tensors = [ids.reshape(-1, width), positions.reshape(-1, width)]
        slots = source.out_cache_loc
        chain = _is_chain(spec)
        if not chain:
            tensors += [links.reshape(-1, width) for links in (spec.retrieve_next_token, spec.retrieve_next_sibling)]
        elif slots is not None and slots.numel() == positions.numel():
            tensors.append(slots.reshape(-1, width))
        keys = self._keys("verify", "layout", requests)
        inputs = self._keys("verify", "input", requests)
        self._later(tensors, 2 * len(keys), lambda *values: layout_events(keys, inputs, width, chain, *values))

    def verified(self, _token: None, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """The target's forward is queued; what follows is the accept and the next draft."""
        self._state.site = "speculation"

    # EAGLE, NEXTN, STANDALONE, multi-layer, frozen-KV MTP, NGRAM -----------------------------------------------------

    def eagle_draft(
        self, _token: None, result: Any, batch: Any, _draft_input: Any = None, *_args: Any, **_kwargs: Any
    ) -> None:
        """The draft tree of this round, as the verify will see it."""
        requests = [request.rid for request in batch.reqs or ()]
        width = int(result.draft_token_num)
        if not requests or result.draft_token.numel() != width * len(requests):
            return
        keys = self._keys("draft", "eagle", requests)
        for key in keys:
            key.update(num_draft_tokens=width, draft_steps=int(result.spec_steps))
        tensors = [result.draft_token.reshape(-1, width)]
        if int(result.topk) != 1:
            tensors += [result.retrieve_next_token, result.retrieve_next_sibling]
        self._later(tensors, len(keys), lambda *values: draft_events(keys, *values))

    def eagle_sample(
        self,
        _token: None,
        result: Any,
        verify_input: Any,
        batch: Any,
        logits_output: Any = None,
        *_args: Any,
        **_kwargs: Any,
    ) -> None:
        """The accept, after any broadcast: path, length and bonus; greedy, also the target's own tokens."""
        requests = [request.rid for request in batch.reqs or ()]
        predict, accept_lens, accept_index = result
        if not requests or accept_lens.shape[0] != len(requests) or self._state.device.capturing():
            return
        width = int(verify_input.draft_token_num)
        greedy = bool(batch.sampling_info.is_all_greedy)
        branch = "greedy" if greedy else "sampling"
        keys = self._keys("accept", f"eagle-{branch}", requests)
        branch = "simulated" if self._simulated else branch
        synchronised = not greedy or self._state.device.name == "rocm"
        for key in keys:
            key["branch"] = branch
            if synchronised and len(self._state.sync_ranks) > 1:
                # SGLang broadcasts the accept here, from the first rank of the group.
                key.update(comm_ranks=self._state.sync_ranks, src=self._state.sync_ranks[0])
        tensors = [predict, accept_lens, accept_index]
        count = len(keys)
        targets: list[dict[str, Any]] = []
        logits = getattr(logits_output, "next_token_logits", None)
        if greedy and logits is not None and logits.shape[0] == width * len(requests):
            # Penalties, biases and grammars have been applied in place by now.
            tensors.append(logits.argmax(dim=-1).reshape(-1, width))
            targets = self._keys("verify", "target", requests)
            for key in targets:
                key["branch"] = branch
            count *= 2
        self._later(tensors, count, lambda *values: accept_events(keys, targets, width, *values))

    def eagle_commit(
        self,
        _token: None,
        result: Any,
        batch: Any,
        *,
        topk: int = 1,
        finalize_tree_path: bool = False,
        **_kwargs: Any,
    ) -> None:
        """The commit on the device, which the scheduler settles one forward later, if it lives to see that."""
        requests = [request.rid for request in batch.reqs or ()]
        accepted, width = result.accept_lens, int(result.speculative_num_draft_tokens)
        if not requests or accepted.shape[0] != len(requests):
            return
        tensors = [batch.seq_lens, accepted, result.new_seq_lens]
        # Without the compaction of an accepted path the tokens of a tree are not in a row.
        if (int(topk) == 1 or finalize_tree_path) and result.next_token_ids.numel() == width * len(requests):
            tensors.append(result.next_token_ids.reshape(-1, width))
        keys = self._keys("commit", "eagle", requests)
        self._later(tensors, len(keys), lambda *values: commit_events(keys, *values))

    # All algorithms ------------------------------------------------------------------------------------------------

    def publish(self, _map: Any, future_indices: Any, new_seq_lens: Any, *_args: Any, **_kwargs: Any) -> None:
        """The lengths that the next forward starts from, under overlap. Of a prefill they tell nothing new."""
        requests = self._state.requests
        if not self._state.decoding or not requests:
            return
        if int(future_indices.shape[0]) != len(requests) or int(new_seq_lens.shape[0]) != len(requests):
            return
        keys = self._keys("commit", "publish", requests)
        self._later([new_seq_lens], len(keys), lambda lengths: published_events(keys, lengths))

    # DSpark --------------------------------------------------------------------------------------------------------

    def dspark(
        self,
        _observers: Any,
        *,
        reqs: Any,
        bs: int,
        verify_ids_2d: Any,
        layout: Any,
        prefix_lens: Any,
        correct_len: Any,
        cap_trim_lens: Any,
        bonus: Any,
        commit_lens: Any,
        verify_token_budget: Any,
        verify_tier_num_tokens: Any = None,
        proposal_folded: bool = False,
        **_kwargs: Any,
    ) -> None:
        """One whole round; the tensors are live buffers of captured graphs, so they are cloned here."""
        requests = [request.rid for request in reqs][:bs]
        if not requests:
            return
        state = self._state
        plan: dict[str, Any] = {"verify_budget": -1 if verify_token_budget is None else int(verify_token_budget)}
        extra: dict[str, Any] = {
            "control.layout": layout is not None,
            "control.proposal_folded": bool(proposal_folded),
        }
        tier = getattr(layout, "graph_num_tokens", None) if layout is not None else verify_tier_num_tokens
        if tier is not None:
            extra["shape.graph_num_tokens"] = int(tier)
        state.recorder.event("verify", "dspark-launch", step=state.step, batch_size=bs, extra=extra, **plan)
        keys = [[state.key(stage, site, str(request)) for stage, site in _DSPARK_SITES] for request in requests]
        tensors = [
            verify_ids_2d[:bs],
            prefix_lens[:bs],
            correct_len[:bs],
            cap_trim_lens[:bs],
            bonus[:bs],
            commit_lens[:bs],
        ]
        if layout is not None:
            tensors.append(layout.verify_lens[:bs])
        self._later(tensors, len(requests) * len(_DSPARK_SITES), lambda *values: dspark_events(keys, *values))

    # DFlash --------------------------------------------------------------------------------------------------------

    def dflash(
        self,
        _token: None,
        result: Any,
        _worker: Any,
        *,
        candidates: Any,
        prefix_lens: Any,
        bs: int,
        sampling_info: Any = None,
        **_kwargs: Any,
    ) -> None:
        """Drafts and accept of one round; the call names no requests, so they are those of the running forward."""
        state = self._state
        requests = state.requests[:bs]
        if len(requests) != bs or not requests:
            return
        accept_len, commit_lens, bonus, out_tokens = result[:4]
        greedy = sampling_info is None or bool(getattr(sampling_info, "is_all_greedy", False))
        keys = [[state.key(stage, site, request) for stage, site in _DFLASH_SITES] for request in requests]
        for key in keys:
            key[1]["branch"] = "simulated" if self._simulated else "greedy" if greedy else "sampling"
        tensors = [candidates, prefix_lens[:bs], accept_len[:bs], bonus[:bs], commit_lens[:bs], out_tokens[:bs]]
        self._later(tensors, len(requests) * len(_DFLASH_SITES), lambda *values: dflash_events(keys, *values))


def _simulated() -> bool:
    """Whether SGLang makes up accepted lengths, for benchmarks: they do not follow from drafts and target then."""
    try:
        return float(os.environ.get("SGLANG_SIMULATE_ACC_LEN") or 0) > 0
    except ValueError:
        return False


_DSPARK_SITES = (("draft", "dspark"), ("verify", "dspark-plan"), ("accept", "dspark"), ("commit", "dspark"))
_DFLASH_SITES = (("draft", "dflash"), ("accept", "dflash"), ("commit", "dflash"))


def _is_chain(spec: Any) -> bool:
    """Whether the verified nodes are a chain. NGRAM has no `topk`; its trees branch as its corpus does."""
    topk = getattr(spec, "tree_topk", None)
    return int(getattr(spec, "topk", None) or 1 if topk is None else topk) == 1
