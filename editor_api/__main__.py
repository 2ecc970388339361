"""``python -m editor_api``: read the settings and serve."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_settings import CliApp

from editor_api.logs import set_up_logs
from editor_api.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; return the exit code."""
    try:
        settings = CliApp.run(Settings, cli_args=list(sys.argv[1:] if arguments is None else arguments))
        # Not before: --help should not wait for web frameworks.
        from editor_api.server import Server

        server = Server(settings)
        set_up_logs(settings.log_level)
    except ValidationError as error:
        return _refuse("; ".join(_line(item) for item in error.errors()))  # type: ignore[arg-type]
    except ValueError as error:
        return _refuse(str(error))
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # raised again once everything has ended
        server.run()
    return _refuse(server.failure) if server.failure else 0


def _line(item: dict[str, object]) -> str:
    place = ".".join(str(part) for part in item["loc"])  # type: ignore[attr-defined]
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"--{place.replace('_', '-')}: {message}" if place else message


def _refuse(reason: str) -> int:
    sys.stderr.write(f"error: {' '.join(reason.split())}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
