"""Logits to choices: the likeliest token or a draw. Knows no model, no KV cache and no draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from transformers import LogitsProcessor, LogitsProcessorList


@dataclass(slots=True)
class Record:
    """Scores and raw logits of every emitted token, each ``[1, vocabulary]`` float32, where asked for."""

    keep_scores: bool = False
    keep_logits: bool = False
    scores: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)


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
        record: Record | None = None,
    ) -> None:
        self._processors = processors
        self._sample = sample
        self._generator = generator
        self._record = record if record is not None and (record.keep_scores or record.keep_logits) else None
        self._length = prompt.shape[-1]
        self._ids = prompt.new_zeros((1, self._length + limit))
        self._ids[:, : self._length] = prompt
        self._unwritten: list[int] = []

    @property
    def ids(self) -> torch.Tensor:
        """Prompt and every choice made so far, ``[1, length]``; a view that later choices do not change."""
        if self._unwritten:
            end = self._length + len(self._unwritten)
            self._ids[0, self._length : end] = torch.tensor(self._unwritten, device=self._ids.device)
            self._length = end
            self._unwritten.clear()
        return self._ids[:, : self._length]

    def choices(self, logits: torch.Tensor) -> Iterator[int]:
        """Yield the choice at every row of ``logits``, ``[rows, vocabulary]``, lazily."""
        chosen: Iterator[int]
        if self._sample or self._processors or self._record:
            chosen = (self._choose(logits[i : i + 1]) for i in range(len(logits)))
        else:
            # One reduction and one transfer for the whole pass: nothing here depends on what came before.
            chosen = iter(logits.argmax(dim=-1).tolist())
        for token in chosen:
            self._unwritten.append(token)
            yield token

    @torch.no_grad()
    def _choose(self, row: torch.Tensor) -> int:
        raw = row.to(device=self._ids.device, dtype=torch.float32, copy=True)
        if self._record and self._record.keep_logits:
            # A processor may work in place.
            self._record.logits.append(raw.clone())
        scores: torch.Tensor = self._processors(self.ids, raw)  # type: ignore[arg-type]
        if self._record and self._record.keep_scores:
            self._record.scores.append(scores)
        if not self._sample:
            return int(scores.argmax(dim=-1).item())
        chances = torch.nn.functional.softmax(scores, dim=-1)
        return int(torch.multinomial(chances, num_samples=1, generator=self._generator).item())


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
