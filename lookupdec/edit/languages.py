"""Which language a text is in, by its name or the name of its file. Knows names and no grammar."""

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
    "bash": "sh shell zsh shellscript ksh bashrc zshrc profile",
}
_OTHERS = """
    yaml yml | json jsonc json5 geojson webmanifest | jsonl ndjson | toml | ini cfg conf properties | env | gitignore |
    html htm xhtml | xml xsd xsl xslt | svg | vue | svelte | css | scss | sass | less | csv | tsv | sql | graphql gql |
    proto | kotlin kt kts | scala sbt | groovy gradle jenkinsfile | clojure clj cljs edn | swift | dart | lua | r |
    nix | perl pl pm | elixir ex exs | erlang erl hrl | haskell hs | terraform tf tfvars hcl | bat cmd |
    powershell ps1 psm1 | fortran f f90 f95 f03 f08 for fortran-modern fortranfreeform | vb bas vbs visualbasic |
    vim vimrc viml | diff patch | makefile make mk gnumakefile | dockerfile containerfile | cmake
"""
"""Nothing is known of these but that a code fence is no part of them."""

_BY_NAME = {other: name for name, others in _NAMES.items() for other in (name, *others.split())}
_BY_NAME |= {other: names.split()[0] for names in _OTHERS.split("|") for other in names.split()}


def language_of(language: str | None, path: str | Path | None) -> str | None:
    """Return the common name of a text's language, None for one that is not known here.

    ``language``, a name as editors and info strings write it, counts before the suffix of ``path`` or, where the
    file has none, its name.
    """
    file = Path(path or "")
    name = language or file.suffix or file.name
    return _BY_NAME.get(name.strip().lower().removeprefix("."))
