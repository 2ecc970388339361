"""Edit, rewrite and summarise texts with a language model. Knows no tensor and no file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookupdec.edit.answers import Answer, end_of_answer, read_answer, read_new_text, read_summary
from lookupdec.edit.diff import text_edits, unified_diff
from lookupdec.edit.echo import without_echo
from lookupdec.edit.engine import Chunk, Engine, ModelEngine
from lookupdec.edit.forms import other_forms
from lookupdec.edit.indent import reindented, retabbed
from lookupdec.edit.languages import language_of
from lookupdec.edit.plan import Planner, Question
from lookupdec.edit.positions import PositionEncoding, check_position_encoding
from lookupdec.edit.prompts import EditPrompt, Task, Templates, check_instruction
from lookupdec.edit.region import Region
from lookupdec.edit.results import EditResult, Summary, total, usage_of
from lookupdec.edit.textio import Document, check_unicode, split_bom
from lookupdec.errors import InputError
from lookupdec.limits import PREFIX_BYTES
from lookupdec.stats import Stats

if TYPE_CHECKING:
    from lookupdec.hf.loading import Exact

OnToken = Callable[[Chunk], object]
"""Called with every chunk of an answer as it arrives; what it raises ends the generation."""

LEAST_LIMIT, LIMIT_TIMES = 1024, 3
"""An answer has at most so many tokens, and so many times those of its text, where ``max_new_tokens`` is not given."""

STYLES = {
    "sentence": "one sentence.",
    "paragraph": "one short paragraph.",
    "bullets": "a list of at most five bullet points.",
}
"""The summaries that have a name; any other style is given to the model as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One request, checked as far as it can be without the model."""

    task: Task
    region: Region
    bom: str = ""
    prompt: EditPrompt
    settings: Mapping[str, Any]
    reference: str | None = None
    namespace: str | None = None
    split: bool = True
    syntax: str | None = "markdown"
    plain: bool = False
    allow_incomplete: bool = False
    on_token: OnToken | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    """A question and the model's answer to it, word for word, and what that cost."""

    question: Question
    raw: str
    finish_reason: str
    stats: Stats
    answer: Answer


