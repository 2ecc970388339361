"""Whether passes over drafts are right on a model of a family that nobody has tried. Knows no request.

A KV cache says of itself whether it can be cut, which need not be so. It cannot say whether a model's code takes
several tokens after the first pass, or what else a model makes of those that were read together.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lookupdec.errors import UnsupportedCacheError, first_line
from lookupdec.hf.families import TESTED
from lookupdec.hf.network import inner_model, vocabulary_size
from lookupdec.hf.target import REMEDY, ModelTarget

_PROMPT_TOKENS, _TRIED_TOKENS = 20, 8
_WINDOW = 8  # what windows are narrowed to, so that a few tokens fill them
# The share of a row of logits that rounding may be.
_TOLERANCE = {torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.2}

_faults: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def check_drafts(model: Any, *, length: int) -> None:
    """Refuse a model whose passes over drafts are wrong in texts of ``length`` tokens, by name, before work starts.

    Families that are known cost nothing; any other model is tried once, in a dozen short passes.
    """
    inner = inner_model(model)
    window = selection_window(model)
    if window is not None and length > window:
        raise UnsupportedCacheError(
            f"{type(inner).__name__} chooses the keys it attends to in texts of more than {window} tokens, by a "
            f"ranking that passes over drafts upset: keep prompt and max_new_tokens ({length}) below, or use plain "
            "generate"
        )
    is_known = type(inner).__module__.startswith("transformers.")
    if is_known and inner.config.get_text_config(decoder=True).model_type in TESTED:
        return
    with _lock:
        if inner not in _faults:
            with torch.no_grad(), _narrow_windows(inner):
                _faults[inner] = _fault(model)
        fault = _faults[inner]
    if fault:
        raise UnsupportedCacheError(f"{type(inner).__name__} cannot check drafts ({fault}): {REMEDY}")


def selection_window(model: Any) -> int | None:
    """Return how long texts are at most for a model to attend to all keys, None where it always does.

    Doge ranks the keys beyond that. Equal ones are common, and which of them come first depends on how many are ranked.
    """
    window = getattr(model.config.get_text_config(decoder=True), "keep_window_size", None)
    return int(window) if window else None


class _LogitsOnly:
    """Stands for a chooser; the trial looks at logits and chooses nothing."""

    def __init__(self, ids: torch.Tensor) -> None:
        self.ids = ids
        self.length = ids.shape[1]

    def choices(self, logits: torch.Tensor) -> Iterator[int]:
        self.logits = logits.float()
        return iter([0])


def _fault(model: Any) -> str:
    """Compare tokens read alone with the same read after a draft that was wrong; say what is wrong, "" if nothing."""
    generator = torch.Generator().manual_seed(0)
    length = _PROMPT_TOKENS + _TRIED_TOKENS
    ids = torch.randint(0, vocabulary_size(model), (length,), generator=generator).tolist()
    prompt, rest = ids[:_PROMPT_TOKENS], ids[_PROMPT_TOKENS:]
    wrong = [(token + 1) % vocabulary_size(model) for token in rest[1:4]]
    try:
        expected = _read(model, prompt, [(token, []) for token in rest])
        found = _read(
            model, prompt, [(rest[0], wrong), (rest[1], rest[2:5]), (rest[5], rest[6:])], right=(0, 3, 2)
        )
    except Exception as error:  # whatever a model's own code raises on what it does not expect
        return f"a trial pass failed: {type(error).__name__}: {first_line(error)}"
    shares = (found - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=1e-30)
    # The median: a row whose experts were chosen at a near-tie may be another without any fault.
    share = float(shares.median())
    tolerance = _TOLERANCE.get(model.dtype, _TOLERANCE[torch.float32])
    return "" if share <= tolerance else f"logits after one differ by {share:.1%}"


def _read(
    model: Any, prompt: list[int], passes: list[tuple[int, list[int]]], right: tuple[int, ...] = ()
) -> torch.Tensor:
    """Return the logits of what stays, [tokens, vocabulary]: of each pass its token and what is right of its draft."""
    ids = torch.tensor([prompt], device=model.device)
    inputs = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=_TRIED_TOKENS,
        do_sample=False,
        num_beams=1,
        num_return_sequences=1,
        use_cache=True,
        cache_implementation=None,
        custom_generate=_hand_over,
    )
    chooser: Any = _LogitsOnly(ids)
    target = ModelTarget(model, inputs, chooser)
    target.start(prompt)
    kept = []
    for number, (token, draft) in enumerate(passes):
        stays = right[number] if right else 0
        target.step([token, *draft])
        kept.append(chooser.logits[: 1 + stays])
        target.rewind(len(draft) - stays)
    return torch.cat(kept)


def _hand_over(
    _model: Any,
    input_ids: torch.Tensor,  # noqa: ARG001
    *,
    logits_processor: Any,  # noqa: ARG001
    stopping_criteria: Any,  # noqa: ARG001
    generation_config: Any,  # noqa: ARG001
    **inputs: Any,
) -> dict[str, Any]:
    return inputs


@contextmanager
def _narrow_windows(model: Any) -> Iterator[None]:
    """Let windows of attention be as narrow as a trial is short; how long they are is no part of what is tried."""
    config = model.config.get_text_config(decoder=True)
    changed = [
        (owner, name, value)
        for owner in (config, *model.modules())
        for name, value in vars(owner).items()
        if ("window" in name or name == "index_topk") and type(value) is int and value > _WINDOW
    ]
    for owner, name, _ in changed:
        setattr(owner, name, _WINDOW)
    try:
        yield
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)
