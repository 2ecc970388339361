"""Logits to choices: the likeliest token or a draw. Knows no model, no KV cache and no draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from transformers import (
    EpsilonLogitsWarper,
    LogitsProcessor,
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)


class Recorder(Protocol):
    """Watches the choices, once per emitted token and in order; all tensors are ``[1, vocabulary]`` float32."""

    def see_logits(self, logits: torch.Tensor) -> None:
        """Take what the model gave. Processors may work in place afterwards: copy what is to be kept."""
        ...

    def see_choice(self, scores: torch.Tensor, token: int) -> None:
        """Take what the processors made of it, and the choice."""
        ...


@dataclass(slots=True)
class Record:
    """Scores and raw logits of every emitted token, each ``[1, vocabulary]`` float32, where asked for."""

    keep_scores: bool = False
    keep_logits: bool = False
    scores: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)

    def see_logits(self, logits: torch.Tensor) -> None:
        """Keep a copy where logits are asked for."""
        if self.keep_logits:
            self.logits.append(logits.clone())

    def see_choice(self, scores: torch.Tensor, token: int) -> None:  # noqa: ARG002
        """Keep the scores where they are asked for."""
        if self.keep_scores:
            self.scores.append(scores)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """The choices of a whole pass, made before it is known how many of them are reached.

    ``tokens`` is [rows] int64 on the device. ``states`` are those of the random numbers after each draw.
    """

    tokens: torch.Tensor
    states: tuple[torch.Tensor, ...] = ()


class Chooser:
    """Chooses tokens from logits as ``generate`` does, one at a time and only where it is asked to.

    ``processors`` see exactly the emitted prefix, prompt included, once per emitted token. ``generator=None``
    draws from torch's global random numbers.
    """

    def __init__(
        self,
        prompt: torch.Tensor,
        processors: LogitsProcessorList,
        *,
        limit: int,
        sample: bool,
        generator: torch.Generator | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._processors = processors
        self._sample = sample
        self._generator = generator
        self._recorder = recorder
        self._length = prompt.shape[-1]
        with lasting_tensors():
            self._ids = prompt.new_zeros((1, self._length + limit))
            self._ids[:, : self._length] = prompt
        self._unwritten: list[int] = []
        self.is_choosing = False
        """Whether a choice was asked for and has not been made: so it stays where a processor raises."""

    @property
    def length(self) -> int:
        """How many ids there are, prompt and choices."""
        return self._length + len(self._unwritten)

    @property
    def ids(self) -> torch.Tensor:
        """Prompt and every choice made so far, ``[1, length]``; a view that later choices do not change."""
        if self._unwritten:
            end = self._length + len(self._unwritten)
            self._ids[0, self._length : end] = sent(self._unwritten, self._ids.device)
            self._length = end
            self._unwritten.clear()
        return self._ids[:, : self._length]

    @property
    def takes_likeliest(self) -> bool:
        """Whether every choice is the likeliest token, whatever came before, and nobody watches."""
        return not (self._sample or self._processors or self._recorder is not None)

    def choices(self, logits: torch.Tensor) -> Iterator[int]:
        """Yield the choice at every row of ``logits``, ``[rows, vocabulary]``, lazily."""
        chosen: Iterator[int]
        if not self.takes_likeliest:
            chosen = (self._choose(logits[i : i + 1]) for i in range(len(logits)))
        else:
            # One reduction and one transfer for the whole pass: nothing here depends on what came before.
            chosen = iter(logits.argmax(dim=-1).tolist())
        for token in chosen:
            self._unwritten.append(token)
            yield token

    @torch.no_grad()
    def at_once(self, logits: torch.Tensor, draft: torch.Tensor) -> AtOnce | None:
        """Make the choice of every row as if all of ``draft`` came, without waiting for the device.

        ``draft`` is [drafted] int64 on the device. Of more rows of ``logits`` than the 1 + drafted that are chosen
        from, the rest is processed with them where processors look at one row: arithmetic may depend on how many
        there are, and so does not depend on the draft. The draws are those that ``choices`` would make; ``told``
        sets the random numbers back to where the last choice that is taken leaves them. None where choices must
        be made one at a time: for a recorder, and for processors that are not known to have no memory.
        """
        kinds = {type(processor) for processor in self._processors}
        if self._recorder is not None or not kinds <= _MEMORYLESS:
            return None
        rows = 1 + len(draft)
        is_row_wise = kinds <= _ROW_WISE
        kept = logits if is_row_wise else logits[:rows]
        raw = kept.to(device=self._ids.device, dtype=torch.float32, copy=True)
        if is_row_wise:
            scores: torch.Tensor = self._processors(self.ids.expand(len(raw), -1), raw)  # type: ignore[arg-type]
        else:
            length = self.ids.shape[1]
            # Beyond what is emitted: the next choices are written over it.
            self._ids[0, length : length + len(draft)] = draft.clamp(min=0)
            scores = torch.cat(
                [
                    self._processors(self._ids[:, : length + row], raw[row : row + 1])  # type: ignore[arg-type]
                    for row in range(rows)
                ]
            )
        if not self._sample:
            return AtOnce(scores[:rows].argmax(dim=-1))
        return self._draw_at_once(torch.nn.functional.softmax(scores, dim=-1)[:rows])

    def _draw_at_once(self, chances: torch.Tensor) -> AtOnce:
        # What torch.multinomial does for one draw, which would wait for the device to check its input.
        generator = self._random_numbers()
        waits, states = torch.empty_like(chances), []
        for row in range(len(chances)):
            waits[row].exponential_(1, generator=generator)
            states.append(generator.get_state())
        return AtOnce((chances / waits).argmax(dim=-1), tuple(states))

    def _random_numbers(self) -> torch.Generator:
        if self._generator is not None:
            return self._generator
        if self._ids.device.type == "cuda":
            index = self._ids.device.index
            return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
        return torch.default_generator

    def told(self, tokens: Sequence[int], states: Sequence[torch.Tensor] = ()) -> Iterator[int]:
        """Yield choices that were made elsewhere and remember those that are taken, as ``choices`` does."""
        for number, token in enumerate(tokens):
            if states:
                self._random_numbers().set_state(states[number])
            self._unwritten.append(token)
            yield token

    @torch.no_grad()
    def _choose(self, row: torch.Tensor) -> int:
        self.is_choosing = True
        raw = row.to(device=self._ids.device, dtype=torch.float32, copy=True)
        if self._recorder is not None:
            self._recorder.see_logits(raw)
        scores: torch.Tensor = self._processors(self.ids, raw)  # type: ignore[arg-type]
        token = self._draw(scores) if self._sample else int(scores.argmax(dim=-1).item())
        if self._recorder is not None:
            self._recorder.see_choice(scores, token)
        self.is_choosing = False
        return token

    def _draw(self, scores: torch.Tensor) -> int:
        chances = torch.nn.functional.softmax(scores, dim=-1)
        return int(torch.multinomial(chances, num_samples=1, generator=self._generator).item())


@contextmanager
def lasting_tensors() -> Iterator[None]:
    """Make tensors that can be written to at any time, whatever mode the caller is in.

    Those made in ``torch.inference_mode`` could be written to within it alone.
    """
    with torch.inference_mode(mode=False), torch.no_grad():
        yield


def sent(ids: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return ids as [count] int64 on the device; to a GPU without waiting for it."""
    if device.type == "cuda":
        return torch.tensor(ids, pin_memory=True).to(device, non_blocking=True)
    return torch.tensor(ids, device=device)


class CountPenalty(LogitsProcessor):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """Frequency and presence penalties as the OpenAI API defines them, over generated tokens only.

    A token generated ``n > 0`` times loses ``n * frequency + presence`` from its logit.
    """

    def __init__(self, prompt_length: int, *, frequency: float, presence: float) -> None:
        self._prompt_length = prompt_length
        self._frequency = frequency
        self._presence = presence

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return penalised ``scores``, ``[1, vocabulary]``."""
        generated = input_ids[:, self._prompt_length :]
        counts = torch.zeros_like(scores).scatter_add_(
            1, generated, torch.ones_like(generated, dtype=scores.dtype)
        )
        return scores - self._frequency * counts - self._presence * (counts > 0)


# Of these every row's scores depend on that row alone, and of the others on it and the ids before it.
_ROW_WISE = {
    EpsilonLogitsWarper,
    MinPLogitsWarper,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
}
_MEMORYLESS = {
    *_ROW_WISE,
    CountPenalty,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
}
