"""Makes a tiny random target model and a draft model near it, with nothing to download.

Run inside the engine's environment: `python tiny_models.py DIRECTORY`. The draft is the target with noise on its
weights, so that part of its tokens are accepted.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

VOCABULARY = 512


def main(directory: Path) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        torch_dtype=torch.float32,
    )
    model = LlamaForCausalLM(config).eval()
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.dim() > 1]
    with torch.no_grad():
        for name, weight in weights:
            # Wider than usual, which would give nearly flat logits.
            weight.normal_(0, 1.0 if "embed" in name else 0.08)
    model.save_pretrained(directory / "target")
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, **{f"t{i}": i for i in range(4, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(directory / "target")
    torch.manual_seed(5)
    with torch.no_grad():
        for _, weight in weights:
            weight.add_(torch.randn_like(weight) * weight.std() * 0.1)
    model.save_pretrained(directory / "draft")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(directory / "target" / name, directory / "draft" / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