class Editor:
    """Edits texts with one model. What outlives a request is kept by its engine."""

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
        exact: Exact = "auto",
        templates: Path | None = None,
        phrases: str | Path | None = None,
        prefix_bytes: int = PREFIX_BYTES,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Editor:
        """Load a model to edit with: a hub id, a folder or a GGUF file; None is the default model.

        ``dtype``, ``device``, ``exact`` and ``progress`` are those of ``lookupdec.hf.load``. ``templates`` is a folder
        with prompts to use instead of the built-in ones, ``phrases`` a file with texts that often come, such as licence
        headers (see ``lookupdec.PhraseBook``). ``prefix_bytes`` is the budget for what recent prompts had the model
        compute: the next instruction on the same text starts from there. Raises ``ModelError`` and ``FileError``.
        """
        read = Templates.load(templates)
        engine = ModelEngine.load(
            model,
            dtype=dtype,
            device=device,
            exact=exact,
            prefix_bytes=prefix_bytes,
            phrases=phrases,
            progress=progress,
        )
        return cls(engine, templates=read)

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
        namespace: str | None = None,
        split: bool = True,
        plain: bool = False,
        allow_incomplete: bool = False,
        position_encoding: PositionEncoding = "utf-16",
        on_token: OnToken | None = None,
        **settings: Any,
    ) -> EditResult:
        """Change ``text`` as ``instruction`` says, and keep the rest of it to the byte.

        Where there is no text, or only blank lines, one is written.

        Parameters
        ----------
        lines, selection
            Rewrite only these lines (counted from 1, both included) or characters (end excluded); the model
            sees what is around them, and not a character of it changes.
        language, path
            What the text is; ``language`` is told to the model, ``path`` names the text in the diff.
        context
            Other texts that the model should know.
        prediction
            What the answer is expected to repeat, where that is not the text under edit.
        namespace
            Draft from the earlier answers in the same namespace, too.
        split
            Edit a text that is longer than the model's context in parts, cut at natural borders.
        plain
            Decode without drafting: the same answer, one forward pass a token.
        allow_incomplete
            Return the text and edits of an answer that is not complete, too.
        position_encoding
            What the positions of the edits count.
        on_token
            Called with every chunk of the answer as it arrives.
        **settings
            How to generate, by the names of ``lookupdec.hf.Settings``.

        Raises
        ------
        InputError
            The request cannot be carried out as given; ``ContextFullError`` where the text is too long.
        """
        check_position_encoding(position_encoding)
        bom, text = split_bom(text)
        region, syntax = Region.of(text, lines, selection, skipped=len(bom)), language_of(language, path)
        is_new = region.is_whole and not text.strip()
        named = language or (syntax or "text" if is_new else "")
        request = _Request(
            task="create" if is_new else "whole",
            region=region,
            bom=bom,
            prompt=EditPrompt(check_instruction(instruction), language=named, context=context),
            settings=settings,
            reference=None if prediction is None else _shown(check_unicode(prediction, "prediction")),
            namespace=namespace,
            split=split,
            syntax=syntax,
            plain=plain,
            allow_incomplete=allow_incomplete,
            on_token=on_token,
        )
        return self._replace(request, path, position_encoding)

    def rewrite(
        self,
        document: str,
        instruction: str,
        *,
        path: str | Path | None = None,
        context: Sequence[str] = (),
        plain: bool = False,
        allow_incomplete: bool = False,
        on_token: OnToken | None = None,
        **settings: Any,
    ) -> EditResult:
        """Rewrite a document in Markdown or plain text: its style, its order, its length.

        One that is longer than the model's context is rewritten in parts. The parameters are those of
        ``edit``. Raises ``InputError``.
        """
        bom, text = split_bom(document)
        request = _Request(
            task="rewrite",
            region=Region.of(_with_words(text)),
            bom=bom,
            prompt=EditPrompt(check_instruction(instruction), context=context),
            settings=settings,
            plain=plain,
            allow_incomplete=allow_incomplete,
            on_token=on_token,
        )
        return self._replace(request, path, "utf-16")

    def summarize(
        self,
        document: str,
        *,
        style: str = "paragraph",
        plain: bool = False,
        on_token: OnToken | None = None,
        **settings: Any,
    ) -> Summary:
        """Summarise a document as a "sentence", a "paragraph", "bullets", or in a style in your own words.

        One that is longer than the model's context is summarised in parts, and those summaries once more.
        Raises ``InputError``.
        """
        request = _Request(
            task="summarize",
            region=Region.of(_with_words(split_bom(document)[1])),
            prompt=EditPrompt(check_instruction(STYLES.get(style, style))),
            settings=settings,
            plain=plain,
            on_token=on_token,
        )
        replies = list(self._ask(request, self._questions(request)))
        summary, stats, complete = _joined(replies), [reply.stats for reply in replies], _all_ended(replies)
        while len(replies) > 1 and len(summary) < len(request.region.text):
            request = replace(request, region=Region.of(summary))
            replies = list(self._ask(request, self._questions(request)))
            summary, complete = _joined(replies), complete and _all_ended(replies)
            stats += [reply.stats for reply in replies]
        cost = total(stats)
        warnings = () if complete else ("the summary is empty or was cut",)
        return Summary(summary, complete, warnings, usage_of(cost), cost)

    def _replace(
        self, request: _Request, path: str | Path | None, position_encoding: PositionEncoding
    ) -> EditResult:
        """Put the answers in the place of what they replace."""
        region, text = request.region, request.bom + request.region.text
        questions = self._questions(request)
        replies = list(self._ask(request, questions))
        answers = [reply.answer for reply in replies]
        complete = all(answer.complete for answer in answers)
        new_text = text
        if complete or request.allow_incomplete:
            pieces = [_fitted(reply) for reply in replies]
            new_text = request.bom + region.text[: region.start] + "".join(pieces) + region.text[region.end :]
        cost = total(reply.stats for reply in replies)
        return EditResult(
            text=new_text,
            edits=text_edits(text, new_text, position_encoding=position_encoding),
            diff=unified_diff(text, new_text, str(path or "text")),
            changed=new_text != text,
            complete=complete,
            warnings=tuple(_warnings(replies)),
            base_sha256=hashlib.sha256(text.encode()).hexdigest(),
            usage=usage_of(cost),
            stats=cost,
            answer="".join(reply.raw for reply in replies),
            parts=len(questions),
        )

    def _questions(self, request: _Request) -> list[Question]:
        self.engine.check(request.settings)
        planner = Planner(self.engine, self.templates, request.settings.get("max_new_tokens"))
        return planner.questions(
            request.task,
            request.region,
            request.prompt,
            may_split=request.split,
            language=request.syntax,
        )

    def _ask(self, request: _Request, questions: Sequence[Question]) -> Iterator[_Reply]:
        """Ask in turn; an answer that nothing can be done with is the last one."""
        for question in questions:
            reply = self._answer(question, request)
            yield reply
            if not (reply.answer.complete or request.allow_incomplete or request.task == "summarize"):
                return

    def _answer(self, question: Question, request: _Request) -> _Reply:
        expected = question.original if request.reference is None else request.reference
        parts: list[str] = []
        last: Chunk | None = None
        end: int | None = None
        line = ""  # the one under way, and what has come since
        # Elsewhere a code block may be content.
        ends_with_block = request.task in ("whole", "part") and request.syntax != "markdown"
        chunks = self.engine.stream(
            question.messages,
            (expected, *other_forms(expected, request.prompt.instruction)),
            self._limited(request.settings, {expected, question.original}),
            plain=request.plain,
            namespace=request.namespace,
        )
        with closing(chunks):
            for last in chunks:
                parts.append(last.text)
                if request.on_token is not None:
                    request.on_token(last)
                line += last.text
                if ends_with_block and _may_close_block(line):
                    end = end_of_answer("".join(parts), question.original)
                    if end is not None:
                        break
                line = line.rpartition("\n")[2]
        assert last is not None, "an engine yields at least one chunk"
        raw, reason, stats = "".join(parts), last.finish_reason or "stop", last.stats
        if end is not None:
            stats = replace(stats, tokens=stats.tokens - _pieces_within(last.pieces, len(raw) - end))
            raw, reason = raw[:end], "stop"
        asked = self.templates.sentences(request.prompt)
        if request.task == "create":
            answer = read_new_text(raw, language=request.syntax, finish_reason=reason, asked=asked)
        else:
            answer = read_answer(
                raw, question.original, language=request.syntax, finish_reason=reason, asked=asked
            )
        return _Reply(question, raw, reason, stats, answer)

    def _limited(self, settings: Mapping[str, Any], texts: Set[str]) -> Mapping[str, Any]:
        """Return settings with a limit for an answer about as long as the longest text, where none was given.

        A small model may go on to the end of its context. What needs more room can ask for it.
        """
        if settings.get("max_new_tokens") is not None:
            return settings
        longest = max(map(self.engine.count_text, texts))
        return {**settings, "max_new_tokens": LEAST_LIMIT + LIMIT_TIMES * longest}


