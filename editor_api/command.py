"""The ``editor-api`` command: read the settings and serve."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_settings import CliApp

from editor_api.logs import set_up_logs
from editor_api.settings import Settings
from lookupdec.errors import LookupDecError, on_command_line
from lookupdec.installed import locate


def serve(arguments: Sequence[str]) -> int:
    """Serve until a signal comes; return the exit code."""
    try:
        settings = CliApp.run(Settings, cli_args=list(arguments))
        if settings.model is not None:
            locate(settings.model)  # what is not there is told at once, not once the service listens
        # Not before: --help should not wait for web frameworks.
        from editor_api.server import Server

        server = Server(settings)
        if taken := _why_not_free(settings):
            return _refuse(taken)
        set_up_logs(settings.log_level)
    except ValidationError as error:
        return _refuse("; ".join(_line(item, arguments) for item in error.errors()))  # type: ignore[arg-type]
    except (LookupDecError, ValueError) as error:
        return _refuse(str(error))
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # raised again once everything has ended
        server.run()
    return _refuse(server.failure) if server.failure else 0


def _why_not_free(settings: Settings) -> str:
    """Say why nothing can listen at the address, "" where something can: the server would tell it late."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((settings.host, settings.port))
        except OSError as error:
            why = error.strerror or str(error)
            return f"cannot listen at {settings.host}:{settings.port} ({why}): give another --port or --host"
    return ""


def _line(item: dict[str, object], arguments: Sequence[str]) -> str:
    place = ".".join(str(part) for part in item["loc"])  # type: ignore[attr-defined]
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{_where_given(place, arguments)}: {message}" if place else message


def _where_given(field: str, arguments: Sequence[str]) -> str:
    """Return the flag of a setting, or its variable where its value comes from there."""
    name = field.partition(".")[0]
    flag = f"--{name.replace('_', '-')}"
    variable = f"{Settings.model_config['env_prefix']}{name.upper()}"
    is_flag = any(given.partition("=")[0] == flag for given in arguments)
    return variable if variable in os.environ and not is_flag else flag


def _refuse(reason: str) -> int:
    sys.stderr.write(f"error: {on_command_line(reason)}\n")
    return 2
