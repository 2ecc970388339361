"""``lookupdec lsp`` around an engine that recites; what it does is given as one JSON object.

``answer`` is the answer, where the reference itself is not to come back with ``replace`` applied; ``delay`` are
seconds before each pass, ``error`` is what loading ends with. The engine is there once the file ``load`` is, and
passes after the first ``FREE_PASSES`` wait for the file ``gate``. Each pass is a line in the file ``passes``, each
prompt one in the file ``prompts``.
"""

import json
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookupdec.edit import Editor
from lookupdec.errors import ModelError
from lookupdec.lsp import transport
from tests.edit.scripted import ScriptedChunk, ScriptedEngine

FREE_PASSES = 3


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


@dataclass
class SlowEngine(ScriptedEngine):
    delay: float = 0.0
    gate: Path | None = None
    passes: Path | None = None
    prompts_file: Path | None = None

    def stream(self, messages, reference, settings, *, plain=False, namespace=None):
        if self.prompts_file is not None:
            with self.prompts_file.open("a") as file:
                file.write(json.dumps(messages[-1]["content"]) + "\n")
        return super().stream(messages, reference, settings, plain=plain, namespace=namespace)

    def _chunks(self, answer: str, prompt: int, accepted: int) -> Generator[ScriptedChunk, None, None]:
        for number, chunk in enumerate(super()._chunks(answer, prompt, accepted)):
            time.sleep(self.delay)
            if self.gate is not None and number >= FREE_PASSES:
                wait_for(self.gate)
            if self.passes is not None:
                with self.passes.open("a") as file:
                    file.write(f"{number}\n")
            yield chunk


def loader(options: dict[str, Any]) -> Callable[[], Editor]:
    def answer(reference: str) -> str:
        for old, new in options.get("replace", {}).items():
            reference = reference.replace(old, new)
        return str(options.get("answer", reference))

    def path(name: str) -> Path | None:
        return Path(options[name]) if name in options else None

    def load() -> Editor:
        if "load" in options:
            wait_for(Path(options["load"]))
        if "error" in options:
            raise ModelError(options["error"])
        engine = SlowEngine(
            answer,
            options.get("finish_reason", "stop"),
            delay=options.get("delay", 0),
            gate=path("gate"),
            passes=path("passes"),
            prompts_file=path("prompts"),
        )
        return Editor(engine)

    return load


if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    transport._SECONDS_TO_SPEAK = 300.0  # editors may be slow
    transport.serve(loader(chosen), transport.Address.parse(chosen["tcp"]) if "tcp" in chosen else None)
