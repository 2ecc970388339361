"""Passes over several tokens in the arithmetic of one-token passes: exact decoding in half precision.

In bfloat16 a pass over a draft rounds differently from the passes over single tokens that plain decoding
makes, and now and then the likeliest token changes. ``prepare`` gives a model a second way to compute, used
only within ``one_token_arithmetic``: attention row by row, linear layers in ways known to be exact, all else
as it is. It tries the result on the model at hand, and says what it found. Knows no cache and no decoding.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lookupdec.hf import row_attention
from lookupdec.hf.network import attention_heads, cached_states, inner_model, read_with_cache, vocabulary_size
from lookupdec.hf.quick_linear import LINEAR
from lookupdec.hf.row_linear import LinearRule, RowLinear, find_rule

ATTENTION = "lookupdec"
"""The name under which the attention is registered; outside of ``one_token_arithmetic`` it is ``sdpa``."""

_PROMPT_TOKENS, _TRIED_TOKENS, _TRIED_WIDTHS = 24, 8, (2, 8, 40)


@dataclass(frozen=True, slots=True)
class RowInvariance:
    """What the self-test of a model found.

    ``exact``: a pass over several tokens gives, bit for bit, what one-token passes give; ``widths`` were
    tried on the model itself. ``linear`` says by shape how layers take many rows, ``attention`` how
    attention does. ``reason`` says why ``exact`` is False.
    """

    device: str
    dtype: str
    exact: bool
    attention: str
    linear: Mapping[str, str]
    widths: tuple[int, ...] = _TRIED_WIDTHS
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RowView:
    """The keys one row sees, ``start:end`` of those of the pass, and its mask as a one-token pass has it."""

    start: int
    end: int
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class RowViews:
    """Stands for the mask in an exact pass; ``are_plain`` where every row sees all keys up to its own."""

    rows: tuple[RowView, ...]
    are_plain: bool


class _Thread(threading.local):
    is_active = False


@dataclass(frozen=True, slots=True)
class _Prepared:
    report: RowInvariance
    tested: tuple[object, ...]  # what the report holds for


_thread = _Thread()
_prepared: weakref.WeakKeyDictionary[PreTrainedModel, _Prepared] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_log = logging.getLogger(__name__)


def prepare(model: PreTrainedModel) -> RowInvariance:
    """Make ``one_token_arithmetic`` work on this model if it can; return what the self-test found.

    Where it can, the model keeps the registered attention and linear layers that know both ways; its own
    ``generate`` computes what it did before. Where it cannot, the model is left as it was. The test takes a
    second or two; later calls cost nothing unless the model moved, got other layers, or runs on another
    number of threads.
    """
    model = inner_model(model)
    with _lock:
        prepared = _prepared.get(model)
        if prepared is None or prepared.tested != _circumstances(model):
            _remove(model)
            report = _install(model)
            prepared = _prepared[model] = _Prepared(report, _circumstances(model))
        return prepared.report


def renew(model: PreTrainedModel) -> None:
    """Look, once a generation, whether a prepared model was changed: given an adapter, moved, or other weights.

    It is then tested anew; where its passes are no longer exact, a warning says so once. Does nothing for a model that
    was never prepared.
    """
    model = inner_model(model)
    prepared = _prepared.get(model)
    if prepared is None:
        return
    report = prepare(model)
    if prepared.report.exact and not report.exact:
        _log.warning(
            "%s has changed and is no longer decoded bitwise: %s", type(model).__name__, report.reason
        )
    if report.exact:
        for layer in _linear_layers(model).values():
            if isinstance(layer.forward, RowLinear):
                layer.forward.renew()


@contextmanager
def one_token_arithmetic(model: PreTrainedModel) -> Iterator[None]:
    """Let passes of this thread within the block compute every token as a one-token pass would.

    Does nothing for a model that ``prepare`` did not find exact.
    """
    model = inner_model(model)
    prepared = _prepared.get(model)
    if prepared is not None and prepared.tested[0] != torch.get_num_threads():
        prepare(model)
        prepared = _prepared[model]
    with _active(prepared is not None and prepared.report.exact):
        yield


@contextmanager
def _active(value: bool) -> Iterator[None]:
    before, _thread.is_active = _thread.is_active, value
    try:
        yield
    finally:
        _thread.is_active = before


def _is_active() -> bool:
    return _thread.is_active


def _circumstances(model: PreTrainedModel) -> tuple[object, ...]:
    layers = tuple(map(id, _linear_layers(model).values()))
    return torch.get_num_threads(), model.dtype, model.device, model.config._attn_implementation, layers


def _install(model: PreTrainedModel) -> RowInvariance:
    rules = {name: find_rule(layer) for name, layer in _linear_layers(model).items()}
    reason = _why_not(model, rules)
    if not reason:
        AttentionInterface.register(ATTENTION, attention)
        AttentionMaskInterface.register(ATTENTION, row_views)
        model.set_attn_implementation(ATTENTION)
        for name, layer in _linear_layers(model).items():
            RowLinear(layer, rules[name], _is_active).install()
        reason = _difference(model)
        if reason:
            _remove(model)
    return RowInvariance(
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        exact=not reason,
        attention="rows share the keys" if _shares_keys(model) else "one call a row",
        linear={_shape(layer): str(rules[name]) for name, layer in _linear_layers(model).items()},
        reason=reason,
    )


def _remove(model: PreTrainedModel) -> None:
    if model.config._attn_implementation == ATTENTION:
        model.set_attn_implementation("sdpa")
    for layer in _linear_layers(model).values():
        if isinstance(layer.forward, RowLinear):
            layer.forward.remove()


def _linear_layers(model: PreTrainedModel) -> dict[str, torch.nn.Linear]:
    # Not of other subclasses: those compute in their own ways, which the trial passes judge.
    return {name: module for name, module in model.named_modules() if type(module) in LINEAR}


def _shape(layer: torch.nn.Linear) -> str:
    return f"{layer.in_features} to {layer.out_features}"


def _why_not(model: PreTrainedModel, rules: Mapping[str, LinearRule]) -> str:
    """Say what rules out exact passes before any is tried."""
    implementation = model.config._attn_implementation
    if implementation != "sdpa":
        return f"its attention is {implementation}, not sdpa"
    slow = sorted(name for name, rule in rules.items() if rule.width == 1)
    if slow:
        return f"{len(slow)} linear layers ({slow[0]} first) give other results for several rows than for one"
    return ""


def _shares_keys(model: PreTrainedModel) -> bool:
    kinds = set(attention_heads(model))
    usual = model.dtype == torch.bfloat16 and model.device.type == "cpu"
    return bool(kinds and usual) and all(
        row_attention.is_same_as_torch(heads.queries, heads.keys, heads.size, heads.size**-0.5)
        for heads in kinds
    )


@torch.no_grad()
def _difference(model: PreTrainedModel) -> str:
    """Compare passes over several tokens with one-token passes on the model; say where they differ."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, _PROMPT_TOKENS + max(_TRIED_WIDTHS))
    ids = torch.randint(0, vocabulary_size(model), shape, generator=generator)
    prompt, rest = ids.to(model.device).tensor_split([_PROMPT_TOKENS], dim=1)
    try:
        cache = read_with_cache(model, prompt, None)[1]
        singly = []
        for position in range(_TRIED_TOKENS):
            logits, cache = read_with_cache(model, rest[:, position : position + 1], cache)
            singly.append(logits[0, -1])
        expected = [torch.stack(singly), *cached_states(cache, _PROMPT_TOKENS, _TRIED_TOKENS)]
        for width in _TRIED_WIDTHS:
            cache = read_with_cache(model, prompt, None)[1]
            with _active(True):
                logits, cache = read_with_cache(model, rest[:, :width], cache)
            found = [logits[0, :_TRIED_TOKENS], *cached_states(cache, _PROMPT_TOKENS, _TRIED_TOKENS)]
            rows = min(width, _TRIED_TOKENS)
            if not all(
                torch.equal(one[:rows], other[:rows]) for one, other in zip(expected, found, strict=True)
            ):
                return f"a pass over {width} tokens gives other results than passes over one"
    except Exception as error:  # whatever a model's own code raises on what it does not expect
        return f"a trial pass failed: {type(error).__name__}: {error}"
    return ""


