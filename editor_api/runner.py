"""Requests on a model, one pass at a time: drafters, past outputs, pieces. Knows no queue and no thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from editor_api.engine import Piece, Request, TokenScore
from editor_api.grammar import Grammars
from editor_api.infill import Infill, Infiller, InfillPrompt
from lookupdec import CopyDrafter, Drafter, PhraseBook, PlainDrafter, Reference, RollingCache, SurvivalModel
from lookupdec.errors import InputError

if TYPE_CHECKING:
    from lookupdec.hf import Chunk, LanguageModel, TokenLogprob

PREFILL_CHUNK_SIZE = 256
"""Tokens of a prompt that one turn reads."""

_LEARNERS = 64  # tenants whose learnt habits are kept, at 0.6 MB each
_WARM_UP_TEXT = "def area(width, height):\n    return width * height\n"
_WARM_UP_TOKENS = 24


class Run:
    """One request under way. Belongs to the thread that began it."""

    def __init__(self, chunks: Generator[Chunk, None, None], runner: Runner) -> None:
        self._chunks = chunks
        self._runner = runner

    def next_piece(self) -> Piece:
        """Make one forward pass."""
        chunk = next(self._chunks)
        scores = tuple(self._runner.score(item) for item in chunk.logprobs)
        if scores and chunk.finish_reason == "stop" and chunk.stop is None:
            scores = scores[:-1]  # an end-of-text token is no part of the answer
        # Others read the counts, perhaps while the next pass adds to them: each piece has its own.
        stats = deepcopy(chunk.stats)
        return Piece(chunk.text, chunk.step, stats, chunk.finish_reason, scores, chunk.pieces)

    def close(self) -> None:
        """End it: its output is kept for later requests of the same namespace."""
        self._chunks.close()


class Runner:
    """A model with what outlives a request: past outputs, kept prefixes, and what drafting has learnt.

    Each by tenant and session: nobody's text speeds up another's answer. ``phrases`` are everyone's.
    """

    def __init__(
        self, model: LanguageModel, *, cache_bytes: int, prefix_bytes: int, phrases: Sequence[str] = ()
    ) -> None:
        from lookupdec.hf import PrefixCache, eos_ids

        self.model = model
        self.cache = RollingCache(cache_bytes)
        self.prefixes = PrefixCache(prefix_bytes)
        self._phrases = PhraseBook(map(model.encode_text, phrases))
        # Between chunks other requests have their turn. Bitwise passes need prompts read as plain decoding does.
        self._prefill_chunk_size = None if model.is_bitwise else PREFILL_CHUNK_SIZE
        self._learnt: OrderedDict[str, SurvivalModel] = OrderedDict()
        ends = eos_ids(model.model.generation_config)
        self._grammars = Grammars(model.tokenizer, model.vocabulary_size, ends)
        self._infiller = Infiller(model.tokenizer, model.encode_text, ends)

    def begin(self, request: Request, seconds_left: float) -> Run:
        """Start a request; nothing is computed yet. Raises ``LookupDecError``."""
        from lookupdec.hf import Settings, stream

        settings = replace(
            Settings(**request.settings),
            deadline=seconds_left,
            prefill_chunk_size=self._prefill_chunk_size,
        )
        if request.json_schema is not None:
            # Any: transformers takes every callable, whatever its types say.
            mask: Any = self._grammars.mask(request.json_schema, len(request.prompt))
            settings = replace(settings, logits_processor=(mask,), eos_token_id=self._grammars.ends)
        expected = Reference(request.reference[0], request.reference[1:]) if request.reference else None
        chunks = stream(
            self.model,
            request.prompt,
            settings,
            drafter=self._drafter(request),
            reference=expected,
            namespace=request.namespace,
            prefixes=self.prefixes,
        )
        return Run(chunks, self)

    def check(self, settings: Mapping[str, Any], json_schema: str | None = None) -> None:
        """Raise ``TypeError`` for unknown settings, ``InputError`` for impossible values and schemas."""
        from lookupdec.hf import Settings

        biased, size = Settings(**settings).logit_bias or {}, self.model.vocabulary_size
        if unknown := [token for token in biased if not 0 <= token < size]:
            raise InputError(
                f"logit_bias names token {unknown[0]}, but this model has the tokens 0 to {size - 1}"
            )
        if json_schema is not None:
            self._grammars.check(json_schema)

    @property
    def chat_template(self) -> str | None:
        """How the model reads messages; None where it only continues text."""
        template: Any = self.model.tokenizer.chat_template
        if isinstance(template, dict):  # several by name
            template = template.get("default") or next(iter(template.values()), None)
        return template or None

    def encode_infill(self, infill: Infill) -> InfillPrompt:
        """Return the prompt for a gap. Raises ``InputError`` where the model has no tokens for it."""
        return self._infiller.encode(infill, self.model.name)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens."""
        text = self.model.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def kv_bytes(self, request: Request) -> int:
        """Return how large a request's KV cache may become."""
        longest = request.settings.get("max_new_tokens") or self.model.context_length or 0
        tokens = len(request.prompt) + int(longest)
        return min(tokens, self.model.context_length or tokens) * self.model.kv_bytes_per_token

    def score(self, item: TokenLogprob) -> TokenScore:
        """Return a token's log-probabilities with texts in the place of ids."""
        top = tuple((self.decode([token]), logprob) for token, logprob in item.top)
        return TokenScore(self.decode([item.token]), item.logprob, top)

    def warm_up(self) -> None:
        """Run one short request, so that no client waits for compilers and first-time allocations."""
        prompt = self.model.encode_text(_WARM_UP_TEXT * 2)
        settings = {"max_new_tokens": _WARM_UP_TOKENS, "eos_token_id": ()}
        request = Request(
            prompt=prompt[: max(1, (self.model.context_length or len(prompt)) - _WARM_UP_TOKENS)],
            settings=settings,
            tenant="",
            namespace="",
            deadline=600.0,
            reference=(self.model.encode_text(_WARM_UP_TEXT),),
        )
        for _ in range(2):  # the second finds the first one's output
            run = self.begin(request, request.deadline)
            while run.next_piece().finish_reason is None:
                pass
            run.close()
        self.cache.clear()
        self.prefixes.clear()
        self._learnt.clear()

    def _drafter(self, request: Request) -> Drafter:
        if not request.drafting:
            return PlainDrafter()
        learnt = self._learnt_by(request.tenant)
        return CopyDrafter(self.cache, self._phrases, cost=self.model.cost, model=learnt)

    def _learnt_by(self, tenant: str) -> SurvivalModel:
        # One tenant's habits never speed up another's requests: that would tell what it writes.
        model = self._learnt.pop(tenant, None) or SurvivalModel.new()
        self._learnt[tenant] = model
        if len(self._learnt) > _LEARNERS:
            self._learnt.popitem(last=False)
        return model
