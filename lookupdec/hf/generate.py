"""Generate with a transformers model: whole texts and streams.

Everything about settings is left to transformers: its own ``generate`` prepares inputs, cache and logits
processors and hands them over through its public ``custom_generate`` hook, so the same settings mean the
same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)

from lookupdec.decode import Drafter, decode, stops_at
from lookupdec.draft import CopyDrafter
from lookupdec.errors import ContextFullError, InputError
from lookupdec.hf.choose import Chooser, CountPenalty
from lookupdec.hf.logprobs import LogprobRecord, TokenLogprob
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.network import vocabulary_size
from lookupdec.hf.passes import target_for
from lookupdec.hf.prefill import KeptPrefix
from lookupdec.hf.prefixes import PrefixCache
from lookupdec.hf.prompts import Prompt
from lookupdec.hf.settings import Settings
from lookupdec.hf.target import check_model
from lookupdec.hf.text import TextStream
from lookupdec.ids import Ids, Reference
from lookupdec.stats import Stats, Step

FinishReason = Literal["stop", "length", "deadline"]
"""Why an output ended: at an end-of-text token or a stop string, at its limit, or out of time."""

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one pass added to a stream.

    ``pieces`` is what each of its tokens added to the text. A piece may be empty: a half character or what
    may become a stop string is held back, and comes with a later token. ``step`` has the ids and how many of
    them were copied from where. ``stats`` is the running count, the same object in every chunk.
    ``finish_reason`` is set in the last chunk only, and ``stop`` names the stop string that ended it.
    ``logprobs`` has one entry per token where they were asked for.
    """

    pieces: tuple[str, ...]
    step: Step
    stats: Stats
    finish_reason: FinishReason | None = None
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """The text of all its tokens."""
        return "".join(self.pieces)

    @property
    def ids(self) -> tuple[int, ...]:
        """The emitted token ids."""
        return self.step.tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished output.

    ``ids`` are all emitted tokens, an end-of-text token or those of a stop string included; ``text`` has
    neither. ``logprobs`` has one entry per id where they were asked for.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


def generate(
    model: LanguageModel,
    prompt: Prompt,
    settings: Settings = _DEFAULTS,
    *,
    drafter: Drafter | None = None,
    reference: str | Sequence[str] | Ids | slice | Reference | None = None,
    namespace: str | None = None,
    prefixes: PrefixCache | None = None,
) -> Generation:
    """Generate the whole output; see ``stream``, which this joins."""
    chunks = list(
        stream(
            model,
            prompt,
            settings,
            drafter=drafter,
            reference=reference,
            namespace=namespace,
            prefixes=prefixes,
        )
    )
    last = chunks[-1]
    assert last.finish_reason is not None
    return Generation(
        text="".join(chunk.text for chunk in chunks),
        ids=tuple(token for chunk in chunks for token in chunk.ids),
        finish_reason=last.finish_reason,
        stats=last.stats,
        stop=last.stop,
        logprobs=tuple(logprob for chunk in chunks for logprob in chunk.logprobs),
    )


def stream(
    model: LanguageModel,
    prompt: Prompt,
    settings: Settings = _DEFAULTS,
    *,
    drafter: Drafter | None = None,
    reference: str | Sequence[str] | Ids | slice | Reference | None = None,
    namespace: str | None = None,
    prefixes: PrefixCache | None = None,
) -> Generator[Chunk, None, None]:
    """Generate and yield a ``Chunk`` per forward pass; the last one has the finish reason.

    A chunk has as many tokens as the pass confirmed; who wants one event a token finds the text of each in
    its ``pieces``. Where the settings have the prompt read in chunks, an empty one comes after each but the
    last.

    ``drafter`` is a fresh ``CopyDrafter`` where none is given; ``PlainDrafter()`` decodes plainly. A
    drafter serves one request at a time, so give every thread its own. ``reference`` is text expected to
    come back: text, ids, or a span of the prompt's ids; of several texts the first, or one of the others in its
    place. ``prefixes`` saves reading what an earlier request of
    the same ``namespace`` has read, and keeps what this one reads; a model with bitwise passes does without,
    since it must read prompts as plain decoding does. What is wrong with the request is raised here, before the
    first chunk is asked for. A consumer that stops early leaves nothing running.

    Raises ``ContextFullError``, ``InputError`` or ``UnsupportedCacheError``.
    """
    ids = model.encode_prompt(prompt)
    limit = room(model, len(ids), settings)
    prepared = prepare_inputs(model.model, ids, settings, limit)
    ending = _Ending(model, settings, prepared.config)
    chooser = Chooser(
        prepared.ids,
        prepared.processors,
        limit=limit,
        sample=settings.samples,
        generator=_seeded_generator(model.device, settings.seed),
        recorder=ending.logprobs,
    )
    target = target_for(model, prepared, chooser, limit=limit)
    expected = _reference(model, reference)

    kept = KeptPrefix(prefixes if model.may_resume(len(ids)) else None, target, ids, namespace)

    def steps(stats: Stats) -> Generator[Step, None, None]:
        try:
            yield from kept.prefill(stats)
            passes = decode(
                target,
                CopyDrafter(cost=model.cost) if drafter is None else drafter,
                ids,
                limit=limit,
                is_last=ending.is_last,
                stats=stats,
                reference=expected,
                namespace=namespace,
            )
            yield from kept.follow(passes)
        finally:
            target.release()

    return _chunks(steps, ending, limit)


