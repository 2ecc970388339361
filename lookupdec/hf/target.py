"""A transformers model as the loop's target, over a dynamic KV cache. Knows no text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, QuantizedLayer

from lookupdec.errors import InputError, UnsupportedCacheError
from lookupdec.hf.bitwise import one_token_arithmetic, renew
from lookupdec.hf.choose import Chooser
from lookupdec.hf.network import CACHE_NAMES, vocabulary_size
from lookupdec.hf.prefixes import States
from lookupdec.hf.quick_linear import quick_passes
from lookupdec.hf.rope import rope_of, turn_of
from lookupdec.ids import Ids

REMEDY = "use a model with plain or sliding-window attention and a dynamic cache, or plain generate"
_KNOWN_INPUTS = {*CACHE_NAMES, "attention_mask", "position_ids", "use_cache", "logits_to_keep"}


class ModelTarget:
    """One generation on one model: its KV cache, its positions and its chooser.

    ``inputs`` are the model inputs that ``generate`` of transformers prepared for the prompt, the cache among
    them under the name this version of transformers gives it. ``prefill_chunk`` is how many tokens of the
    prompt one pass reads; None reads it in one. ``mask_length`` is how long the mask was, where transformers took it
    out of the inputs because it hid nothing.

    Raises ``UnsupportedCacheError`` where the cache cannot be rolled back, and ``InputError`` for model
    inputs other than text.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Any],
        chooser: Chooser,
        *,
        prefill_chunk: int | None = None,
        mask_length: int | None = None,
    ) -> None:
        check_model(model)
        check_inputs(inputs)
        self.cache_name = next((name for name in CACHE_NAMES if name in inputs), CACHE_NAMES[0])
        check_cache(inputs.get(self.cache_name), model)
        self.cache: Any = inputs[self.cache_name]
        # Any: the types of transformers say that every attribute of a module may be a tensor.
        self._model: Any = model
        self._vocabulary = vocabulary_size(model)
        self._chooser = chooser
        self._mask: torch.Tensor | None = inputs.get("attention_mask")
        self._mask_length = mask_length if self._mask is None else self._mask.shape[1]
        self._positions: torch.Tensor | None = inputs.get("position_ids")
        self._is_resumed = False
        self._keeps_logits = "logits_to_keep" in inputs
        self._prefill_chunk = prefill_chunk
        self._first_logits: torch.Tensor | None = None
        self._rope = rope_of(model)
        self._turn = turn_of(model, self._rope)
        self._prompt_positions = self._positions
        self._unread = 0  # ids at the end of the last draft that no pass has read
        self._before_step: tuple[int, int] | None = None  # ids in the cache, ids chosen
        renew(model)

    def resume(self, states: States) -> None:
        """Fill the empty cache with the states of the prompt's beginning, which is not read again."""
        self._is_resumed = bool(states)
        for number, (keys, values) in enumerate(states):
            self.cache.update(keys, values, number)

    def states(self) -> States:
        """Return what the cache holds; empty where its layers keep less than all positions, or rotated otherwise."""
        if any(type(layer) is not DynamicLayer or not layer.is_initialized for layer in self.cache.layers):
            return ()
        if self._rope is not None and self.cache.get_seq_length() > self._rope.shortest:
            return ()
        return [(layer.keys, layer.values) for layer in self.cache.layers]

    def start(self, prompt: Ids) -> int:
        """Read the prompt, in one pass or in the chunks asked for, and return the first choice."""
        for _ in self.prefill(prompt):
            pass
        assert self._first_logits is not None
        return next(self._chooser.choices(self._first_logits))

    def prefill(self, prompt: Ids) -> Iterator[None]:
        """Read the prompt, pausing between its chunks; ``start`` then has nothing left to read."""
        if self._first_logits is not None:
            return
        text = torch.tensor([[int(token) for token in prompt]], device=self._model.device)
        already_read, ids = self.cache.get_seq_length(), text
        # The cache may hold the beginning of these ids, or what comes before them.
        if already_read and (self._is_resumed or self._is_whole_text(text.shape[1])):
            ids = text[:, already_read:]
        mask, positions, unread = self._mask, self._positions, ids.shape[1]
        if self._rope is not None and self._prefill_chunk is None:
            # All of it, as plain decoding hands it over: such a model may look at its length.
            self._first_logits = self._forward(text, count=unread, rows=1, is_first=True)
            self._keep_last_position(0)
            return
        for chunk in torch.split(ids, self._prefill_chunk or unread, dim=-1):
            # Counted from the end: both may begin with what the caller's cache holds.
            unread -= chunk.shape[1]
            if mask is not None:
                self._mask = mask[:, : mask.shape[1] - unread]
            if positions is not None:
                end = positions.shape[-1] - unread
                self._positions = positions[..., end - chunk.shape[1] : end]
            logits = self._forward(chunk, count=chunk.shape[1], rows=1, is_first=True)
            if unread:
                yield
        self._keep_last_position(0)
        self._first_logits = logits

    def _is_whole_text(self, count: int) -> bool:
        # As transformers tells it: a mask is of all that was read and is to be read.
        if self._mask_length is not None:
            return self._mask_length == count
        return self._positions is None or self._positions.shape[-1] == count

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        """Read ``ids``, in one pass where the model's positions allow it, and give the choice after each."""
        self._before_step = self.cache.get_seq_length(), self._chooser.length
        count = len(ids) if self._rope is None else self._width(len(ids))
        logits = self._read(ids[:count])
        if count == len(ids):
            return self._chooser.choices(logits)
        self._unread = len(ids) - count
        return self._choices(ids, logits)

    def _choices(self, ids: Sequence[int], logits: torch.Tensor) -> Iterator[int]:
        """Give the choices of a draft in pieces: each is read only when everything before it was accepted."""
        yield from self._chooser.choices(logits)
        while self._unread:
            rest = ids[-self._unread :]
            piece = rest[: self._width(len(rest))]
            logits = self._read(piece)
            self._unread -= len(piece)
            yield from self._chooser.choices(logits)

    def _width(self, count: int) -> int:
        """Return how many of ``count`` ids the next pass may read."""
        assert self._rope is not None
        read = self._text_read()
        if read in self._rope.lengths:
            return 1
        position = self.cache.get_seq_length() if self._positions is None else int(self._positions.max()) + 1
        return min(self._rope.width(read, count), self._rope.width(position, count))

    def _text_read(self) -> int:
        # The last choice is the first id of the next pass.
        return self._chooser.length - 1

    def _read(self, ids: Sequence[int]) -> torch.Tensor:
        # [ids, vocabulary]: the logits of one pass.
        # Sliding-window layers drop what leaves the window unless they are told that a rollback may come. Not
        # before the prefill: they would keep the whole prompt.
        self.cache.activate_past_recording()
        rows = len(ids)
        # A draft may hold ids that are no tokens of this model. They are never chosen, so what stands for
        # them is never kept.
        known = [token if 0 <= token < self._vocabulary else 0 for token in ids]
        batch = torch.tensor([known], device=self._model.device)
        if self._positions is not None:
            self._positions = self._positions + torch.arange(1, rows + 1, device=self._positions.device)
        if self._mask is not None:
            self._mask = torch.cat([self._mask, self._mask.new_ones((1, rows))], dim=-1)
        if self._rope is not None and self._text_read() in self._rope.lengths:
            logits = self._cross()
        else:
            with one_token_arithmetic(self._model):
                logits = self._forward(batch, count=rows, rows=rows, is_first=False)
        self._keep_last_position(0)
        return logits

    def _cross(self) -> torch.Tensor:
        """Read the token beyond a length of the rope; some models then read the whole text anew, so they get all."""
        text = self._chooser.ids.to(self._model.device)
        asked = self._prompt_positions
        if asked is not None and self._positions is not None:
            last, steps = asked[..., -1:], torch.arange(1, text.shape[1] + 1, device=asked.device)
            self._positions = torch.cat(
                [asked, last + steps[: int(self._positions.max() - last.max())]], dim=-1
            )
        return self._forward(text, count=1, rows=1, is_first=False)

    def rewind(self, count: int) -> None:
        """Take the last ``count`` ids out of the cache."""
        count, self._unread = count - self._unread, 0
        if count:
            self.cache.crop(-count)
            self._keep_last_position(count)
            if self._mask is not None:
                self._mask = self._mask[:, :-count]
        else:
            _shrink_to_window(self.cache)

    def _keep_last_position(self, back: int) -> None:
        # Some models count positions in several dimensions: [..., ids].
        if self._positions is not None:
            self._positions = self._positions[..., -1:] - back

    def finish(self) -> None:
        """Leave the cache as plain decoding would, also where a callback raised amid a draft.

        It holds what was accepted, and nothing is recorded for a rollback any more.
        """
        if self._before_step is not None:
            read, chosen = self._before_step
            keep = read + self._chooser.length - chosen + self._chooser.is_choosing
            for layer in self.cache.layers:
                if (extra := layer.get_seq_length() - keep) > 0:
                    layer.crop(-extra)
        _shrink_to_window(self.cache)
        for layer in self.cache.layers:
            if hasattr(layer, "record_past"):
                layer.record_past = False

    def release(self) -> None:
        """Do nothing: the cache is the caller's."""

    @torch.no_grad()
    def _forward(self, ids: torch.Tensor, *, count: int, rows: int, is_first: bool) -> torch.Tensor:
        # [rows, vocabulary]: the logits of the last `rows` ids, of which `count` are new.
        extra: dict[str, Any] = {
            self.cache_name: self.cache,
            "attention_mask": self._mask,
            "use_cache": True,
        }
        if self._positions is not None:
            extra["position_ids"] = self._positions
        if self._keeps_logits:
            extra["logits_to_keep"] = rows
        inputs = self._model.prepare_inputs_for_generation(
            ids, next_sequence_length=count, is_first_iteration=is_first, **extra
        )
        with quick_passes(), self._turn:
            output = self._model(**inputs, return_dict=True)
        if inputs.get(self.cache_name) is None:
            # The model has begun anew, its rotary positions being others from here on.
            self.cache = output[self.cache_name]
        # A cache that builds its layers as it goes shows only now what they are.
        check_cache(self.cache, self._model)
        logits: torch.Tensor = output.logits
        return logits[0, -rows:]


