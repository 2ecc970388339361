"""``python -m editor_api``: the same as the ``editor-api`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lookupdec.installed import remedy

_NEEDED = (
    "fastapi",
    "llguidance",
    "prometheus_client",
    "pydantic",
    "pydantic_settings",
    "starlette",
    "uvicorn",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; return the exit code: 2 where that is not possible."""
    try:
        from editor_api.command import serve

        return serve(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.stderr.write(f"error: the service needs {missing}: {remedy('api')}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
