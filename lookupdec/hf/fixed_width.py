"""Passes of fixed widths over a static KV cache: nothing is allocated, and on CUDA nothing is launched one by one.

A pass reads ids padded to the next width. Its positions, its mask, its choices and how many of them agree with
the draft are computed on the device from one input tensor, and one answer tensor is copied back. On CUDA each
pair of a width and a number of visible keys is one CUDA graph, over kernels fused by ``torch.compile`` where that
works. On a CPU the same function runs as it is. Knows no drafter and no request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from lookupdec.hf.fixed_cache import FixedCache
from lookupdec.hf.network import CACHE_NAMES, parameters_of, vocabulary_size
from lookupdec.hf.prefixes import States
from lookupdec.hf.rope import rope_of, turn_of

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Tokens of a pass, the one before the draft included."""
SHORTEST_KEYS = 1024
"""The fewest keys that attention of a pass is computed over; then twice as many, and so on."""
PREFILL_CHUNK = 2048
"""Tokens of the prompt that one pass reads where the request says nothing."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many parts of it are done, and how many there are."""

_PADDING = -1  # no token: a choice never equals it
_ROUNDED = 128  # keys: kernels of attention want rows of the mask aligned


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass left on the device, until the lane's next pass.

    ``logits`` is [width, vocabulary], ``sought`` [width] int64 the ids that were read with -1 for padding and
    unknown ids, ``answer`` [1 + width] int64: how many greedy choices in a row agree with the draft, and all of them.
    """

    logits: torch.Tensor
    sought: torch.Tensor
    answer: torch.Tensor


class Forward:
    """What a pass computes, as a function of tensors, with no wait for the device in it."""

    def __init__(
        self, model: PreTrainedModel, cache: FixedCache, length: int, last_position: int | None
    ) -> None:
        self._model: Any = model
        self._cache = cache
        parameters = parameters_of(model)
        self._cache_name = next(name for name in CACHE_NAMES if name in parameters)
        self._keeps_logits = "logits_to_keep" in parameters
        self._last_position = last_position
        # More than are ever visible: the whole of a tensor is another program to a compiler than a part of it.
        self.columns = torch.arange(length, device=model.device)

    def __call__(self, inputs: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits and the answer of a pass; ``inputs`` is [1 + width] int64: the position, the ids."""
        sought = inputs[1:]
        positions = inputs[:1] + self.columns[: sought.shape[0]]
        logits = self.logits(sought.clamp(min=0), positions, columns)
        choices = logits.argmax(dim=-1)
        return logits, answer_of(choices, sought)

    def logits(
        self, ids: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor, *, last_only: bool = False
    ) -> torch.Tensor:
        """Return [rows, vocabulary] of a pass that writes at ``positions`` and sees the keys ``columns``."""
        sees = columns <= positions[:, None]
        hidden = torch.finfo(self._model.dtype).min
        mask = torch.zeros_like(sees, dtype=self._model.dtype).masked_fill(~sees, hidden)
        place = self._cache.place
        place.positions, place.visible = positions, columns.shape[0]
        if self._last_position is not None:
            # Padding may stand beyond the last position that the model knows.
            positions = positions.clamp(max=self._last_position)
        options: dict[str, Any] = {self._cache_name: self._cache}
        if last_only and self._keeps_logits:
            options["logits_to_keep"] = 1
        output = self._model(
            input_ids=ids[None],
            attention_mask=mask[None, None],
            position_ids=positions[None],
            use_cache=True,
            return_dict=True,
            **options,
        )
        logits: torch.Tensor = output.logits[0]
        return logits[-1:] if last_only else logits


def answer_of(choices: torch.Tensor, sought: torch.Tensor) -> torch.Tensor:
    """Return [1 + rows]: how many choices in a row equal the next id sought, and the choices."""
    # Without slices of rows - 1: a compiler would make a program of its own for that being 1.
    agrees = choices == sought.roll(-1)
    agrees[-1:].fill_(False)
    return torch.cat([agrees.long().cumprod(dim=0).sum(dim=0, keepdim=True), choices])


@dataclass(slots=True)
class _Buffers:
    """The inputs of one width, on the device and, pinned where there is a GPU, on the host.

    ``copied`` tells when those of the host have been read, where that is not so at once.
    """

    inputs: torch.Tensor
    host_inputs: torch.Tensor
    view: npt.NDArray[np.int64]
    copied: torch.cuda.Event | None = None

    @classmethod
    def new(cls, width: int, device: torch.device) -> _Buffers:
        host = torch.full((1 + width,), _PADDING, dtype=torch.int64, pin_memory=device.type == "cuda")
        host[0] = 0
        copied = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        return cls(host.to(device, copy=True), host, host.numpy(), copied)

    def write(self, position: int, ids: Sequence[int]) -> None:
        """Send the inputs of a pass to the device, those of the last pass having arrived there."""
        if self.copied is not None:
            self.copied.synchronize()
        self.view[0] = position
        self.view[1 : 1 + len(ids)] = ids
        self.view[1 + len(ids) :] = _PADDING
        self.inputs.copy_(self.host_inputs, non_blocking=True)
        if self.copied is not None:
            self.copied.record(torch.cuda.current_stream(self.inputs.device))