def row_views(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    **options: Any,
) -> torch.Tensor | RowViews | None:
    """Make the mask as ``sdpa`` does or, for an exact pass over several tokens, the view of every row."""
    options |= {"batch_size": batch_size, "local_size": local_size}
    if not _is_active() or q_length == 1 or batch_size != 1:
        return sdpa_mask(
            q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            attention_mask=attention_mask, **options,
        )  # fmt: skip
    views = []
    for row in range(q_length):
        # What the cache would give a one-token pass: all keys so far, or the window's.
        length = q_offset + row + 1
        n_seen = length if local_size is None else min(length, local_size)
        mask = sdpa_mask(
            q_length=1, kv_length=n_seen, q_offset=length - 1, kv_offset=length - n_seen,
            attention_mask=None if attention_mask is None else attention_mask[:, :length], **options,
        )  # fmt: skip
        views.append(RowView(length - n_seen - kv_offset, length - kv_offset, mask))
    are_plain = all(view.start == 0 and view.mask is None for view in views)
    return RowViews(tuple(views), are_plain)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | RowViews | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as ``sdpa`` does or, within an exact pass, let each row attend as a one-token pass would.

    ``query`` is ``[1, heads, rows, head]``, ``key`` and ``value`` ``[1, key heads, keys, head]``.
    """
    if isinstance(attention_mask, RowViews):
        views, are_plain = attention_mask.rows, attention_mask.are_plain
    elif _is_active() and query.shape[2] == 1:
        views, are_plain = (RowView(0, key.shape[2], attention_mask),), attention_mask is None
    else:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if are_plain and views[-1].end == key.shape[2] and _kernel_is_exact(query, key, value, scale):
        return row_attention.attend(query, key, value, scale), None
    outputs = [
        sdpa_attention_forward(
            module,
            query[:, :, row : row + 1],
            key[:, :, view.start : view.end],
            value[:, :, view.start : view.end],
            view.mask,
            scaling=scaling,
            **options,
        )[0]
        for row, view in enumerate(views)
    ]
    return torch.cat(outputs, dim=1), None


def _kernel_is_exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> bool:
    return row_attention.fits(query, value) and row_attention.is_same_as_torch(
        query.shape[1], key.shape[1], query.shape[-1], scale
    )
