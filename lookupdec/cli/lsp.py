"""``lookupdec lsp``: a language server for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lookupdec.cli.common import Device, Dtype, ExactMode, MaxNewTokens, ModelName, Phrases, one_line_errors
from lookupdec.errors import InputError
from lookupdec.installed import remedy

if TYPE_CHECKING:
    from lookupdec.edit.editor import Editor


def lsp_command(
    tcp: Annotated[
        str | None,
        typer.Option(help="Wait for one editor here instead; this machine only.", metavar="HOST:PORT"),
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Talk over standard input and output, as is done anyway.")
    ] = False,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    exact: ExactMode = "auto",
    max_new_tokens: MaxNewTokens = None,
    phrases: Phrases = None,
) -> None:
    """Edit from within an editor: a language server with code actions. An editor starts this command."""
    with one_line_errors(stopped="stopped"):
        if stdio and tcp is not None:
            raise InputError("give either --stdio or --tcp, not both")
        try:
            from lookupdec.lsp.transport import Address, serve
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in ("pygls", "lsprotocol"):
                raise
            raise InputError(f"the language server needs {missing}: {remedy('lsp')}") from error

        def load() -> Editor:
            from lookupdec.edit.editor import Editor

            return Editor.load(model, dtype=dtype, device=device, exact=exact, phrases=phrases)

        address = None if tcp is None else Address.parse(tcp)
        serve(load, address, max_new_tokens=max_new_tokens)
