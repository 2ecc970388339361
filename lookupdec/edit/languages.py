"""Which language a text is in, by its name or the suffix of its file. Knows names and no grammar."""

from __future__ import annotations

from pathlib import Path

_NAMES = {
    "markdown": "md mdx",
    "python": "py pyi pyw",
    "javascript": "js jsx mjs cjs node",
    "typescript": "ts mts cts",
    "tsx": "typescriptreact",
    "go": "golang",
    "rust": "rs",
    "java": "",
    "c": "h",
    "cpp": "cc cxx hpp hh hxx c++",
    "csharp": "cs c#",
    "ruby": "rb rake",
    "php": "",
    "bash": "sh shell zsh shellscript",
}
_BY_NAME = {other: name for name, others in _NAMES.items() for other in (name, *others.split())}


def language_of(language: str | None, path: str | Path | None) -> str | None:
    """Return the common name of a text's language, None for one that is not known here.

    ``language``, a name as editors and info strings write it, counts before the suffix of ``path``.
    """
    name = language or ("" if path is None else Path(path).suffix.removeprefix("."))
    return _BY_NAME.get(name.strip().lower())
