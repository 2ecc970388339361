"""Exact lookup drafting for language models: copy what repeats, let the target check it in one pass.

The two doors are ``lookupdec.hf`` (a transformers model) and ``lookupdec.edit`` (files and pipelines); what is
exported here is for those who drive the parts themselves. Names are loaded when they are first asked for, so that
importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lookupdec.cache import RollingCache
    from lookupdec.decode import Drafter, PlainDrafter, Target
    from lookupdec.draft import CopyDrafter
    from lookupdec.errors import LookupDecError
    from lookupdec.ids import Reference
    from lookupdec.index import SuffixIndex
    from lookupdec.phrases import PhraseBook
    from lookupdec.policy import CostModel, SurvivalModel

    __version__: str

__all__ = [
    "CopyDrafter",
    "CostModel",
    "Drafter",
    "LookupDecError",
    "PhraseBook",
    "PlainDrafter",
    "Reference",
    "RollingCache",
    "SuffixIndex",
    "SurvivalModel",
    "Target",
]

_HOMES = {
    "CopyDrafter": "draft",
    "CostModel": "policy",
    "Drafter": "decode",
    "LookupDecError": "errors",
    "PhraseBook": "phrases",
    "PlainDrafter": "decode",
    "Reference": "ids",
    "RollingCache": "cache",
    "SuffixIndex": "index",
    "SurvivalModel": "policy",
    "Target": "decode",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from lookupdec.installed import own_version

        return own_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'lookupdec' has no attribute {name!r}")
    return getattr(import_module(f"lookupdec.{_HOMES[name]}"), name)
