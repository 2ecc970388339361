"""Passes and edits on a GPU, with random weights: needs nothing but this repository, and under six minutes.

    python -m benchmarks.gpu [--models 7b 1.5b] [--seconds 330] [--out FILE] [--dry-run]

For Llama-shaped models in bfloat16: what a pass of each width takes on dynamic passes (eager), on recorded graphs
(graphs) and on fused, recorded ones (compiled), after 1k and 8k tokens of context, against the floor: the bytes of the
weights over the bandwidth that copying reaches here. Then the edits of datasets/edits.jsonl are replayed through real
passes: each pass runs, and the recorded output decides what is accepted; tokens per second are those after the prefill.
Stages that would not end in time are left out, and named. Prints a short table last and writes a JSON file;
``--dry-run`` runs everything with a tiny model on the CPU and writes only where ``--out`` says.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessorList

from benchmarks import common
from benchmarks.pieces import PieceTokenizer
from lookupdec.decode import Drafter, PlainDrafter, Target, decode
from lookupdec.draft import CopyDrafter
from lookupdec.hf import Settings, fixed_width, memory
from lookupdec.hf.choose import Chooser
from lookupdec.hf.generate import prepare_inputs
from lookupdec.hf.pass_check import static_difference
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.target import ModelTarget
from lookupdec.ids import Ids
from lookupdec.peers import PromptLookup
from lookupdec.policy import CostModel
from lookupdec.replay import Trace, load_traces
from lookupdec.stats import Stats

SHAPES: dict[str, dict[str, int]] = {
    "7b": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 32000,
    },
    "1.5b": {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151936,
    },
    "tiny": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512,
    },
}  # fmt: skip
EAGER, GRAPHS, COMPILED = "eager", "graphs", "compiled"
RESULTS = common.RESULTS / "gpu.json"
TRACES = common.ROOT / "datasets" / "edits.jsonl"
KINDS = ("code_edit", "config_edit", "doc_rewrite", "summarize")
LONGEST_PROMPT = 3000
# Of an output; plain decoding's rate is even, so that a part of it tells.
MOST_TOKENS, MOST_PLAIN_TOKENS = 600, 48
COMPILING_SECONDS = 100.0  # what fusing the passes of one model may take; it is not begun with less left


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: all of it, or as little as shows that it runs."""

    contexts: tuple[int, ...] = (1024, 8192)
    timed: int = 12
    traces: int = 24
    tokens: int = MOST_TOKENS
    dtype: torch.dtype = torch.bfloat16
    copied_bytes: int = 1 << 31


DRY = Scale(contexts=(24, 200), timed=2, traces=2, tokens=40, dtype=torch.float32, copied_bytes=1 << 20)


@dataclass(slots=True)
class Row:
    """One way to decode on the same traces: by kind of edit, tokens and passes after the first token, and seconds."""

    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    passes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def add(self, kind: str, stats: Stats) -> None:
        """Take in one trace."""
        self.tokens[kind] += stats.tokens - 1
        self.passes[kind] += stats.passes
        self.seconds[kind] += stats.drafting_seconds + stats.verifying_seconds

    def rate(self, kind: str) -> float:
        """Return tokens per second; 0 where nothing was run."""
        return self.tokens[kind] / self.seconds[kind] if self.tokens[kind] else 0.0


class Recited:
    """Runs every pass of a target and waits for its choices, but emits what was recorded."""

    def __init__(self, target: Target, output: Sequence[int]) -> None:
        self._target = target
        self._output = output
        self._read = 0  # ids of the output that were read and not rewound

    def start(self, prompt: Ids) -> int:
        """Read the prompt and return the output's first id."""
        self._target.start(prompt)
        return self._output[0]

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        """Run the pass and return the recorded id after each of ``ids``, as far as the output goes."""
        next(iter(self._target.step(ids)))
        start = self._read + 1
        self._read += len(ids)
        return iter(self._output[start : start + len(ids)])

    def rewind(self, count: int) -> None:
        """Take back the last ``count`` ids."""
        self._target.rewind(count)
        self._read -= count


