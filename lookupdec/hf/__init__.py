"""Lookup decoding with transformers: load a model, generate, stream, or stand in for its ``generate``."""

from lookupdec.hf.generate import Chunk, Generation, custom_generate, generate, stream
from lookupdec.hf.models import LanguageModel, load
from lookupdec.hf.settings import Settings

__all__ = [
    "Chunk",
    "Generation",
    "LanguageModel",
    "Settings",
    "custom_generate",
    "generate",
    "load",
    "stream",
]
