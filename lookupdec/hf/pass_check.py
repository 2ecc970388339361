"""What fixed passes are tried for on a loaded model: right results, and independence of the draft. Knows no request."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from lookupdec.hf.fixed_width import Lane
from lookupdec.hf.network import read_with_cache, vocabulary_size

PROMPT_TOKENS, TRIED_TOKENS = 12, 8
# The share of the logits' size that the two ways may differ by: rounding, and nothing else.
_TOLERANCE = {torch.float32: 5e-3, torch.float16: 0.1, torch.bfloat16: 0.2}


@torch.no_grad()
def static_difference(model: PreTrainedModel, lane: Lane) -> str:
    """Compare passes on a lane, one of them taken back, with a dynamic cache; say where they differ, "" if nowhere."""
    ids = _some_ids(model)
    prompt, rest = ids[:PROMPT_TOKENS], ids[PROMPT_TOKENS:]
    try:
        expected = read_with_cache(model, ids[None].to(lane.device), None)[0][0, PROMPT_TOKENS - 1 :]
        lane.clear()
        lane.read(prompt[:9].to(lane.device), 0)
        found = [lane.read(prompt[9:].to(lane.device), 9)]
        wide = min(3, lane.widths[-1])
        lane.run(PROMPT_TOKENS, ([int(rest[0])] + [0] * 2)[:wide])
        position = 0
        for count in (1, 2, TRIED_TOKENS - 3):
            for start in range(position, position + count, lane.widths[-1]):
                piece = rest[start : min(start + lane.widths[-1], position + count)].tolist()
                found.append(lane.run(PROMPT_TOKENS + start, piece).logits[: len(piece)].clone())
            position += count
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a model's own code raises on what it does not expect
        return f"a trial pass failed: {type(error).__name__}: {error}".splitlines()[0]
    difference = torch.cat(found).float() - expected.float()
    share = float(difference.norm() / expected.float().norm().clamp(min=1e-30))
    # NaN is no agreement either.
    return "" if share <= _TOLERANCE[model.dtype] else f"logits differ by {share:.1%}"


@torch.no_grad()
def draft_dependence(lane: Lane) -> str:
    """Compare, bit for bit, tokens read alone with the same read as a draft; say what differs, "" if nothing."""
    ids = _some_ids(lane.model)
    prompt, rest = ids[:PROMPT_TOKENS].to(lane.device), ids[PROMPT_TOKENS:].tolist()
    singly = _read(lane, prompt, [[token] for token in rest])
    wrong = [(token + 1) % 7 for token in rest]
    half = TRIED_TOKENS // 2
    trials = {
        "a draft that is right": [rest],
        "a draft that is wrong halfway": [rest[:half] + wrong[half:] * 3, rest[half:]],
    }
    for name, pieces in trials.items():
        for one, other in zip(singly, _read(lane, prompt, pieces), strict=True):
            if not torch.equal(one, other):
                return f"{name} gives other results than tokens read alone"
    return ""


def _read(lane: Lane, prompt: torch.Tensor, pieces: list[list[int]]) -> list[torch.Tensor]:
    """Return the logits, keys and values of the tried tokens, read in pieces of which each is cut to what is right."""
    lane.clear()
    lane.read(prompt, 0)
    done, logits = 0, []
    for number, piece in enumerate(pieces):
        piece = piece[: lane.widths[-1]]
        is_cut = number == 0 and len(pieces) == 2
        count = TRIED_TOKENS // 2 if is_cut else len(piece)
        logits.append(lane.run(PROMPT_TOKENS + done, piece).logits[:count].clone())
        done += count
    states = lane.cache.states(PROMPT_TOKENS, TRIED_TOKENS)
    return [torch.cat(logits), *(tensor for pair in states for tensor in pair)]


def _some_ids(model: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary_size(model), (PROMPT_TOKENS + TRIED_TOKENS,), generator=generator)
