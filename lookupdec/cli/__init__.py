"""The ``lookupdec`` command. Knows no tensor; what is heavy is imported inside the commands."""

from __future__ import annotations

import sys

from lookupdec.installed import remedy


def main() -> None:
    """Run the command line and exit: 0 done, 2 bad input, 3 an answer that is not complete, 130 on Ctrl-C."""
    try:
        from lookupdec.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs {error.name}: {remedy('cli')}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())