def _pieces_within(pieces: Sequence[str], length: int) -> int:
    """Return how many of a text's last pieces lie wholly in its last ``length`` characters."""
    count = 0
    for piece in reversed(pieces):
        length -= len(piece)
        if length < 0:
            break
        count += 1
    return count


def _may_close_block(lines: str) -> bool:
    return "\n" in lines and ("```" in lines or "~~~" in lines)


def _with_words(document: str) -> str:
    if not document.strip():
        raise InputError("the text is empty: there is nothing to work on")
    return document


def _fitted(reply: _Reply) -> str:
    """Return what takes a piece's place, with its line endings and, inside a text, its indentation."""
    region, old = reply.question.region, reply.question.original
    new = retabbed(reply.answer.text, old)
    if not region.is_whole:
        stripped = without_echo(new, region)
        # Where the answer began with neighbours, their indentation is not the piece's.
        if not new.startswith(stripped):
            new = stripped
        # The indentation first: a dedented last line can look like the line after the piece.
        new = without_echo(reindented(new, old, line_before=region.line_before), region)
    return region.replacement(new)


def _warnings(replies: Sequence[_Reply]) -> Iterator[str]:
    for reply in replies:
        place = f"from line {reply.question.region.first_line}: " if len(replies) > 1 else ""
        for warning in reply.answer.warnings:
            yield place + warning


def _joined(replies: Sequence[_Reply]) -> str:
    return "\n\n".join(read_summary(reply.raw) for reply in replies)


def _all_ended(replies: Sequence[_Reply]) -> bool:
    return all(reply.finish_reason == "stop" and read_summary(reply.raw) for reply in replies)


def _shown(text: str) -> str:
    return Document(text).shown
