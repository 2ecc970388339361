"""The service under load: 1 to 16 clients with drafting on and off, and short edits beside a long rewrite.

    python -m benchmarks.service [--clients 1 2 4 8 16] [--requests 16] [--new-tokens 64] [--rounds 8]

Two servers with the default model run beside each other, one with --no-drafting; only one is asked at a time. Real
edits from datasets/ go to /v1/edits, each prompt new to its server. Prints tokens per second and latencies, then one
JSON line, and writes benchmarks/results/service.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from time import monotonic, sleep
from typing import Any

import httpx2
import torch

from benchmarks.common import RESULTS, ROOT, keep

SHORT = 1600  # characters of a short text
PATIENCE = 600.0
LONG_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class Level:
    """What some clients got."""

    clients: int
    drafting: bool
    requests: int
    tokens_per_second: float
    p50: float
    p95: float


@contextmanager
def server(*flags: str) -> Iterator[str]:
    """Run a server on a free port; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "editor_api", "--port", str(port), "--log-level", "error", *flags]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        address = f"http://127.0.0.1:{port}"
        give_up = monotonic() + PATIENCE
        while not _is_ready(address):
            if process.poll() is not None or monotonic() > give_up:
                raise SystemExit("error: the service did not start")
            sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/ready").status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


def bodies(count: int, new_tokens: int) -> list[dict[str, Any]]:
    """Return short edits, each with a text that no earlier one had."""
    lines = (ROOT / "datasets" / "edits.jsonl").read_text("utf-8").splitlines()
    items = [item for item in map(json.loads, lines) if len(item["input"]) < SHORT]
    return [
        {
            # The name makes every prompt a new one from its first lines on.
            "input": f"version {number}\n{items[number % len(items)]['input']}",
            "instruction": items[number % len(items)]["instruction"],
            "max_tokens": new_tokens,
            "return": ["text"],
            "session": f"s{number}",
        }
        for number in range(count)
    ]


async def post(client: httpx2.AsyncClient, body: dict[str, Any]) -> tuple[float, int]:
    """Return seconds and tokens of an edit."""
    began = monotonic()
    answer = await client.post("/v1/edits", json=body)
    answer.raise_for_status()
    return monotonic() - began, int(answer.json()["usage"]["completion_tokens"])


async def level(address: str, clients: int, asked: Sequence[dict[str, Any]], *, drafting: bool) -> Level:
    """Have ``clients`` share the requests."""
    waiting = list(asked)
    results: list[tuple[float, int]] = []

    async def work(client: httpx2.AsyncClient) -> None:
        while waiting:
            results.append(await post(client, waiting.pop()))

    began = monotonic()
    async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    seconds = monotonic() - began
    taken = sorted(seconds for seconds, _ in results)
    tokens = sum(tokens for _, tokens in results)
    p95 = taken[min(len(taken) - 1, int(0.95 * len(taken)))]
    return Level(clients, drafting, len(asked), tokens / seconds, median(taken), p95)


async def beside_a_long_rewrite(address: str, asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds of short edits alone and beside a rewrite that outlasts them, in turns."""
    alone: list[float] = []
    beside: list[float] = []
    text = "\n".join(f"{number}. The quick brown fox jumps over the lazy dog." for number in range(90))
    long = {
        "model": "",
        "messages": [{"role": "user", "content": f"{text}\n\nCopy the text above."}],
        "max_tokens": LONG_TOKENS,
        "logit_bias": {"2": -100},  # it never ends by itself
        "stream": True,
    }
    async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
        for number, body in enumerate(asked):
            apart = {**body, "session": f"alone{number}"}
            alone.append((await post(client, apart))[0])
            async with client.stream("POST", "/v1/chat/completions", json=long) as stream:
                received = stream.aiter_lines()
                await anext(received)  # it has begun
                beside.append((await post(client, {**body, "session": f"beside{number}"}))[0])
    ratios = [later / first for first, later in zip(alone, beside, strict=True)]
    return {
        "alone_p50": median(alone),
        "beside_p50": median(beside),
        "alone_p95": max(alone),
        "beside_p95": max(beside),
        "median_ratio": median(ratios),
        "worst_ratio": max(ratios),
    }


async def measure(options: argparse.Namespace, on: str, off: str) -> dict[str, Any]:
    """Run all levels, drafting on and off in turns, then the long rewrite."""
    levels: list[Level] = []
    for clients in options.clients:
        asked = bodies(len(levels) * 100 + options.requests, options.new_tokens)[len(levels) * 100 :]
        for address, drafting in ((off, False), (on, True)):
            found = await level(address, clients, asked, drafting=drafting)
            levels.append(found)
            print(
                f"{clients:3} clients, drafting {'on ' if drafting else 'off'}: {found.tokens_per_second:6.1f} tok/s, "
                f"p50 {found.p50:5.2f} s, p95 {found.p95:5.2f} s",
                flush=True,
            )
    asked = bodies(5000 + options.rounds, options.new_tokens)[5000:]
    beside = await beside_a_long_rewrite(on, asked)
    print(
        f"short edits: alone {beside['alone_p50']:.2f} s, beside a long rewrite {beside['beside_p50']:.2f} s, "
        f"ratio {beside['median_ratio']:.2f} (worst {beside['worst_ratio']:.2f})"
    )
    return {"levels": [asdict(item) for item in levels], "beside_a_long_rewrite": beside}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--requests", type=int, default=16, help="requests of each level")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8, help="short edits beside a long rewrite")
    options = parser.parse_args()
    with server() as on, server("--no-drafting") as off:
        results = asyncio.run(measure(options, on, off))
    kept = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "new_tokens": options.new_tokens,
        **results,
    }
    keep(RESULTS / "service.json", kept)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
