"""Generate with a transformers model: whole texts, streams, and the drop-in for its ``generate``.

Everything about settings is left to transformers: its own ``generate`` prepares inputs, cache and logits
processors and hands them over through its public ``custom_generate`` hook, so the same settings mean the
same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
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
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.utils import GenerateDecoderOnlyOutput

from lookupdec.decode import Drafter, decode, stops_at
from lookupdec.errors import ContextFullError, InputError
from lookupdec.hf.choose import Chooser, CountPenalty, Record
from lookupdec.hf.models import LanguageModel, Prompt
from lookupdec.hf.settings import Settings
from lookupdec.hf.target import ModelTarget, check_model
from lookupdec.hf.text import TextStream
from lookupdec.ids import Ids
from lookupdec.stats import Stats, Step

FinishReason = Literal["stop", "length", "deadline"]
"""Why an output ended: at an end-of-text token or a stop string, at its limit, or out of time."""

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one pass added to a stream.

    ``text`` may be empty: a half character or what may become a stop string is held back. ``step`` has
    the ids and how many of them were copied from where. ``stats`` is the running count, the same object
    in every chunk. ``finish_reason`` is set in the last chunk only, and ``stop`` names the stop string
    that ended it.
    """

    text: str
    step: Step
    stats: Stats
    finish_reason: FinishReason | None = None
    stop: str | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The emitted token ids."""
        return self.step.tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished output.

    ``ids`` are all emitted tokens, an end-of-text token or those of a stop string included; ``text`` has
    neither.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
    stop: str | None = None


def generate(
    model: LanguageModel,
    prompt: Prompt,
    settings: Settings = _DEFAULTS,
    *,
    drafter: Drafter | None = None,
    reference: str | Ids | slice | None = None,
    namespace: str | None = None,
) -> Generation:
    """Generate the whole output; see ``stream``, which this joins."""
    chunks = list(stream(model, prompt, settings, drafter=drafter, reference=reference, namespace=namespace))
    last = chunks[-1]
    assert last.finish_reason is not None
    return Generation(
        text="".join(chunk.text for chunk in chunks),
        ids=tuple(token for chunk in chunks for token in chunk.ids),
        finish_reason=last.finish_reason,
        stats=last.stats,
        stop=last.stop,
    )


def stream(
    model: LanguageModel,
    prompt: Prompt,
    settings: Settings = _DEFAULTS,
    *,
    drafter: Drafter | None = None,
    reference: str | Ids | slice | None = None,
    namespace: str | None = None,
) -> Generator[Chunk, None, None]:
    """Generate and yield a ``Chunk`` per forward pass; the last one has the finish reason.

    ``drafter`` is a fresh ``CopyDrafter`` where none is given; ``PlainDrafter()`` decodes plainly. A
    drafter serves one request at a time, so give every thread its own. ``reference`` is text expected to
    come back: text, ids, or a span of the prompt's ids. What is wrong with the request is raised here,
    before the first chunk is asked for. A consumer that stops early leaves nothing running.

    Raises ``ContextFullError``, ``InputError`` or ``UnsupportedCacheError``.
    """
    ids = model.encode_prompt(prompt)
    limit = _room(model, len(ids), settings)
    prepared = _prepare(model.model, ids, settings, limit)
    generator = torch.Generator(device=model.device)
    if settings.seed is None:
        generator.seed()
    else:
        generator.manual_seed(settings.seed)
    chooser = Chooser(
        prepared.ids, prepared.processors, limit=limit, sample=settings.samples, generator=generator
    )
    target = ModelTarget(model.model, prepared.inputs, chooser)
    if isinstance(reference, str):
        reference = model.encode_text(reference)
    ending = _Ending(model, settings, prepared.config)

    def steps(stats: Stats) -> Generator[Step, None, None]:
        return decode(
            target,
            drafter if drafter is not None else _copy_drafter(),
            ids,
            limit=limit,
            is_last=ending.is_last,
            stats=stats,
            reference=reference,
            namespace=namespace,
        )

    return _chunks(steps, ending, limit)


def custom_generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    drafter: Drafter | None = None,
    stats: Stats | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | GenerateDecoderOnlyOutput:
    """Drop-in for greedy and sampled ``model.generate``: pass it as ``custom_generate=custom_generate``.

    The output equals that of plain ``model.generate``; draws come from torch's global random numbers.
    ``drafter=`` and ``stats=`` can be passed to ``model.generate`` along with it. transformers hands
    neither a ``streamer`` nor the ``tokenizer`` for ``stop_strings`` to a callable: use
    ``lookupdec.hf.stream``, or a ``StopStringCriteria``.

    Raises ``InputError`` for batches, beams and what else is not one growing text, ``UnsupportedCacheError``.
    """
    _check_drop_in(model, input_ids, generation_config)
    keeps = bool(generation_config.return_dict_in_generate)
    record = Record(
        keep_scores=keeps and bool(generation_config.output_scores),
        keep_logits=keeps and bool(generation_config.output_logits),
    )
    limit = generation_config.max_length - input_ids.shape[1]
    sample = bool(generation_config.do_sample)
    chooser = Chooser(input_ids.to(model.device), logits_processor, limit=limit, sample=sample, record=record)
    target = ModelTarget(model, model_kwargs, chooser)

    def is_last(_token: int) -> bool:
        scores = tuple(record.scores) if record.keep_scores else None
        return bool(stopping_criteria(chooser.ids, scores).all())

    drafter = drafter if drafter is not None else _copy_drafter()
    for _ in decode(target, drafter, input_ids[0].tolist(), limit=limit, is_last=is_last, stats=stats):
        pass
    target.finish()
    sequences = chooser.ids.clone().to(input_ids.device)
    if not keeps:
        return sequences
    scores = tuple(record.scores) if record.keep_scores else None
    logits = tuple(record.logits) if record.keep_logits else None
    output = GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, logits=logits)  # type: ignore[arg-type]
    output[target.cache_name] = target.cache
    return output


class _Ending:
    """Decides after each token whether the output ends there, and remembers why."""

    def __init__(self, model: LanguageModel, settings: Settings, config: GenerationConfig) -> None:
        self.text = TextStream(model.tokenizer, settings.stop_strings)
        self.reason: FinishReason | None = None
        self._is_eos = stops_at(eos_ids(config))
        self._seconds = settings.deadline
        self._ends_at = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._ends_at = monotonic() + (self._seconds or 0.0)

    def is_last(self, token: int) -> bool:
        """Take in one emitted token."""
        # An end-of-text token is no text, whichever token was declared to be one.
        if self._is_eos(token) or self.text.push(token):
            self.reason = "stop"
        elif self._seconds is not None and monotonic() >= self._ends_at:
            self.reason = "deadline"
        return self.reason is not None


def _chunks(
    steps: Callable[[Stats], Generator[Step, None, None]], ending: _Ending, limit: int
) -> Generator[Chunk, None, None]:
    stats = Stats()
    ending.begin()
    with closing(steps(stats)) as passes:
        for step in passes:
            reason = ending.reason or ("length" if stats.tokens >= limit else None)
            text = ending.text.take(final=reason is not None)
            yield Chunk(text, step, stats, reason, ending.text.stopped_by)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What ``generate`` of transformers prepares before it decodes."""

    ids: torch.Tensor
    processors: LogitsProcessorList
    config: GenerationConfig
    inputs: dict[str, Any]


