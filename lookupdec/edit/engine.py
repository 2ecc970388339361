"""The seam between editing and a model: what an editor needs of one, and transformers' as the real one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lookupdec.decode import Drafter, PlainDrafter
from lookupdec.edit.prompts import Messages, plain_prompt
from lookupdec.installed import needs_models
from lookupdec.limits import PREFIX_BYTES
from lookupdec.phrases import PhraseBook, read_phrases
from lookupdec.stats import Stats, Step

if TYPE_CHECKING:
    from lookupdec.cache import RollingCache
    from lookupdec.hf import LanguageModel, PrefixCache
    from lookupdec.hf.loading import Exact


class Chunk(Protocol):
    """What one forward pass added to an answer; ``finish_reason`` is set in the last one."""

    @property
    def text(self) -> str:
        """The text that can be shown now."""
        ...

    @property
    def pieces(self) -> Sequence[str]:
        """What each of its tokens added to the text."""
        ...

    @property
    def step(self) -> Step:
        """The tokens, and how many of them were copied."""
        ...

    @property
    def stats(self) -> Stats:
        """The running counts of the whole answer."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, None while it goes on."""
        ...


class Engine(Protocol):
    """A model that answers chat messages."""

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        ...

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together; None where that is unknown."""
        ...

    def count(self, messages: Messages) -> int:
        """Return the number of tokens of a prompt."""
        ...

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...

    @property
    def dtype(self) -> str:
        """The numbers it computes with, such as "float32"."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens alone."""
        ...

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ``TypeError`` for unknown settings and ``InputError`` for impossible values."""
        ...

    def stream(
        self,
        messages: Messages,
        reference: str | Sequence[str],
        settings: Mapping[str, Any],
        *,
        plain: bool = False,
        namespace: str | None = None,
    ) -> Generator[Chunk, None, None]:
        """Answer, a chunk per pass.

        ``reference`` is expected to come back (of several texts one of them, the first most likely), and so are
        earlier answers in the same ``namespace``, None for none of them; ``plain`` drafts nothing.
        """
        ...


@dataclass(slots=True)
class ModelEngine:
    """A transformers model as an engine.

    Earlier answers are kept for requests that name a namespace. ``prefixes`` are the kept beginnings of
    prompts: a second instruction on one text does not read the text again. None reads every prompt whole.
    ``phrases`` are drafted from in every request.
    """

    model: LanguageModel
    prefixes: PrefixCache | None = None
    phrases: PhraseBook | None = None
    _past: RollingCache | None = None

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        dtype: str = "auto",
        device: str = "auto",
        exact: Exact = "auto",
        prefix_bytes: int = PREFIX_BYTES,
        phrases: str | Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ModelEngine:
        """Load a model; see ``lookupdec.hf.load``. Raises ``ModelError``, and ``FileError`` for ``phrases``.

        ``prefix_bytes`` is the budget for kept prefixes; 0 keeps none. ``phrases`` is a file for a ``PhraseBook``.
        """
        texts = read_phrases(phrases) if phrases is not None else []
        with needs_models():
            from lookupdec.hf import PrefixCache, load

        prefixes = PrefixCache(prefix_bytes) if prefix_bytes else None
        loaded = load(model, dtype=dtype, device=device, exact=exact, progress=progress)
        return cls(loaded, prefixes, PhraseBook(map(loaded.encode_text, texts)))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together."""
        return self.model.context_length

    def count(self, messages: Messages) -> int:
        """Return the number of tokens of a prompt."""
        return len(self.model.encode_prompt(self._prompt(messages)[0]))

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self.model.encode_text(text))

    @property
    def dtype(self) -> str:
        """The numbers it computes with."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def arithmetic(self) -> str:
        """Which of the modes of ``exact`` it is in: "bitwise", "fixed" or "fast"."""
        if self.model.is_bitwise:
            return "bitwise"
        return "fixed" if self.model.passes is not None and self.model.passes.one_width else "fast"

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens alone."""
        text = self.model.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ``TypeError`` for unknown settings and ``InputError`` for impossible values."""
        from lookupdec.hf import Settings

        Settings(**settings)

    def stream(
        self,
        messages: Messages,
        reference: str | Sequence[str],
        settings: Mapping[str, Any],
        *,
        plain: bool = False,
        namespace: str | None = None,
    ) -> Generator[Chunk, None, None]:
        """Answer, one chunk per forward pass."""
        from lookupdec.hf import Settings, stream

        prompt, stop = self._prompt(messages)
        chosen = Settings(**settings)
        if stop:
            chosen = replace(chosen, stop=(*chosen.stop_strings, stop))
        return stream(
            self.model,
            prompt,
            chosen,
            drafter=PlainDrafter() if plain else self._drafter(namespace),
            reference=None if plain else reference,
            namespace=namespace,
            prefixes=self.prefixes,
        )

    def _drafter(self, namespace: str | None) -> Drafter:
        """Return a drafter that knows the phrases and, where a namespace is named, its earlier answers."""
        from lookupdec.draft import CopyDrafter

        past = None if namespace is None else self._past_answers()
        return CopyDrafter(past, phrases=self.phrases, cost=self.model.cost)

    def remember(self, text: str, namespace: str) -> None:
        """Draft from this text, too, in requests that name the namespace: an answer of an earlier run."""
        self._past_answers().add(self.model.encode_text(text), namespace=namespace)

    def _past_answers(self) -> RollingCache:
        from lookupdec.cache import RollingCache

        if self._past is None:
            self._past = RollingCache()
        return self._past

    def _prompt(self, messages: Messages) -> tuple[Messages | str, str]:
        """Return the prompt, and the string that ends the answer where no end-of-text token will."""
        if self.model.tokenizer.chat_template:
            return messages, ""
        return plain_prompt(messages)
