"""Which passes a model makes: fixed widths over a static cache, or any width over a dynamic one. Knows no drafter.

``FixedPasses`` is made when a model is loaded; ``target_for`` is where a request gets its target.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import DynamicCache, PreTrainedModel

from lookupdec.errors import UnsupportedCacheError, first_line
from lookupdec.hf import bitwise, memory
from lookupdec.hf.choose import Chooser, lasting_tensors
from lookupdec.hf.draft_check import check_drafts, selection_window
from lookupdec.hf.fixed_target import FixedTarget
from lookupdec.hf.fixed_width import WIDTHS, Lane, Progress
from lookupdec.hf.network import CACHE_NAMES, parameters_of
from lookupdec.hf.pass_check import draft_dependence, static_difference
from lookupdec.hf.prefill import ResumableTarget
from lookupdec.hf.rope import rope_of
from lookupdec.hf.target import ModelTarget, check_model
from lookupdec.hf.watch import WatchedTarget, WidthWatch

if TYPE_CHECKING:
    from lookupdec.hf.generate import Prepared
    from lookupdec.hf.models import LanguageModel

Passes = Literal["auto", "dynamic", "fixed", "graphs"]
"""How passes run; see ``load``."""

ONE_WIDTH = 32
"""The width of every pass where the text must not depend on what was drafted."""

MEASURED_AT, TIMED_PASSES = 256, 5

_REMEDY = "use passes='dynamic'"
_ATTENTION = ("sdpa", "eager", bitwise.ATTENTION)
_log = logging.getLogger(__name__)


class FixedPasses:
    """Passes of fixed widths of one model: checked, on CUDA recorded as graphs, and timed.

    Parameters
    ----------
    context
        How many tokens prompt and output may have together; None is what the model allows and memory has room for.
    one_width
        Make every pass, plain decoding's included, ``ONE_WIDTH`` tokens wide and let attention see the whole
        cache, so that the text depends neither on whether nor on what was drafted. ``dependence`` says whether
        a test on the model found that to be so, and is empty where it did.
    fuse
        Let ``torch.compile`` fuse kernels before graphs are recorded (minutes for a large model, once); where
        that fails the graphs are recorded without. Ignored on a CPU.
    progress
        Told how far the recording is.

    Raises
    ------
    UnsupportedCacheError
        The model cannot run over a static cache, or its passes cannot be recorded.
    ModelError
        It does not fit into memory.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str = "the model",
        context: int | None = None,
        one_width: bool = False,
        fuse: bool = True,
        progress: Progress | None = None,
    ) -> None:
        check_fixed(model)
        check_drafts(model, length=0)
        self.model = model
        self.one_width = one_width
        self.widths: Sequence[int] = (ONE_WIDTH,) if one_width else WIDTHS
        self._longest = _longest_context(model)
        self._name = name
        self.room = self._room_that_fits(context)
        self._fuse, self._progress = fuse, progress
        self._free: list[Lane] = []
        self._lock = threading.Lock()
        with lasting_tensors():
            self._make_first_lane()

    def _make_first_lane(self) -> None:
        model, lane = self.model, self._new_lane()
        difference = static_difference(model, lane)
        if difference:
            raise UnsupportedCacheError(
                f"{type(model).__name__} gives other results over a static KV cache ({difference}): {_REMEDY}"
            )
        self._record(lane)
        self.dependence = draft_dependence(lane) if self.one_width else ""
        self._free.append(lane)

    def watched(self) -> WidthWatch:
        """Time a few passes of each width and return what follows them from here on."""
        with self._lock:
            lane = self._free.pop() if self._free else None
        lane = lane or self._another_lane()
        try:
            return WidthWatch(_seconds(lane))
        finally:
            self._free.append(lane)

    def target(
        self, chooser: Chooser, *, needed: int, prefill_chunk: int | None = None
    ) -> FixedTarget | None:
        """Return a target for a request that reads up to ``needed`` tokens.

        None where these are more than there is room for, or another request has the lane and a second one
        is not called for by ``one_width``. The lane comes back when the target is released, or dropped.
        """
        if needed > self.room:
            return None
        with self._lock:
            lane = self._free.pop() if self._free else None
        if lane is None:
            if not self.one_width:
                return None
            lane = self._another_lane()
        target = FixedTarget(lane, chooser, prefill_chunk=prefill_chunk)
        # Where the generation never begins, nobody ends it.
        target.release = weakref.finalize(target, self._free.append, lane)
        return target

    def _another_lane(self) -> Lane:
        self._room_that_fits(self.room)
        with lasting_tensors():
            lane = self._new_lane()
            lane.read(lane.forward.columns[:1], 0)  # allocates: not while it is recorded
            self._record(lane)
        return lane

    def _room_that_fits(self, asked: int | None) -> int:
        return memory.context_that_fits(
            self.model, self._name, asked=asked, longest=self._longest, padding=max(self.widths)
        )

    def _new_lane(self) -> Lane:
        return Lane(
            self.model,
            room=self.room,
            widths=self.widths,
            one_key_count=self.one_width,
            last_position=None if self._longest is None else self._longest - 1,
        )

    def _record(self, lane: Lane) -> None:
        if lane.device.type != "cuda":
            return
        if self._fuse:
            try:
                lane.capture(fuse=True, progress=self._progress)
                difference = static_difference(self.model, lane)
                if not difference:
                    return
                _log.warning("fused passes give other results (%s): recording them unfused", difference)
            except Exception as error:  # whatever a compiler or a driver raises
                _log.warning("torch.compile failed (%s): recording passes unfused", first_line(error))
            lane.forget_graphs()
            self._fuse = False
        try:
            lane.capture(fuse=False, progress=self._progress)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            lane.forget_graphs()
            raise UnsupportedCacheError(
                f"the passes of {type(self.model).__name__} cannot be recorded as CUDA graphs "
                f"({first_line(error)}): {_REMEDY}"
            ) from error


