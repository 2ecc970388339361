"""The benchmark for GPUs runs as it is on a CPU, with a tiny model; its figures there mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import KINDS, main, read_traces
from benchmarks.pieces import PieceTokenizer

ROWS = ["plain, eager", "plain, compiled", "prompt lookup, eager", "lookupdec, eager", "lookupdec, compiled"]


def test_a_dry_run_measures_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "gpu.json"
    main(["--dry-run", "--out", str(out)])
    report = json.loads(out.read_text())["models"]["tiny"]
    assert list(report["replay"]) == ROWS
    for way in ("eager", "graphs", "compiled"):
        for context in ("24", "200"):
            by_width = report["pass_ms"][way][context]
            assert list(by_width) == ["1", "2", "4", "8", "16", "32", "64", "128"]
            assert min(by_width.values()) > 0
    counts = {label: sum(row["passes"].values()) for label, row in report["replay"].items()}
    assert counts["plain, eager"] == counts["plain, compiled"]
    assert counts["lookupdec, compiled"] < sum(report["replay"]["lookupdec, compiled"]["tokens"].values())
    # The same output, whoever decodes it.
    assert len({json.dumps(report["replay"][label]["tokens"]) for label in ROWS[2:]}) == 1
    assert "code: lookupdec over plain, compiled" in report["targets"]
    assert "tiny: floor" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: no CUDA device here: use --dry-run\n"


def test_the_traces_are_edits_of_every_kind_half_of_them_of_code() -> None:
    traces = read_traces(32000, 3000, 24)
    kinds = [kind for kind, _ in traces]
    assert len(traces) == 24
    assert {kind: kinds.count(kind) for kind in KINDS} == {
        "code_edit": 12, "config_edit": 4, "doc_rewrite": 4, "summarize": 4
    }  # fmt: skip
    for _, trace in traces:
        assert trace.prompt.min() >= 0
        assert max(trace.prompt.max(), trace.output.max()) < 32000
        assert 0 < trace.reference.start < trace.reference.stop < len(trace.prompt)


def test_pieces_cover_the_text_and_one_piece_has_one_number() -> None:
    tokenizer = PieceTokenizer(100)
    text = "def f(x):\n    return  x + 12345 # façade 日本語\n\n\treturn x"
    told = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    found = tokenizer(text, **told)
    pieces = [text[start:stop] for start, stop in found["offset_mapping"]]
    assert "".join(pieces) == text
    numbers = dict(zip(pieces, found["input_ids"], strict=True))
    assert [numbers[piece] for piece in pieces] == found["input_ids"]
    assert len(set(numbers.values())) == len(numbers)
    assert tokenizer(text, **told) == found
