"""The errors a caller can act on.

    LookupDecError
    |-- InputError           what was asked for cannot be done: change the request
    |   |-- ContextFullError     the prompt does not fit the model's context
    |   `-- FileError            a file cannot be read, decoded or written
    |-- ModelError           the model cannot be found, loaded or used: change the model
    |   `-- UnsupportedCacheError   its KV cache cannot be rolled back
    `-- DrafterError         a drafter was driven out of order or with bad ids: a bug in the caller

Every message is one line that says what is wrong and what to do about it.
"""

import re

_PYTHON_OPTION = re.compile(r"\b(device|dtype|exact)='([^']*)'")


class LookupDecError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(LookupDecError, ValueError):
    """The request cannot be carried out as given."""


class ContextFullError(InputError):
    """The prompt leaves no room in the model's context."""


class FileError(InputError):
    """A file cannot be read, decoded or written."""


class ModelError(LookupDecError):
    """The model cannot be found, loaded or used."""


class UnsupportedCacheError(ModelError):
    """The model's KV cache cannot be rolled back."""


class DrafterError(LookupDecError, ValueError):
    """A drafter was driven out of order, or given ids or limits it cannot take."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def on_command_line(message: str) -> str:
    """Return a message in one line, with what is written ``device='cpu'`` in Python as the option ``--device cpu``."""
    return _PYTHON_OPTION.sub(r"--\1 \2", " ".join(message.split()))