class Bench:
    """One model and its ways to run a pass."""

    def __init__(self, name: str, scale: Scale, device: torch.device) -> None:
        self.scale = scale
        self.device = device
        room = max(scale.contexts) + max(fixed_width.WIDTHS)
        config = AutoConfig.for_model("llama", **SHAPES[name], max_position_embeddings=room + 1)
        torch.manual_seed(0)
        auto: Any = AutoModelForCausalLM
        with torch.device(device):
            self.model: Any = auto.from_config(config, dtype=scale.dtype).to(device).eval()
        self.passes = FixedPasses(self.model, name=name, context=room, fuse=False)
        self.compiled: str | None = None  # why not, where it is not

    @property
    def weight_bytes(self) -> int:
        """Bytes that every pass reads: all weights but the embeddings, of which it reads a few rows."""
        embeddings = self.model.get_input_embeddings().weight
        return memory.weight_bytes(self.model) - int(embeddings.numel() * embeddings.element_size())

    def target(self, way: str, prompt: Sequence[int], limit: int) -> Target:
        """Return a target of one request."""
        ids = torch.tensor([list(prompt)], device=self.device)
        chooser = Chooser(ids, LogitsProcessorList(), limit=limit, sample=False)
        if way == EAGER:
            settings = Settings(max_new_tokens=limit, eos_token_id=())
            return ModelTarget(
                self.model, prepare_inputs(self.model, list(prompt), settings, limit).inputs, chooser
            )
        target = self.passes.target(chooser, needed=len(prompt) + limit - 1)
        assert target is not None
        return target

    def pass_seconds(self, way: str, context: int) -> dict[int, float]:
        """Return what a pass of each width takes after ``context`` tokens: the median, its answer waited for."""
        target = self.target(way, [1] * context, max(fixed_width.WIDTHS))
        target.start([1] * context)
        seconds: dict[int, float] = {}
        for width in fixed_width.WIDTHS:
            taken = []
            for _ in range(self.scale.timed + 2):
                begun = perf_counter()
                next(iter(target.step([1] * width)))
                taken.append(perf_counter() - begun)
                target.rewind(width)
            seconds[width] = median(taken[2:])
        return seconds

    def compile(self) -> None:
        """Fuse the passes and record them again; where that fails the graphs stay."""
        if self.device.type != "cuda":
            self.compiled = "no CUDA device: run as they are"
            return
        (lane,) = self.passes._free
        try:
            lane.capture(fuse=True)
            if difference := static_difference(self.model, lane):
                raise ValueError(difference)
        except Exception as error:  # whatever a compiler raises: the figures say so
            self.compiled = f"{type(error).__name__}: {error}".splitlines()[0]
            lane.forget_graphs()
            lane.capture(fuse=False)

    def replay(self, way: str, drafter: Drafter, trace: Trace, tokens: int) -> Stats:
        """Decode one trace and return what it took."""
        output = trace.output.tolist()
        prompt = trace.prompt.tolist()
        stats = Stats()
        target = Recited(self.target(way, prompt, tokens), output)
        steps = decode(
            target,
            drafter,
            prompt,
            limit=min(tokens, len(output)),
            is_last=lambda _: False,
            stats=stats,
            reference=trace.reference,
        )
        for _ in steps:
            pass
        return stats


def bandwidth(device: torch.device, size: int) -> float:
    """Return the bytes a second that copying on the device reads and writes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    destination = torch.empty_like(source)
    best = float("inf")
    for _ in range(8):
        _synchronize(device)
        begun = perf_counter()
        destination.copy_(source)
        _synchronize(device)
        best = min(best, perf_counter() - begun)
    return 2 * size / best


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def read_traces(vocabulary: int, longest: int, count: int) -> list[tuple[str, Trace]]:
    """Return edits that fit, with their kinds, in turns; from pieces of text, so that no tokenizer is needed."""
    by_kind: dict[str, list[Trace]] = {kind: [] for kind in KINDS}
    for trace in load_traces(TRACES, 1000, tokenizer=PieceTokenizer(vocabulary)):
        if len(trace.prompt) <= longest:
            by_kind[trace.id.rsplit("-", 1)[0]].append(trace)
    # Twice as many edits of code as of the others: the target is set for them.
    order = ("code_edit", "config_edit", "code_edit", "doc_rewrite", "code_edit", "summarize")
    turns = {kind: iter(traces) for kind, traces in by_kind.items()}
    picked: list[tuple[str, Trace]] = []
    while len(picked) < count and any(by_kind.values()):
        found = [(kind, next(turns[kind], None)) for kind in order]
        more = [(kind, trace) for kind, trace in found if trace is not None]
        if not more:
            break
        picked += more
    return picked[:count]


def warm_up_drafters() -> None:
    """Compile the drafters' kernels, which else the first trace would wait for."""
    text = list(range(1, 200)) * 2
    for drafter in (CopyDrafter(), CopyDrafter(cost=CostModel(widths=((1, 1.0), (8, 1.0)))), PromptLookup()):
        drafter.begin(text, reference=slice(0, 100))
        for _ in range(3):
            drafter.observe(drafter.propose(20)[:5])
        drafter.observe([500])
        drafter.propose(20)
        drafter.end()