def _prepare(model: PreTrainedModel, ids: list[int], settings: Settings, limit: int) -> _Prepared:
    check_model(model)
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
            **settings.generation_overrides(limit),
        )
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error
    assert isinstance(prepared, _Prepared)
    return prepared


def _hand_over(
    _model: PreTrainedModel,
    input_ids: torch.Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,  # noqa: ARG001
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> _Prepared:
    return _Prepared(input_ids, logits_processor, generation_config, model_kwargs)


def _room(model: LanguageModel, prompt_length: int, settings: Settings) -> int:
    """Return how many tokens may be generated after the prompt."""
    context = model.context_length
    if context is None:
        if settings.max_new_tokens is None:
            raise InputError("this model's config has no context length: set max_new_tokens")
        return settings.max_new_tokens
    room = context - prompt_length
    if room < 1:
        raise ContextFullError(
            f"the prompt has {prompt_length} tokens, but at most {context - 1} fit the model's context of "
            f"{context} and leave room for an answer: shorten it"
        )
    return min(room, settings.max_new_tokens or room)


def _check_drop_in(model: PreTrainedModel, input_ids: torch.Tensor, config: GenerationConfig) -> None:
    check_model(model)
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        kind = mode.value.replace("_", " ")
        raise InputError(f"lookup decoding is for greedy decoding and sampling, not for {kind}")
    if input_ids.shape[0] != 1:
        raise InputError(
            f"lookup decoding takes one sequence at a time, not {input_ids.shape[0]}: generate each alone"
        )
    if config.use_cache is False:
        raise InputError("lookup decoding needs the KV cache: leave out use_cache=False")
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        raise InputError(
            "lookup decoding keeps no attentions and no hidden states: leave out output_attentions and "
            "output_hidden_states, or call generate without custom_generate"
        )


def eos_ids(config: GenerationConfig) -> tuple[int, ...]:
    """Return the end-of-text ids of a generation config: none, one or several."""
    eos = config.eos_token_id
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(int(token) for token in eos)


def _copy_drafter() -> Drafter:
    from lookupdec.draft import CopyDrafter

    return CopyDrafter()
