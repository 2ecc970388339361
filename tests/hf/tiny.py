"""Tiny random models of many families, tiny tokenizers, and what plain decoding makes of them."""

from __future__ import annotations

import random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from lookupdec.hf import LanguageModel

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "vocab_size": 24,
    # Wide enough for outputs that do not repeat one token for ever.
    "initializer_range": 0.35,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "mistral": {"sliding_window": 8, "head_dim": 8},
    "gemma2": {"sliding_window": 8, "head_dim": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        "sliding_window": 8,
        "head_dim": 8,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
    },
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256},
    "phi": {"num_key_value_heads": 4},
    "bloom": {"n_head": 4, "n_layer": 3},
}


def tiny_model(family: str = "llama", seed: int = 0, **overrides: Any) -> Any:
    """Return a random model of a family, in evaluation mode; one seed, one model."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **(SHAPE | FAMILIES.get(family, {}) | overrides))
    auto: Any = AutoModelForCausalLM
    return auto.from_config(config).eval()


def plain(model: Any, prompt: list[int], **settings: Any) -> list[int]:
    """Return what plain ``model.generate`` gives."""
    ids = torch.tensor([prompt])
    output = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    return output[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


def wrap(model: Any) -> LanguageModel:
    """Return a model with a byte tokenizer, for tests that look at ids."""
    return LanguageModel(model, byte_tokenizer(), "tiny")


def random_prompt(seed: int, vocabulary: int = 24, longest: int = 40) -> list[int]:
    """Return ids with repeats in them."""
    chance = random.Random(seed)
    piece = [chance.randrange(vocabulary) for _ in range(chance.randint(2, longest // 3))]
    rest = [chance.randrange(vocabulary) for _ in range(chance.randint(1, longest // 3))]
    return piece + rest + piece


def byte_tokenizer() -> Any:
    """Return a tokenizer with one token a byte (ids 0 to 255), an end token 256 and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(tokenizer_models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    fast = fast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}"
        "{% if not loop.last %}{{ '\\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\\n[assistant]' }}{% endif %}"
    )
    return fast


def byte_fallback_tokenizer() -> Any:
    """Return a tokenizer as SentencePiece makes them: word starts marked, unknown characters as bytes."""
    words = ["▁", "▁Hello", "▁world", "a", "b", "é", "."]
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    vocabulary |= {word: 257 + index for index, word in enumerate(words)}
    tokenizer = Tokenizer(
        tokenizer_models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, unk_token="<unk>")