def replay_all(
    bench: Bench, traces: Sequence[tuple[str, Trace]], ends_at: float, costs: dict[str, CostModel]
) -> dict[str, Row]:
    """Replay the traces in every way, trace by trace, until the time is over."""
    drafters: dict[tuple[str, str], tuple[str, Drafter, int]] = {
        ("plain", EAGER): (EAGER, PlainDrafter(), MOST_PLAIN_TOKENS),
        ("plain", COMPILED): (COMPILED, PlainDrafter(), MOST_PLAIN_TOKENS),
        ("prompt lookup", EAGER): (EAGER, PromptLookup(), bench.scale.tokens),
        ("lookupdec", EAGER): (EAGER, CopyDrafter(cost=costs[EAGER]), bench.scale.tokens),
        ("lookupdec", COMPILED): (COMPILED, CopyDrafter(cost=costs[COMPILED]), bench.scale.tokens),
    }
    rows = {f"{name}, {way}": Row() for name, way in drafters}
    for number, (kind, trace) in enumerate(traces):
        if number and perf_counter() > ends_at:
            break
        for (name, label), (way, drafter, tokens) in drafters.items():
            rows[f"{name}, {label}"].add(kind, bench.replay(way, drafter, trace, tokens))
    return rows


def measure(name: str, scale: Scale, device: torch.device, ends_at: float) -> dict[str, Any]:
    """Measure one model, as far as the time goes."""
    begun = perf_counter()
    bench = Bench(name, scale, device)
    speed = bandwidth(device, scale.copied_bytes)
    floor = bench.weight_bytes / speed
    report: dict[str, Any] = {
        "parameters": sum(p.numel() for p in bench.model.parameters()),
        "bandwidth_gb_s": round(speed / 1e9, 1),
        "floor_ms": round(1e3 * floor, 3),
        "load_seconds": round(perf_counter() - begun, 1),
    }
    print(f"{name}: {report['parameters'] / 1e9:.2f} B parameters, floor {report['floor_ms']} ms", flush=True)
    passes: dict[str, dict[int, dict[int, float]]] = {}
    for way in (EAGER, GRAPHS):
        passes[way] = {context: bench.pass_seconds(way, context) for context in scale.contexts}
        print(f"{name}: passes, {way}: {perf_counter() - begun:.0f} s", flush=True)
    if device.type == "cuda" and ends_at - perf_counter() < COMPILING_SECONDS:
        bench.compiled = f"not begun: under {COMPILING_SECONDS:.0f} s were left"
    else:
        began = perf_counter()
        bench.compile()
        report["compile_seconds"] = round(perf_counter() - began, 1)
    passes[COMPILED] = {context: bench.pass_seconds(COMPILED, context) for context in scale.contexts}
    print(
        f"{name}: passes, compiled: {bench.compiled or 'fused'}: {perf_counter() - begun:.0f} s", flush=True
    )
    shortest = scale.contexts[0]
    costs = {
        EAGER: CostModel.from_passes(passes[EAGER][shortest]),
        COMPILED: CostModel.from_widths(passes[COMPILED][shortest]),
    }
    longest = min(LONGEST_PROMPT, max(scale.contexts) - scale.tokens)
    traces = read_traces(SHAPES[name]["vocab_size"], longest, scale.traces)
    if not traces:  # the tiny model's context is shorter than any edit
        traces = [(kind, _shortened(trace, longest)) for kind, trace in read_traces(512, 10**6, scale.traces)]
    rows = replay_all(bench, traces, ends_at, costs)
    return report | {
        "compiled": bench.compiled or "fused",
        "pass_ms": {
            way: {str(c): {str(w): round(1e3 * s, 3) for w, s in by.items()} for c, by in at.items()}
            for way, at in passes.items()
        },
        "replay": {label: asdict(row) | {"tokens_s": _rates(row)} for label, row in rows.items()},
        "seconds": round(perf_counter() - begun, 1),
    }


