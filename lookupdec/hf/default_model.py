"""The default model: converted once from what is installed, and kept in a cache. Knows no decoding."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from lookupdec.errors import ModelError, first_line
from lookupdec.installed import DEFAULT_MODEL, cache_folder, default_model_file

_log = logging.getLogger(__name__)


def convert_default_model() -> Path:
    """Return the folder with the default model's converted weights, converting them first where that is due.

    The weights stay as dequantised, in float32. Several processes may do this at once: each converts into
    a folder of its own, and the first one to finish puts its folder in place in one step.
    """
    gguf = default_model_file()
    # The size tells apart the files that versions of the package carry.
    folder = cache_folder("models") / f"{gguf.stem}-{gguf.stat().st_size}"
    if not folder.is_dir():
        _convert(gguf, folder)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    _log.warning(
        "converting %s once, which takes about half a minute; it is kept in %s", DEFAULT_MODEL, folder
    )
    began = perf_counter()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    except OSError as error:
        raise ModelError(_cannot_write(folder, error)) from error
    try:
        _save_converted(gguf, temporary)
        _put_in_place(temporary, folder)
    except (OSError, RuntimeError) as error:  # safetensors reports a full disk as its own kind of error
        raise ModelError(_cannot_write(folder, error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _log.info("converted %s in %.0f s", DEFAULT_MODEL, perf_counter() - began)


def _save_converted(gguf: Path, folder: Path) -> None:
    with quiet_transformers():
        model: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    # The weights are plain float32 by now; only this mark of their origin keeps them from being saved.
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer = None
        del model.config.quantization_config
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _put_in_place(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        # Another process was first.
        if not folder.is_dir():
            raise


def _cannot_write(folder: Path, error: Exception) -> str:
    return (
        f"cannot keep the converted default model in {folder.parent} ({first_line(error)}): free 600 MB "
        "there, make it writable, or set XDG_CACHE_HOME to another folder"
    )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the progress bars of transformers out of the user's terminal."""
    was_on = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_on:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
