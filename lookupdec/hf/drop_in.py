"""The drop-in for ``generate`` of transformers. Knows no text: ids in, ids out, as there."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.utils import GenerateDecoderOnlyOutput

from lookupdec.decode import Drafter, decode
from lookupdec.draft import CopyDrafter
from lookupdec.errors import ContextFullError, InputError
from lookupdec.hf.choose import Chooser, Record
from lookupdec.hf.draft_check import check_drafts
from lookupdec.hf.fixed_target import FixedTarget
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.quick_linear import prepare_quick
from lookupdec.hf.target import ModelTarget, check_inputs, check_model, is_ids_alone
from lookupdec.hf.watch import usual_cost
from lookupdec.stats import Stats

_KEPT_IN_DICT = ("output_attentions", "output_hidden_states")


def custom_generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    drafter: Drafter | None = None,
    stats: Stats | None = None,
    passes: FixedPasses | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | GenerateDecoderOnlyOutput:
    """Drop-in for greedy and sampled ``model.generate``: pass it as ``custom_generate=custom_generate``.

    The output equals that of plain ``model.generate``; draws come from torch's global random numbers.
    ``drafter=`` and ``stats=`` can be passed to ``model.generate`` along with it, and ``passes=``: passes of fixed
    widths, on which requests run that fit them, are given nothing but ids (no padding, no positions of their own,
    no cache that was filled) and want back nothing else; the cache that ``generate`` was given then stays empty.
    transformers hands neither a ``streamer`` nor the ``tokenizer`` for ``stop_strings`` to a callable: use
    ``lookupdec.hf.stream``, or a ``StopStringCriteria``.

    Raises ``InputError`` for batches, beams and what else is not one growing text, ``UnsupportedCacheError``, and
    for passes of one width, which no others can stand in for, ``InputError`` and ``ContextFullError``.
    """
    _check_request(model, input_ids, generation_config, model_kwargs.get("attention_mask"))
    keeps = bool(generation_config.return_dict_in_generate)
    # Without the dictionary that they would stand in, plain decoding drops them too.
    model_kwargs = {name: value for name, value in model_kwargs.items() if name not in _KEPT_IN_DICT}
    record = Record(
        keep_scores=keeps and bool(generation_config.output_scores),
        keep_logits=keeps and bool(generation_config.output_logits),
    )
    limit = int(generation_config.max_length) - input_ids.shape[1]
    chooser = Chooser(
        input_ids.to(model.device),
        logits_processor,
        limit=limit,
        sample=bool(generation_config.do_sample),
        recorder=record if record.keep_scores or record.keep_logits else None,
    )
    target: ModelTarget | FixedTarget | None = None
    if passes is not None:
        target = _fixed_target(passes, chooser, input_ids, model_kwargs, generation_config)
    if target is None:
        prepare_quick(model)
        chunk = generation_config.prefill_chunk_size
        # Newer versions of transformers note it there.
        length: int | None = getattr(generation_config, "_mask_length", None)
        target = ModelTarget(model, model_kwargs, chooser, prefill_chunk=chunk, mask_length=length)
        check_drafts(model, length=limit + input_ids.shape[1])

    def is_last(_token: int) -> bool:
        scores = tuple(record.scores) if record.keep_scores else None
        return bool(stopping_criteria(chooser.ids, scores).all())

    if drafter is None:
        drafter = CopyDrafter(cost=usual_cost(model.device, model.dtype))
    try:
        for _ in decode(target, drafter, input_ids[0].tolist(), limit=limit, is_last=is_last, stats=stats):
            pass
    finally:
        target.finish()
        target.release()
    sequences = chooser.ids.clone().to(input_ids.device)
    if not keeps:
        return sequences
    scores = tuple(record.scores) if record.keep_scores else None
    logits = tuple(record.logits) if record.keep_logits else None
    output = GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, logits=logits)  # type: ignore[arg-type]
    assert isinstance(target, ModelTarget)
    output[target.cache_name] = target.cache
    return output


def _fixed_target(
    passes: FixedPasses,
    chooser: Chooser,
    input_ids: torch.Tensor,
    inputs: dict[str, Any],
    config: GenerationConfig,
) -> FixedTarget | None:
    """Return a target on the passes; None where they cannot serve the request and others may."""
    check_inputs(inputs)
    needed, remedy = int(config.max_length) - 1, ""
    if config.return_dict_in_generate:
        remedy = "give back nothing but ids: leave out return_dict_in_generate"
    elif not is_ids_alone(input_ids, inputs):
        remedy = "read texts from their beginning: leave out padding, position_ids and a cache that has read something"
    # Instead of passes of one width others would give another text.
    if remedy and passes.one_width:
        raise InputError(f"passes of one width {remedy}, or leave out passes")
    if remedy:
        return None
    if needed > passes.room and passes.one_width:
        raise ContextFullError(
            f"prompt and output may have {config.max_length} tokens, but passes of one width have room for "
            f"{passes.room + 1}: lower max_new_tokens, or make the passes with a longer context"
        )
    return passes.target(chooser, needed=needed, prefill_chunk=config.prefill_chunk_size)


def _check_request(
    model: PreTrainedModel, input_ids: torch.Tensor, config: GenerationConfig, mask: torch.Tensor | None
) -> None:
    check_model(model)
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        kind = mode.value.replace("_", " ")
        raise InputError(f"lookup decoding is for greedy decoding and sampling, not for {kind}")
    if input_ids.shape[0] != 1:
        raise InputError(
            f"lookup decoding takes one sequence at a time, not {input_ids.shape[0]}: generate each alone, or "
            "give the prompts to lookupdec.hf.generate_many"
        )
    if mask is not None and mask.dim() == 2 and not bool(mask.any()):
        raise InputError(
            "the attention mask hides the whole prompt: give a prompt of at least one token that is no padding"
        )
    if config.use_cache is False:
        raise InputError("lookup decoding needs the KV cache: pass use_cache=True")
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        raise InputError(
            "lookup decoding keeps no attentions and no hidden states: leave out output_attentions and "
            "output_hidden_states, or call generate without custom_generate"
        )