def _shortened(trace: Trace, longest: int) -> Trace:
    return Trace(trace.id, trace.prompt[-longest:], trace.output, slice(0, longest))


def _rates(row: Row) -> dict[str, float]:
    return {kind: round(row.rate(kind), 1) for kind in KINDS if row.rate(kind)}


def targets(report: dict[str, Any]) -> dict[str, float]:
    """Return the figures that the targets are set for: ratios of pass times, and the speed-up on code."""
    ratios: dict[str, float] = {}
    for context, by_width in report["pass_ms"][COMPILED].items():
        slowest = max(by_width[str(width)] for width in fixed_width.WIDTHS if width <= 64)
        ratios[f"up to 64 over one token, {context}"] = round(slowest / by_width["1"], 2)
        ratios[f"up to 64 over the floor, {context}"] = round(slowest / report["floor_ms"], 2)
    rates = {label: row["tokens_s"].get("code_edit", 0.0) for label, row in report["replay"].items()}
    plain = rates[f"plain, {COMPILED}"]
    ratios["code: lookupdec over plain, compiled"] = (
        round(rates[f"lookupdec, {COMPILED}"] / plain, 2) if plain else 0.0
    )
    return ratios


def print_table(name: str, report: dict[str, Any]) -> None:
    """Print one model's figures."""
    print(f"\n{name}: floor {report['floor_ms']} ms ({report['bandwidth_gb_s']} GB/s), {report['compiled']}")
    print(f"{'ms a pass':<24}" + "".join(f"{width:>8}" for width in fixed_width.WIDTHS))
    for way, at in report["pass_ms"].items():
        for context, by_width in at.items():
            cells = "".join(f"{by_width[str(width)]:>8.2f}" for width in fixed_width.WIDTHS)
            print(f"{way + ', ' + context:<24}{cells}")
    print(f"{'tokens per second':<24}" + "".join(f"{kind:>13}" for kind in KINDS))
    for label, row in report["replay"].items():
        cells = "".join(f"{row['tokens_s'].get(kind, 0.0):>13.1f}" for kind in KINDS)
        print(f"{label:<24}{cells}")
    for what, ratio in report["targets"].items():
        print(f"{what}: {ratio}")


def hardware(device: torch.device) -> dict[str, Any]:
    """Return what this ran on."""
    told = common.environment() | {"torch": torch.__version__}
    if device.type == "cuda":
        told["gpu"] = torch.cuda.get_device_name(device)
        told["cuda"] = torch.version.cuda
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["7b", "1.5b"], choices=sorted(SHAPES))
    parser.add_argument("--seconds", type=float, default=330.0, help="for everything (default: 330)")
    parser.add_argument(
        "--out", type=Path, help=f"the JSON file (default: {RESULTS.name} in benchmarks/results)"
    )
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU")
    options = parser.parse_args(arguments)
    # Nothing is looked up on the hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if not options.dry_run and not torch.cuda.is_available():
        parser.exit(2, "error: no CUDA device here: use --dry-run\n")
    device = torch.device("cpu" if options.dry_run else "cuda:0")
    models = ["tiny"] if options.dry_run else options.models
    scale = DRY if options.dry_run else Scale()
    out = options.out or (None if options.dry_run else RESULTS)
    begun = perf_counter()
    reports: dict[str, Any] = {}
    warm_up_drafters()
    for number, name in enumerate(models):
        left = options.seconds - (perf_counter() - begun)
        if left < 20:
            print(f"{name}: left out, {left:.0f} s are left", flush=True)
            continue
        share = left if number == len(models) - 1 else 0.6 * left
        report = measure(name, scale, device, perf_counter() + share)
        reports[name] = report | {"targets": targets(report)}
        if out is not None:
            # After each model: what was measured stays if the next one fails.
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({"environment": hardware(device), "models": reports}, indent=1) + "\n")
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    for name, report in reports.items():
        print_table(name, report)
    print(f"\n{perf_counter() - begun:.0f} s" + (f"; written to {out}" if out is not None else ""))


if __name__ == "__main__":
    main()