def check_model(model: PreTrainedModel) -> None:
    """Refuse models whose decoding is not one growing text."""
    if model.config.is_encoder_decoder:
        raise UnsupportedCacheError(f"{type(model).__name__} is an encoder-decoder model: {REMEDY}")
    # peft lends a model its own way of preparing inputs while it generates.
    owner: Any = getattr(model.prepare_inputs_for_generation, "__self__", model)
    adapter: Any = getattr(owner, "active_peft_config", None)
    if getattr(adapter, "is_prompt_learning", False):
        raise UnsupportedCacheError(
            f"{type(adapter).__name__} of peft puts tokens before the prompt that are no text: use an adapter "
            "that changes weights, such as LoRA, or plain generate"
        )


def check_inputs(inputs: Mapping[str, Any]) -> None:
    """Refuse model inputs other than text."""
    unknown = sorted(
        name for name, value in inputs.items() if value is not None and name not in _KNOWN_INPUTS
    )
    if unknown:
        raise InputError(f"lookup decoding takes text only: leave out {', '.join(unknown)}")


def is_ids_alone(ids: torch.Tensor, inputs: Mapping[str, Any]) -> bool:
    """Whether model inputs say no more than ``ids`` ``[1, n]``: nothing was read, hidden or moved."""
    cache = next((inputs[name] for name in CACHE_NAMES if inputs.get(name) is not None), None)
    mask, positions, count = inputs.get("attention_mask"), inputs.get("position_ids"), ids.shape[1]
    if cache is not None and not (isinstance(cache, Cache) and int(cache.get_seq_length()) == 0):
        return False
    if mask is not None and not (mask.shape == (1, count) and bool(mask.all())):
        return False
    usual = torch.arange(count)[None]
    return positions is None or (positions.shape == usual.shape and bool((positions.cpu() == usual).all()))


