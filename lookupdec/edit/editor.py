"""Edit texts with a language model: the whole, some lines, or a selection. Knows no tensor and no file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookupdec.edit.answers import Answer, read_answer
from lookupdec.edit.diff import PositionEncoding, TextEdit, text_edits, unified_diff
from lookupdec.edit.engine import Chunk, Engine, ModelEngine
from lookupdec.edit.prompts import EditPrompt, Messages, Templates, check_instruction, language_of
from lookupdec.edit.region import Region, reindented, without_echo
from lookupdec.errors import ContextFullError, InputError
from lookupdec.stats import Stats


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written; ``cached_tokens`` of the prompt needed no computing."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EditResult:
    """What an edit gave.

    ``text`` is the new text, ``edits`` and ``diff`` lead to it from the original. An answer that is not
    ``complete`` changes nothing unless that was allowed: ``text`` is the original, and ``warnings`` say why.
    ``answer`` is what the model wrote, word for word. ``base_sha256`` is the hash of the original as UTF-8.
    """

    text: str
    edits: tuple[TextEdit, ...]
    diff: str
    changed: bool
    complete: bool
    warnings: tuple[str, ...]
    base_sha256: str
    usage: Usage
    stats: Stats
    answer: str


@dataclass(frozen=True, slots=True)
class _Task:
    """One question to the model: its prompt, and the piece of text that the answer replaces."""

    region: Region
    messages: Messages

    @property
    def original(self) -> str:
        return self.region.document.shown


class Editor:
    """Edits texts with one model. Keeps nothing from one edit to the next."""

    def __init__(self, engine: Engine, *, templates: Templates | None = None) -> None:
        self.engine = engine
        self.templates = templates or Templates.load()

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        dtype: str = "auto",
        device: str = "auto",
        templates: Path | None = None,
    ) -> Editor:
        """Load a model to edit with: a hub id, a folder or a GGUF file; None is the default model.

        ``templates`` is a folder with prompts to use instead of the built-in ones. Raises ``ModelError``.
        """
        read = Templates.load(templates)
        return cls(ModelEngine.load(model, dtype=dtype, device=device), templates=read)

    def edit(  # noqa: PLR0913
        self,
        text: str,
        instruction: str,
        *,
        lines: tuple[int, int] | None = None,
        selection: tuple[int, int] | None = None,
        language: str | None = None,
        path: str | Path | None = None,
        context: Sequence[str] = (),
        prediction: str | None = None,
        on_token: Callable[[Chunk], object] | None = None,
        plain: bool = False,
        allow_incomplete: bool = False,
        position_encoding: PositionEncoding = "utf-16",
        **settings: Any,
    ) -> EditResult:
        """Change ``text`` as ``instruction`` says.

        Parameters
        ----------
        lines, selection
            Rewrite only these lines (counted from 1, both included) or characters (end excluded); the model
            sees what is around them, and not a character of it changes.
        language, path
            What the text is, for the prompt; ``path`` also names it in the diff.
        context
            Other texts that the model should know.
        prediction
            What the answer is expected to repeat, where that is not the text under edit.
        on_token
            Called with every chunk of the answer as it arrives.
        plain
            Decode without drafting: the same answer, one forward pass a token.
        allow_incomplete
            Return the text and edits of an answer that is not complete, too.
        **settings
            How to generate, by the names of ``lookupdec.hf.Settings``.

        Raises
        ------
        InputError
            The request cannot be carried out as given; ``ContextFullError`` where the text is too long.
        """
        region = self._region(text, lines, selection)
        prompt = EditPrompt(
            text=_shown(text),
            instruction=check_instruction(instruction),
            part=None if region.is_whole else region.document.shown,
            language=language_of(path) if language is None else language,
            context=context,
        )
        task = _Task(region, self.templates.messages(prompt))
        self.engine.check(settings)
        self._check_room(task, settings)
        reference = task.original if prediction is None else _shown(prediction)
        raw, last = self._ask(task.messages, reference, settings, plain=plain, on_token=on_token)
        answer = read_answer(raw, task.original, finish_reason=last.finish_reason or "stop")
        new = _fitted(answer, region) if answer.complete or allow_incomplete else text
        return EditResult(
            text=new,
            edits=text_edits(text, new, position_encoding=position_encoding),
            diff=unified_diff(text, new, str(path or "text")),
            changed=new != text,
            complete=answer.complete,
            warnings=answer.warnings,
            base_sha256=hashlib.sha256(text.encode()).hexdigest(),
            usage=Usage(last.stats.prompt_tokens, last.stats.tokens),
            stats=last.stats,
            answer=raw,
        )

    def _region(self, text: str, lines: tuple[int, int] | None, selection: tuple[int, int] | None) -> Region:
        _check_text(text)
        if lines is not None and selection is not None:
            raise InputError("give either lines or a selection, not both")
        if lines is not None:
            return Region.of_lines(text, lines)
        if selection is not None:
            return Region.of_selection(text, selection)
        return Region.whole(text)

    def _check_room(self, task: _Task, settings: Mapping[str, Any]) -> None:
        """Refuse a text that cannot come back whole, before any work."""
        context = self.engine.context_length
        if context is None:
            return
        prompt, piece = self.engine.count(task.messages), self.engine.count_text(task.original)
        answer = min(piece, settings.get("max_new_tokens") or piece)
        if prompt + answer < context:
            return
        # Every token of the text is read once in the prompt, and the rewritten piece is written once more.
        fits = max(0, context - (prompt - piece)) // 2
        raise ContextFullError(
            f"the text does not fit: the prompt has {prompt} tokens and the answer needs about {piece} more, "
            f"but {self.engine.name} holds {context}: edit a part of it, of at most about {fits} tokens"
        )

    def _ask(
        self,
        messages: Messages,
        reference: str,
        settings: Mapping[str, Any],
        *,
        plain: bool,
        on_token: Callable[[Chunk], object] | None,
    ) -> tuple[str, Chunk]:
        """Return the whole answer and its last chunk. Whatever a callback raises ends the generation."""
        parts: list[str] = []
        last: Chunk | None = None
        with closing(self.engine.stream(messages, reference, settings, plain=plain)) as chunks:
            for last in chunks:
                parts.append(last.text)
                if on_token is not None:
                    on_token(last)
        assert last is not None, "an engine yields at least one chunk"
        return "".join(parts), last


def _fitted(answer: Answer, region: Region) -> str:
    new = answer.text
    if not region.is_whole:
        new = reindented(without_echo(new, region), region.document.shown)
    return region.replaced_by(new)


def _shown(text: str) -> str:
    return Region.whole(text).document.shown


def _check_text(text: str) -> None:
    if not text.strip():
        raise InputError("the text is empty: there is nothing to edit")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text has a lone surrogate at {error.start}: it is no valid Unicode") from error
