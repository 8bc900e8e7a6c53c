"""Offline generation on two CPU ranks with speculative decoding: what the engine test records.

Run inside the engine's environment: `python generate.py MODELS`. Prints one JSON line with the texts' token ids.
`DIVTRACE_TEST_METHOD` chooses the drafter (`draft_model` or `ngram`).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main(models: str) -> None:
    from vllm import LLM, SamplingParams

    method = os.environ.get("DIVTRACE_TEST_METHOD", "draft_model")
    speculative: dict[str, Any] = {"method": method, "num_speculative_tokens": 4}
    if method == "ngram":
        speculative.update(prompt_lookup_min=1, prompt_lookup_max=3)
    else:
        speculative.update(model=f"{models}/draft")
    engine = LLM(
        model=f"{models}/target",
        tensor_parallel_size=2,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        block_size=32,
        max_model_len=512,
        max_num_seqs=8,
        seed=0,
        speculative_config=speculative,
        distributed_timeout_seconds=60,
    )
    prompts = [{"prompt_token_ids": [1] + [(7 * i + j) % 500 + 4 for j in range(8 + 3 * i)]} for i in range(6)]
    sampling = [SamplingParams(temperature=0, max_tokens=40 + 4 * i, ignore_eos=True) for i in range(6)]
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    print("\nOUTPUT " + json.dumps([list(output.outputs[0].token_ids) for output in outputs]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
