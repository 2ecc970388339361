"""Answers that fit a JSON schema: tokens that cannot come next are never chosen. Knows no HTTP and no drafting.

The drafts are as they are without it, and so is the rule that accepts them: a drafted token that does not fit is not
the model's choice any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookupdec.errors import InputError

if TYPE_CHECKING:
    from llguidance import LLMatcher

# White space that JSON allows anywhere, but no more than a deep indentation: small models never stop otherwise.
_OPTIONS = {"whitespace_pattern": r"[\x20\n\t]{0,40}"}


class Grammars:
    """Schemas for one tokenizer, which is prepared when the first one comes.

    ``ends`` are the tokens that end the model's answers. Where it has none that the tokenizer knows, the
    tokenizer's own does.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int]) -> None:
        self._hf_tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = [token for token in ends if token < len(tokenizer)]
        self._tokenizer: Any = None

    def check(self, schema: str) -> None:
        """Raise ``InputError`` for a schema that is none, or that is not supported."""
        from llguidance import LLMatcher

        if problem := LLMatcher.validate_grammar(_grammar(schema), self._prepared()):
            raise InputError(f"response_format: {' '.join(problem.split())}")

    def mask(self, schema: str, prompt_length: int) -> SchemaMask:
        """Return the logits processor of one answer."""
        from llguidance import LLMatcher

        return SchemaMask(LLMatcher(self._prepared(), _grammar(schema), log_level=0), prompt_length)

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an answer once it fits."""
        return tuple(self._prepared().eos_tokens)

    def _prepared(self) -> Any:
        if self._tokenizer is None:
            from llguidance.hf import from_tokenizer

            try:
                self._tokenizer = from_tokenizer(
                    self._hf_tokenizer, n_vocab=self._vocabulary, eos_token=self._ends or None
                )
            except (TypeError, ValueError) as error:
                raise InputError(f"response_format: not with this model's tokenizer ({error})") from error
        return self._tokenizer


class SchemaMask:
    """A logits processor that rules out what a schema does not allow. Called once for each emitted token."""

    def __init__(self, matcher: LLMatcher, prompt_length: int) -> None:
        self._matcher = matcher
        self._seen = prompt_length

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores, ``[1, vocabulary]``, at minus infinity where a token cannot come next."""
        emitted = input_ids[0, self._seen :].tolist()
        self._seen += len(emitted)
        self._matcher.consume_tokens(emitted)
        if self._matcher.is_error():
            raise InputError("response_format: no answer of this model fits the schema: simplify it")
        allowed = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        ruled_out = np.full(scores.shape[-1], -np.inf, np.float32)
        ruled_out[np.flatnonzero(allowed[: scores.shape[-1]])] = 0.0
        return scores + scores.new_tensor(ruled_out)


def _grammar(schema: str) -> str:
    from llguidance import LLMatcher

    try:
        return LLMatcher.grammar_from_json_schema(schema, defaults=_OPTIONS)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"response_format: {' '.join(str(error).split())}") from error