class _Ending:
    """Decides after each token whether the output ends there, remembers why, and collects what to show."""

    def __init__(self, model: LanguageModel, settings: Settings, config: GenerationConfig) -> None:
        self.reason: FinishReason | None = None
        self.logprobs = None if settings.logprobs is None else LogprobRecord(settings.logprobs)
        self._text = TextStream(model.tokenizer, (*settings.stop_strings, *_own_stop_strings(model)))
        self._pieces: list[str] = []
        self._is_eos = stops_at(eos_ids(config))
        self._seconds = config.max_time if settings.deadline is None else settings.deadline
        self._ends_at = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._ends_at = monotonic() + (self._seconds or 0.0)

    def is_last(self, token: int) -> bool:
        """Take in one emitted token."""
        # An end-of-text token is no text, whichever token was declared to be one.
        if self._is_eos(token) or self._text.push(token):
            self.reason = "stop"
        else:
            self.check_time()
        self._pieces.append(self._text.take(final=self.reason is not None))
        return self.reason is not None

    def check_time(self) -> None:
        """End the output where its time is over before there is a token."""
        if self._seconds is not None and monotonic() >= self._ends_at:
            self.reason = "deadline"

    def chunk(self, step: Step, stats: Stats, *, is_full: bool) -> Chunk:
        """Return the chunk of the tokens since the last one; ``is_full`` where there is no room for more."""
        reason = self.reason or ("length" if is_full else None)
        if reason == "length":
            self._pieces[-1] += self._text.take(final=True)
        pieces, self._pieces = tuple(self._pieces), []
        logprobs = self.logprobs.take() if self.logprobs is not None else ()
        return Chunk(pieces, step, stats, reason, self._text.stopped_by, logprobs)


def _chunks(
    steps: Callable[[Stats], Generator[Step, None, None]], ending: _Ending, limit: int
) -> Generator[Chunk, None, None]:
    stats = Stats()
    ending.begin()
    with closing(steps(stats)) as passes:
        for step in passes:
            if not step.tokens:
                ending.check_time()
            chunk = ending.chunk(step, stats, is_full=stats.tokens >= limit)
            yield chunk
            if chunk.finish_reason is not None:
                return


def _own_stop_strings(model: LanguageModel) -> tuple[str, ...]:
    # `generate` of transformers is not told of them: it would want the tokenizer.
    own = getattr(model.model.generation_config, "stop_strings", None) or ()
    return (own,) if isinstance(own, str) else tuple(own)


def _reference(
    model: LanguageModel, reference: str | Sequence[str] | Ids | slice | Reference | None
) -> Ids | slice | Reference | None:
    texts: list[str] = [reference] if isinstance(reference, str) else []
    if isinstance(reference, Sequence) and not isinstance(reference, str):
        texts = [item for item in reference if isinstance(item, str)]
    if not texts:
        return reference  # type: ignore[return-value]
    first, *others = map(model.encode_text, texts)
    return Reference(first, others)


def _seeded_generator(device: torch.device, seed: int | None) -> torch.Generator:
    generator = torch.Generator(device=device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


@dataclass(frozen=True, slots=True)
class Prepared:
    """What ``generate`` of transformers prepares before it decodes."""

    ids: torch.Tensor
    processors: LogitsProcessorList
    config: GenerationConfig
    inputs: dict[str, Any]


def prepare_inputs(model: PreTrainedModel, ids: list[int], settings: Settings, limit: int) -> Prepared:
    """Let ``generate`` of transformers prepare cache, model inputs and processors for a prompt.

    Raises ``UnsupportedCacheError``, and ``InputError`` for settings that it refuses.
    """
    check_model(model)
    settings.check_ids(vocabulary_size(model))
    transformers_model: Any = model
    batch = torch.tensor([ids], device=model.device)
    processors: list[LogitsProcessor] = []
    if settings.frequency_penalty or settings.presence_penalty:
        penalty = CountPenalty(
            len(ids), frequency=settings.frequency_penalty, presence=settings.presence_penalty
        )
        processors.append(penalty)
    processors.extend(settings.logits_processor)
    try:
        prepared = transformers_model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            logits_processor=LogitsProcessorList(processors),
            custom_generate=_hand_over,
            **_several_undone(model, settings),
            **settings.generation_overrides(limit),
        )
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error
    assert isinstance(prepared, Prepared)
    return prepared


def _several_undone(model: PreTrainedModel, settings: Settings) -> dict[str, GenerationConfig]:
    # transformers checks the model's config before it looks at what is asked for, and refuses several greedy outputs.
    if (getattr(model.generation_config, "num_return_sequences", None) or 1) == 1:
        return {}
    make: Any = GenerationConfig
    return {"generation_config": make(num_return_sequences=1, do_sample=settings.samples)}


def _hand_over(
    _model: PreTrainedModel,
    input_ids: torch.Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,  # noqa: ARG001
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> Prepared:
    return Prepared(input_ids, logits_processor, generation_config, model_kwargs)


def room(model: LanguageModel, prompt_length: int, settings: Settings) -> int:
    """Return how many tokens may be generated after the prompt. Raises ``ContextFullError`` for none."""
    context = model.context_length
    if context is None:
        if settings.max_new_tokens is None:
            raise InputError("this model's config has no context length: set max_new_tokens")
        return settings.max_new_tokens
    left = context - prompt_length
    if left < 1:
        raise ContextFullError(
            f"the prompt has {prompt_length} tokens, but at most {context - 1} fit the model's context of "
            f"{context} and leave room for an answer: shorten it"
        )
    return min(left, settings.max_new_tokens or left)


def eos_ids(config: GenerationConfig) -> tuple[int, ...]:
    """Return the end-of-text ids of a generation config: none, one or several."""
    eos = config.eos_token_id
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(int(token) for token in eos)
