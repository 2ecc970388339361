"""The instructions an editor offers where it has no prompt: a list that the user can configure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lookupdec.errors import InputError

if TYPE_CHECKING:
    from lookupdec.lsp.server import LookupServer

SECTION = "lookupdec"

INSTRUCTIONS = (
    "Fix spelling and grammar.",
    "Fix the bug.",
    "Add type annotations.",
    "Add or update the comments and docstrings.",
    "Make it simpler without changing what it does.",
)
"""What is offered where nothing is configured."""

NO_INSTRUCTION = (
    'no instruction: write one above the selection, as a comment such as "# lookupdec: add type annotations", '
    "or send it with the command"
)


def has_menu(server: LookupServer) -> bool:
    """Whether the editor says that it can ask a question."""
    window = server.client_capabilities.window
    return window is not None and window.show_message is not None


async def choose(server: LookupServer) -> str:
    """Let the user pick an instruction, "" for none. Raises ``InputError`` where the editor cannot ask."""
    actions = [types.MessageActionItem(title=title) for title in await instructions(server)]
    if not has_menu(server):
        raise InputError(NO_INSTRUCTION)
    question = types.ShowMessageRequestParams(
        type=types.MessageType.Info, message="What is to be changed?", actions=actions
    )
    try:
        # An answer that comes after this request was stopped must still find someone who waits for it.
        answer = await asyncio.shield(server.window_show_message_request_async(question))
    except JsonRpcException as error:
        raise InputError(NO_INSTRUCTION) from error
    return answer.title if answer else ""


async def instructions(server: LookupServer) -> tuple[str, ...]:
    """Return what is configured: in the editor's settings, else when the server was started."""
    for options in (await _settings(server), server.initialization_options):
        listed = options.get("instructions") if isinstance(options, dict) else None
        if listed is not None:
            return _checked(listed)
    return INSTRUCTIONS


async def _settings(server: LookupServer) -> Any:
    workspace = server.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return None
    wanted = types.ConfigurationParams(items=[types.ConfigurationItem(section=SECTION)])
    try:
        found = await asyncio.shield(server.workspace_configuration_async(wanted))
    except JsonRpcException:
        return None
    return found[0] if found else None


def _checked(listed: object) -> tuple[str, ...]:
    if isinstance(listed, list | tuple) and listed and all(isinstance(one, str) for one in listed):
        return tuple(listed)
    raise InputError(f"the setting {SECTION}.instructions must be a list of texts: correct it")