class Lane:
    """A static cache with the buffers and graphs of its passes. Serves one request at a time.

    Parameters
    ----------
    room
        How many tokens may be read.
    widths
        Rising; a pass takes the first one that is wide enough.
    one_key_count
        Let attention see the whole cache in every pass, so that its arithmetic does not depend on the position.
    last_position
        The last one that the model knows; padding may stand beyond it. None where there is none.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        room: int,
        widths: Sequence[int] = WIDTHS,
        one_key_count: bool = False,
        last_position: int | None = None,
    ) -> None:
        self.model = model
        self.device = torch.device(model.device)
        self.room = room
        self.widths = tuple(widths)
        self._vocabulary = vocabulary_size(model)
        length = length_for(room, self.widths)
        self.key_counts = (_rounded(room),) if one_key_count else _key_counts(room)
        self.cache = FixedCache(model.config.get_text_config(decoder=True).num_hidden_layers, length)
        self.forward = Forward(model, self.cache, length, last_position)
        self._buffers = {width: _Buffers.new(width, self.device) for width in self.widths}
        self._answer = torch.zeros(
            1 + self.widths[-1], dtype=torch.int64, pin_memory=self.device.type == "cuda"
        )
        self._logits: torch.Tensor | None = None  # of the widest pass, where there are graphs
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Outcome]] = {}
        self._written = 0
        self._turn = turn_of(model, rope_of(model))

    def width_for(self, count: int) -> int:
        """Return the width of a pass that reads ``count`` ids."""
        return next(width for width in self.widths if width >= count)

    def keys_for(self, count: int) -> int:
        """Return how many keys are visible where ``count`` tokens are read."""
        return next(keys for keys in self.key_counts if keys >= count)

    @torch.no_grad()
    def clear(self) -> None:
        """Forget what the last request left."""
        self.cache.clear(self._written)
        self._written = 0

    @torch.no_grad()
    def restore(self, states: States) -> None:
        """Put in what an earlier request had read, from position 0."""
        if states:
            self.cache.restore(states)
            self._written = states[0][0].shape[2]

    @torch.no_grad()
    def read(self, ids: torch.Tensor, position: int) -> torch.Tensor:
        """Read a part of a prompt, [count] int64 on the device; return its last logits, [1, vocabulary]."""
        end = position + len(ids)
        columns = self.forward.columns
        self._written = end
        with self._turn:
            return self.forward.logits(
                ids, columns[position:end], columns[: self.keys_for(end)], last_only=True
            )

    @torch.no_grad()
    def run(self, position: int, ids: Sequence[int]) -> Outcome:
        """Read ``ids`` at ``position`` and the ones after it; the answer is still on its way."""
        width = self.width_for(len(ids))
        known = [token if 0 <= token < self._vocabulary else _PADDING for token in ids]
        self._buffers[width].write(position, known)
        self._written = max(self._written, position + width)
        keys = self.keys_for(position + len(ids))
        captured = self._graphs.get((width, keys))
        with self._turn:
            if captured is None:
                return self._compute(self.forward, width, keys)
            graph, outcome = captured
            graph.replay()
            return outcome

    def fetch(self, answer: torch.Tensor) -> list[int]:
        """Return an answer: the one place where a pass waits for the device."""
        if self.device.type != "cuda":
            return answer.tolist()
        host = self._answer[: len(answer)]
        host.copy_(answer, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(self.device))
        arrived.synchronize()
        return host.tolist()

    def _compute(self, function: Callable[..., Any], width: int, keys: int) -> Outcome:
        inputs = self._buffers[width].inputs
        logits, answer = function(inputs, self.forward.columns[:keys])
        return Outcome(logits, inputs[1:], answer)

    @torch.no_grad()
    def capture(self, *, fuse: bool, progress: Progress | None = None) -> None:
        """Make a CUDA graph of every pass; ``fuse`` lets ``torch.compile`` fuse its kernels first."""
        function: Callable[..., Any] = torch.compile(self.forward, dynamic=True) if fuse else self.forward
        # The largest first: what it needs serves the others.
        shapes = [(width, keys) for keys in reversed(self.key_counts) for width in reversed(self.widths)]
        pool: Any = None
        self._logits = None
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            for number, (width, keys) in enumerate(shapes):
                if progress is not None:
                    progress("compiling passes" if fuse else "recording passes", number, len(shapes))
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(2):
                        self._compute(function, width, keys)
                torch.cuda.current_stream().wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    outcome = self._kept(self._compute(function, width, keys))
                pool = graph.pool() if pool is None else pool
                self._graphs[width, keys] = (graph, outcome)
        self._written = max(self.widths)
        if progress is not None:
            progress("recording passes", len(shapes), len(shapes))

    def _kept(self, outcome: Outcome) -> Outcome:
        # One place for the logits of all graphs: for each its own would be hundreds of megabytes.
        if self._logits is None:
            self._logits = torch.empty_like(outcome.logits)
        return Outcome(
            self._logits[: len(outcome.logits)].copy_(outcome.logits), outcome.sought, outcome.answer
        )

    def forget_graphs(self) -> None:
        """Run passes as they are again."""
        self._graphs.clear()


def length_for(room: int, widths: Sequence[int]) -> int:
    """Return how many positions a cache has for ``room`` tokens and the padding of a pass after the last."""
    return _rounded(room) + _rounded(max(widths))


def _rounded(count: int) -> int:
    return -(-count // _ROUNDED) * _ROUNDED


def _key_counts(room: int) -> tuple[int, ...]:
    counts, keys = [], SHORTEST_KEYS
    while keys < room:
        counts.append(keys)
        keys *= 2
    return (*counts, _rounded(room))
