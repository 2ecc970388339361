"""Read a model from the disk or the hub. Knows no device and no pass."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Literal

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from lookupdec.errors import ModelError, first_line
from lookupdec.hf.default_model import quiet_transformers
from lookupdec.installed import Source

_HUB_SECONDS = 10.0

_Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]
_log = logging.getLogger(__name__)


def read(source: Source, name: str, dtype: torch.dtype | Literal["auto"]) -> _Loaded:
    """Return the model on the CPU, and its tokenizer. Raises ``ModelError``, whatever is wrong with the files."""
    try:
        if source.is_hub_id:
            # What was downloaded before needs no network, and no waiting for one.
            with contextlib.suppress(OSError):
                return _from_pretrained(source, name, dtype, local_files_only=True)
            _check_hub(source.place)
        return _from_pretrained(source, name, dtype, local_files_only=not source.is_hub_id)
    except ModelError:
        raise
    except HFValidationError as error:
        raise ModelError(f"{name!r} is no hub id, file or folder: {first_line(error)}") from error
    except MemoryError as error:
        raise ModelError(f"{name} does not fit into memory: use a smaller model or bfloat16") from error
    except Exception as error:  # any of the dozens of errors of the file formats involved
        raise ModelError(f"cannot load {name}: {first_line(error)}") from error


def _from_pretrained(
    source: Source, name: str, dtype: torch.dtype | Literal["auto"], *, local_files_only: bool
) -> _Loaded:
    files: dict[str, Any] = {"local_files_only": local_files_only}
    if source.gguf_file:
        files["gguf_file"] = source.gguf_file
        _log.info("reading %s: dequantising it takes a while", source.gguf_file)
    with quiet_transformers():
        config = AutoConfig.from_pretrained(source.place, **files)
        _check_architecture(config, name)
        model = AutoModelForCausalLM.from_pretrained(source.place, dtype=dtype, **files)
        return model, AutoTokenizer.from_pretrained(source.place, **files)


def _check_architecture(config: PreTrainedConfig, name: str) -> None:
    # Without this, transformers gives a model of another kind an untrained vocabulary projection.
    causal = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    architectures = list(config.architectures or [])
    if config.is_encoder_decoder or (architectures and not causal.intersection(architectures)):
        kind = architectures[0] if architectures else type(config).__name__
        raise ModelError(f"{name} is no causal language model but {kind}: choose one that continues text")


def _check_hub(repo_id: str) -> None:
    # transformers retries for minutes without a network; one short question tells.
    try:
        HfApi().model_info(repo_id, timeout=_HUB_SECONDS)
    except HFValidationError:
        raise
    except (RepositoryNotFoundError, GatedRepoError) as error:
        raise ModelError(
            f"there is no model {repo_id!r} on the hub that you may read: check the name, or log in to it"
        ) from error
    except Exception as error:  # whatever the HTTP library in use raises
        raise ModelError(
            f"{repo_id} is not on this computer and the hub cannot be reached ({type(error).__name__}): "
            "check the network, or give a model folder"
        ) from error
