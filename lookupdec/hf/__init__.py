"""Lookup decoding with transformers: load a model, generate, stream, or stand in for its ``generate``."""

from lookupdec.hf.drop_in import custom_generate
from lookupdec.hf.generate import Chunk, Generation, eos_ids, generate, stream
from lookupdec.hf.loading import load
from lookupdec.hf.logprobs import TokenLogprob
from lookupdec.hf.many import generate_many
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.prefixes import PrefixCache
from lookupdec.hf.settings import Settings

__all__ = [
    "Chunk",
    "Generation",
    "LanguageModel",
    "PrefixCache",
    "Settings",
    "TokenLogprob",
    "custom_generate",
    "eos_ids",
    "generate",
    "generate_many",
    "load",
    "stream",
]
