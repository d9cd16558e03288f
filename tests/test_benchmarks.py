"""benchmarks/gpu.py says the same thing to attnc, to SDPA and to FlexAttention; a CPU can tell."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from attnc.driver import compile_spec
from attnc.spec import parse_spec

FOLDER = Path(__file__).parent.parent / "benchmarks"
LENGTH, SHORT = 80, "16"  # of a call; of windows and prefixes, in place of 1024


def load_gpu() -> ModuleType:
    description = importlib.util.spec_from_file_location("benchmarks_gpu", FOLDER / "gpu.py")
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[description.name] = module
    description.loader.exec_module(module)
    return module


gpu = load_gpu()


def kernels(folder: Path, name: str) -> Path:
    text = (FOLDER / "specs" / f"{name}.yaml").read_text().replace("1024", SHORT)
    folder.mkdir(exist_ok=True)
    module = compile_spec(parse_spec(text, f"{name}.yaml")).module
    (folder / module.filename).write_text(module.source)
    return folder


@pytest.mark.parametrize("variant", gpu.VARIANTS, ids=lambda variant: variant.name)
def test_every_provider_computes_the_variant(
    variant: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(variant, gpu.Variant)
    monkeypatch.setattr(gpu, "WINDOW", int(SHORT))
    monkeypatch.setattr(gpu, "PREFIX", int(SHORT))
    bench = gpu.Bench("cpu", 60, kernels(tmp_path, variant.name))
    module, inputs = bench.module(variant.name), variant.inputs(LENGTH, "cpu")
    with torch.no_grad():
        truth, plain = module.reference(**gpu._wide(inputs)), module.reference(**inputs)
        for provider, attention in bench.providers(variant, module):
            assert gpu._far(attention(inputs), plain, truth) == "", provider


def test_a_wrong_provider_is_not_timed(tmp_path: Path) -> None:
    variant = next(one for one in gpu.VARIANTS if one.name == "causal_d64")
    bench = gpu.Bench("cpu", 60, kernels(tmp_path, variant.name))
    module = bench.module(variant.name)

    def forgets_the_mask(x: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x["q"], x["k"], x["v"])

    row = bench.row(variant, LENGTH, "wrong", forgets_the_mask, module)
    assert row.problem.startswith("out: error") and row.forward == 0

    def forgets_a_gradient(x: dict[str, torch.Tensor]) -> torch.Tensor:
        return module.attention(x["q"], x["k"].detach() + 0 * x["k"], x["v"])

    row = bench.row(variant, LENGTH, "wrong", forgets_a_gradient, module)
    assert row.problem.startswith("gradient of k: error")
    row = bench.row(variant, LENGTH, "right", lambda x: module.attention(**x), module)
    assert row.problem == "" and row.forward > 0 and row.backward > 0


def test_pairs_are_counted() -> None:
    for n in (1, 500, 1024, 3000):
        i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
        assert gpu._causal(n) == int((j <= i).sum())
        assert gpu._windowed(n) == int(((j <= i) & (i - j < gpu.WINDOW)).sum())
        assert gpu._prefixed(n) == int(((j <= i) | (j < gpu.PREFIX)).sum())