def check_cache(cache: Any, model: PreTrainedModel) -> None:
    """Refuse a cache that cannot give back what it has read, by name and with the remedy."""
    if cache is None:
        raise UnsupportedCacheError(f"{type(model).__name__} was given no KV cache: {REMEDY}")
    if not isinstance(cache, Cache) or not hasattr(cache, "layers"):
        raise UnsupportedCacheError(
            f"{type(cache).__name__} of {type(model).__name__} cannot be rolled back: {REMEDY}"
        )
    for layer in cache.layers:
        if not _can_roll_back(layer):
            names = f"{type(layer).__name__} in the cache of {type(model).__name__}"
            raise UnsupportedCacheError(f"{names} cannot be rolled back: {REMEDY}")
    if getattr(cache, "offloading", False) and model.device.type == "cpu":
        raise UnsupportedCacheError(
            f"an offloaded {type(cache).__name__} needs a CUDA device: leave out cache_implementation"
        )
    if cache.is_compileable:
        raise UnsupportedCacheError(f"{type(cache).__name__} is static and cannot be rolled back: {REMEDY}")


def _can_roll_back(layer: Any) -> bool:
    # Before transformers 5.24 it inherits the claim, but cropping does not reach what it has quantised.
    if isinstance(layer, QuantizedLayer):
        return False
    if hasattr(layer, "is_croppable"):
        return bool(layer.is_croppable)
    # transformers 5.16 does not say.
    return type(layer) in (DynamicLayer, DynamicSlidingWindowLayer)


def _shrink_to_window(cache: Any) -> None:
    # Layers that record the past keep growing until they are cropped, and cropping by nothing shrinks them to
    # their window. For a whole cache `crop(0)` is a trap: it has meant "to length 0".
    for layer in cache.layers:
        if getattr(layer, "record_past", False) and layer.get_seq_length() >= layer.sliding_window:
            layer.crop(0)