def target_for(model: LanguageModel, prepared: Prepared, chooser: Chooser, *, limit: int) -> ResumableTarget:
    """Return the target of one request: on fixed passes where the model has them and they have room."""
    passes, watch, chunk = model.passes, model.watch, prepared.config.prefill_chunk_size
    target: ResumableTarget | None = None
    if passes is not None:
        # The last token that is emitted is never read.
        needed = prepared.ids.shape[1] + limit - 1
        target = passes.target(chooser, needed=needed, prefill_chunk=chunk)
    if target is None:
        target = ModelTarget(model.model, prepared.inputs, chooser, prefill_chunk=chunk)
        check_drafts(model.model, length=prepared.ids.shape[1] + limit)
        # What fixed passes cost is not learnt from others.
        watch = watch if passes is None else None
    return target if watch is None else WatchedTarget(target, watch)


def check_fixed(model: PreTrainedModel) -> None:
    """Refuse, by name and with the remedy, what cannot run over a static cache of one device."""
    check_model(model)
    name = type(model).__name__
    devices = sorted({str(device) for device in (getattr(model, "hf_device_map", None) or {}).values()})
    if len(devices) > 1:
        raise UnsupportedCacheError(
            f"{name} is spread over several devices ({', '.join(devices)}), and fixed passes run on one: {_REMEDY}"
        )
    kinds = {type(layer).__name__ for layer in DynamicCache(config=model.config).layers} - {"DynamicLayer"}
    if kinds:
        raise UnsupportedCacheError(
            f"{name} keeps a {min(kinds)}, which a static KV cache cannot stand for: {_REMEDY}"
        )
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in _ATTENTION:
        raise UnsupportedCacheError(
            f"the attention of {name} is {attention}, which takes no mask of ours: load it with "
            f"attn_implementation='sdpa', or {_REMEDY}"
        )
    parameters = parameters_of(model)
    missing = {"attention_mask", "position_ids"} - parameters
    if missing or not parameters.intersection(CACHE_NAMES):
        lacking = min(missing, default="KV cache")
        raise UnsupportedCacheError(f"{name} takes no {lacking}, which fixed passes need: {_REMEDY}")


def _seconds(lane: Lane) -> dict[int, float]:
    """Return what a pass of each width takes, the wait for its answer included: the median of a few."""
    lane.clear()
    seconds: dict[int, float] = {}
    for width in lane.widths:
        position = min(MEASURED_AT, lane.room - width)
        taken = []
        for _ in range(TIMED_PASSES + 1):
            begun = perf_counter()
            lane.fetch(lane.run(max(position, 0), [0] * width).answer)
            taken.append(perf_counter() - begun)
        seconds[width] = median(taken[1:])
    return seconds


def _longest_context(model: PreTrainedModel) -> int | None:
    config: Any = model.config.get_text_config(decoder=True)
    rope = rope_of(model)
    # In longer texts positions turn otherwise, which padding must not bring about, or keys are chosen.
    ends = [getattr(config, "max_position_embeddings", None), rope and rope.shortest, selection_window(model)]
    return min((int(end) for end in ends if end), default=None)
