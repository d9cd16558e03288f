"""Our kernels against PyTorch's on a GPU: TFLOP/s forward and backward, and whether they are right.

    attnc compile benchmarks/specs -o benchmarks/generated      # anywhere; the rest needs no attnc
    python benchmarks/gpu.py [--quick] [--output benchmarks/results/gpu]

It needs torch, triton and the generated files.  Peers: scaled_dot_product_attention with the flash,
cuDNN and efficient backends, and compiled flex_attention, each where it can express the variant.
FLOPs are those of visible pairs: 4 D for each forward, 2.5 times as many backward.  Times are
medians by CUDA events, L2 flushed before each run (Triton's do_bench).  What is timed is checked:
the last rows of the result against a dense float32 reference at the timed length, and at a short
length results and gradients of q, k and v.  One JSON and one table come out; what --seconds did not
suffice for is named.  --dry-run needs attnc and no GPU: it compiles every kernel for sm_90, and
runs all of it in Triton's interpreter at a tiny length; its times mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = Path(__file__).parent
WINDOW, PREFIX, CAP = 1024, 1024, 50.0
SHORT = 384  # of the check of gradients
TINY = 64  # the length of a dry run
ROWS = 64  # of the check at the timed length
SLACK = 4.0  # errors may be so many times those of the dense computation in the same dtype
CHOSEN = "attnc, choices"  # tma, skew, last_first
FLOOR = 2e-2  # and this much of the largest value

Pairs = Callable[[float], float]  # visible pairs of a head at a length
Attention = Callable[[Mapping[str, Tensor]], Tensor]


def _causal(n: float) -> float:
    return n * (n + 1) / 2


def _windowed(n: float) -> float:
    return _causal(n) - _causal(max(0, n - WINDOW))


def _prefixed(n: float) -> float:
    return _causal(n) + _causal(min(n, PREFIX)) - min(n, PREFIX)


@dataclass(frozen=True, slots=True)
class Variant:
    """A spec in benchmarks/specs, and how PyTorch says the same.

    sdpa: keywords of scaled_dot_product_attention; None where it cannot say it without a dense
    mask.  score, mask: names of functions of FlexAttention, made from the call's tensors.
    """

    name: str
    heads: tuple[int, int]
    dim: int
    pairs: Pairs
    sdpa: Mapping[str, Any] | None = None
    score: str = ""
    mask: str = ""
    batch: int = 1
    lengths: tuple[int, ...] = (1024, 4096, 16384)

    def inputs(self, n: int, device: str) -> dict[str, Tensor]:
        """Random tensors of a call; documents of about a fifth of the length."""
        draw = torch.Generator(device=device).manual_seed(n)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draw, device=device, dtype=torch.bfloat16)

        found = {"q": normal(self.batch, self.heads[0], n, self.dim)}
        found |= {x: normal(self.batch, self.heads[1], n, self.dim) for x in "kv"}
        if self.name.startswith("documents"):
            ids = torch.arange(n, device=device, dtype=torch.int32) * 5 // max(1, n)
            found["ids"] = ids.expand(self.batch, n).contiguous()
        if self.name.startswith("bias"):
            found["bias"] = normal(self.heads[0], n, n)
        return found

    def flops(self, n: int) -> float:
        """Of one forward."""
        return 4.0 * self.batch * self.heads[0] * self.dim * self.pairs(n)


VARIANTS = (
    Variant("full_d64", (16, 16), 64, lambda n: n * n, {}),
    Variant("full_d128", (16, 16), 128, lambda n: n * n, {}),
    Variant("causal_d64", (16, 16), 64, _causal, {"is_causal": True}, mask="causal"),
    Variant("causal_d128", (16, 16), 128, _causal, {"is_causal": True}, mask="causal"),
    Variant("gqa_d128", (32, 8), 128, _causal, {"is_causal": True, "enable_gqa": True},
            mask="causal", lengths=(4096, 8192)),
    Variant("window_d128", (16, 16), 128, _windowed, mask="window", lengths=(4096, 16384)),
    Variant("softcap_d128", (16, 16), 128, _causal, score="softcap", mask="causal",
            lengths=(4096, 8192)),
    Variant("alibi_d64", (16, 16), 64, _causal, score="alibi", mask="causal",
            lengths=(4096, 8192)),
    Variant("prefix_d64", (16, 16), 64, _prefixed, mask="prefix", lengths=(4096, 8192)),
    Variant("documents_d64", (16, 16), 64, lambda n: 5 * _causal(n / 5), mask="documents",
            lengths=(4096, 8192)),
    Variant("bias_d64", (16, 16), 64, lambda n: n * n, {"bias": "bias"}, score="bias",
            batch=4, lengths=(1024, 2048)),
)  # fmt: skip
QUICK = {"full_d128": (16384,), "causal_d64": (4096, 16384), "causal_d128": (1024, 4096, 16384),
         "gqa_d128": (8192,), "window_d128": (16384,), "softcap_d128": (8192,),
         "bias_d64": (2048,)}  # fmt: skip
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One provider of one variant at one length; problem: why it has no times, or wrong numbers."""

    variant: str
    length: int
    provider: str
    forward: float = 0.0  # seconds
    backward: float = 0.0
    flops: float = 0.0
    problem: str = ""


class Bench:
    """Where things run, and until when."""

    def __init__(self, device: str, seconds: float, folder: Path) -> None:
        self.device, self.folder = device, folder
        self.until = time.monotonic() + seconds

    @property
    def has_descriptors(self) -> bool:
        """Whether the device does tensor descriptors in hardware; a rehearsal says yes."""
        return self.device != "cuda" or torch.cuda.get_device_capability() >= (9, 0)

    @property
    def is_over(self) -> bool:
        """Whether the time is spent."""
        return time.monotonic() > self.until

    def rows(self, variant: Variant, lengths: Sequence[int]) -> Iterator[Row]:
        """Every provider at every length."""
        module = self.module(variant.name)
        for n in lengths:
            for provider, attention in self.providers(variant, module):
                if self.is_over:
                    yield Row(variant.name, n, provider, problem="no time left")
                    continue
                yield self.row(variant, n, provider, attention, module)

    def row(
        self, variant: Variant, n: int, provider: str, attention: Attention, module: ModuleType
    ) -> Row:
        """Check and time one provider; whatever it raises is its problem."""
        try:
            if problem := self.problem(variant, n, attention, module):
                return Row(variant.name, n, provider, problem=problem)
            inputs = self.leaves(variant.inputs(n, self.device))
            out = attention(inputs)
            grad = torch.randn_like(out)
            wanted = [x for x in inputs.values() if x.requires_grad]
            with torch.no_grad():
                forward = self.time(lambda: attention(inputs))
            backward = self.time(lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True))
            return Row(variant.name, n, provider, forward, backward, variant.flops(n))
        except Exception as error:
            first = (str(error).splitlines() or [""])[0][:100]
            return Row(variant.name, n, provider, problem=f"{type(error).__name__}: {first}")

    def module(self, name: str) -> ModuleType:
        """A generated file."""
        path = self.folder / f"{name}.py"
        if not path.exists():
            sys.exit(f"{path} is missing: attnc compile benchmarks/specs -o {self.folder}")
        description = importlib.util.spec_from_file_location(f"bench_{name}", path)
        assert description is not None and description.loader is not None
        module = importlib.util.module_from_spec(description)
        sys.modules[description.name] = module
        description.loader.exec_module(module)
        return module

    def providers(self, variant: Variant, module: ModuleType) -> Iterator[tuple[str, Attention]]:
        """Ours first."""
        yield "attnc", lambda x: module.attention(**x)
        if self.has_descriptors and (schedule := _choices(module)):
            yield CHOSEN, lambda x: module.attention(**x, schedule=schedule)
        if variant.sdpa is not None:
            for name, backend in BACKENDS.items():
                yield name, self.sdpa(variant, backend)
        yield "flex", self.flex(variant)

    def sdpa(self, variant: Variant, backend: SDPBackend) -> Attention:
        """scaled_dot_product_attention by one backend; on a CPU there is only one."""
        given = dict(variant.sdpa or {})
        bias = given.pop("bias", None)

        def attention(x: Mapping[str, Tensor]) -> Tensor:
            mask = x[bias].expand(x["q"].shape[0], -1, -1, -1) if bias else None
            with sdpa_kernel([backend]) if self.device == "cuda" else nullcontext():
                return F.scaled_dot_product_attention(x["q"], x["k"], x["v"], mask, **given)

        return attention

    def flex(self, variant: Variant) -> Attention:
        """Compiled flex_attention; functions and block mask are made once for a call's tensors."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        run: Any = torch.compile(flex_attention) if self.device == "cuda" else flex_attention
        made: dict[int, tuple[Any, Any, Any]] = {}  # with the tensors, so that no id comes twice

        def options(x: Mapping[str, Tensor]) -> tuple[Any, Any]:
            n, batch = x["q"].shape[2], x["q"].shape[0] if "ids" in x else None
            score = SCORES[variant.score](x) if variant.score else None
            if not variant.mask:
                return score, None
            mask = MASKS[variant.mask](x)
            return score, create_block_mask(mask, batch, None, n, n, device=self.device)

        def attention(x: Mapping[str, Tensor]) -> Tensor:
            if id(x) not in made:
                made[id(x)] = (x, *options(x))
            _, score, mask = made[id(x)]
            grouped = variant.heads[0] != variant.heads[1]
            more = {"score_mod": score, "block_mask": mask, "enable_gqa": grouped}
            return run(x["q"], x["k"], x["v"], **more)

        return attention

    def problem(self, variant: Variant, n: int, attention: Attention, module: ModuleType) -> str:
        """What is wrong with a provider's numbers; empty if nothing is."""
        inputs = variant.inputs(n, self.device)
        with torch.no_grad():
            last = attention(inputs)[:, :, -ROWS:]
            tail = {**inputs, "q": inputs["q"][:, :, -ROWS:]}
            if "bias" in tail:
                tail["bias"] = tail["bias"][:, -ROWS:]
            truth, plain = module.reference(**_wide(tail)), module.reference(**tail)
        if problem := _far(last, plain, truth):
            return f"out: {problem}"
        short = variant.inputs(min(n, SHORT), self.device)
        found = self.pulled(attention, short)
        plain = self.pulled(lambda x: module.reference(**x), short)
        truth = self.pulled(lambda x: module.reference(**x), _wide(short))
        for name, gradient in found.items():
            if problem := _far(gradient, plain[name], truth[name]):
                return f"gradient of {name}: {problem}"
        return ""

    def pulled(self, attention: Attention, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of everything that may have one."""
        leaves = self.leaves(inputs)
        out = attention(leaves)
        draw = torch.Generator(device=self.device).manual_seed(1)
        grad = torch.randn(out.shape, generator=draw, device=self.device).to(out.dtype)
        wanted = {name: x for name, x in leaves.items() if x.requires_grad}
        return dict(zip(wanted, torch.autograd.grad(out, [*wanted.values()], grad), strict=True))

    def leaves(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: x.detach().requires_grad_(x.is_floating_point()) for name, x in inputs.items()
        }

    def time(self, work: Callable[[], object]) -> float:
        """Median seconds of one run."""
        if self.device != "cuda":
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        from triton.testing import do_bench

        milliseconds = do_bench(work, warmup=25, rep=100, return_mode="median")
        assert isinstance(milliseconds, float)
        return 1e-3 * milliseconds


def _choices(module: ModuleType) -> dict[str, Any]:
    """A schedule that takes every choice of the kernels where it should pay; empty: there is none.

    The forward's tile is the one that skew wants on sm_90.
    """
    offered: Mapping[str, Sequence[str]] = getattr(module, "CHOICES", {})
    made: dict[str, Any] = {
        kernel: {name: True for name in offered if kernel in offered[name]}
        for kernel in module.KERNELS
    }
    made.get("backward_kv", {}).pop("last_first", None)  # its first tiles have the most to do
    own = made.pop("forward")
    tile = {"block_q": 128, "block_kv": 128, "warps": 8, "stages": 2}
    return {**tile, **own, **{name: one for name, one in made.items() if one}} if own else {}


Mod = Callable[..., Tensor]


def _biased(x: Mapping[str, Tensor]) -> Mod:
    bias = x["bias"]
    return lambda s, b, h, i, j: s + bias[h, i, j]


def _same_document(x: Mapping[str, Tensor]) -> Mod:
    ids = x["ids"]
    return lambda b, h, i, j: (i >= j) & (ids[b, i] == ids[b, j])


SCORES: dict[str, Callable[[Mapping[str, Tensor]], Mod]] = {
    "softcap": lambda x: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
    "alibi": lambda x: lambda s, b, h, i, j: s - torch.exp2(-(h + 1) * 0.5) * (i - j),
    "bias": _biased,
}
MASKS: dict[str, Callable[[Mapping[str, Tensor]], Mod]] = {
    "causal": lambda x: lambda b, h, i, j: i >= j,
    "window": lambda x: lambda b, h, i, j: (i >= j) & (i - j < WINDOW),
    "prefix": lambda x: lambda b, h, i, j: (i >= j) | (j < PREFIX),
    "documents": _same_document,
}


def _wide(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.float() if name in "qkv" else x for name, x in inputs.items()}


def _far(got: Tensor, plain: Tensor, truth: Tensor) -> str:
    """How far a tensor is from the truth, where that is more than a plain computation may be."""
    if not bool(got.isfinite().all()):
        return "not finite"
    error = float((got.float() - truth.float()).abs().max())
    limit = SLACK * float((plain.float() - truth.float()).abs().max()) + FLOOR * float(
        truth.float().abs().max()
    )
    return "" if error <= limit else f"error {error:.3g}, limit {limit:.3g}"


def table(rows: Sequence[Row], about: Mapping[str, str]) -> list[str]:
    """The rows as Markdown, each provider beside ours."""
    lines = ["# Measured on a GPU", "", *(f"* {name}: {what}" for name, what in about.items())]
    lines += ["", "| variant | length | provider | forward | backward | ours / theirs |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    ours = {(row.variant, row.length): row for row in rows if row.provider == "attnc"}
    for row in rows:
        own = ours[row.variant, row.length]
        cells = [row.variant, str(row.length), row.provider]
        if row.problem:
            lines.append(f"| {' | '.join(cells)} | {row.problem} | | |")
            continue
        speeds = [row.flops / row.forward / 1e12, 2.5 * row.flops / row.backward / 1e12]
        ratio = ""
        if row is not own and not own.problem:
            ratio = f"{row.forward / own.forward:.2f}, {row.backward / own.backward:.2f}"
        cells += [f"{speed:.0f} TFLOP/s" for speed in speeds]
        lines.append(f"| {' | '.join(cells)} | {ratio} |")
    best = _ratios(rows, ours)
    for provider, ratios in best.items():
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines.append(
            f"\nagainst {provider}: {mean:.2f} times its speed (geometric mean of {len(ratios)})"
        )
    return lines


def _ratios(rows: Sequence[Row], ours: Mapping[tuple[str, int], Row]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        own = ours[row.variant, row.length]
        if row is not own and not row.problem and not own.problem:
            pair = [row.forward / own.forward, row.backward / own.backward]
            found.setdefault(row.provider, []).extend(pair)
    return found


def _compile_for_sm_90(kernels: Path) -> None:
    """Compile every kernel down to machine code, and print what it takes there."""
    specs = sorted(map(str, (HERE / "specs").glob("*.yaml")))
    command = ["attnc", "compile", *specs, "-o", str(kernels), "--target", "sm_90"]
    subprocess.run([sys.executable, "-m", *command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few lengths, 200 seconds")
    parser.add_argument("--seconds", type=float, default=0.0, help="of everything; default 1800")
    parser.add_argument("--variants", default="", help="names, comma-separated; else all")
    parser.add_argument("--lengths", default="", help="comma-separated, in place of each variant's")
    parser.add_argument("--kernels", type=Path, default=HERE / "generated")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU; the times mean nothing")
    parser.add_argument("--output", type=Path, help="default: results/gpu; of a dry run, dry_run")
    options = parser.parse_args()
    place = options.output or HERE / ("dry_run" if options.dry_run else "results/gpu")
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("no GPU is here; --dry-run runs it on the CPU")
    device = "cpu" if options.dry_run else "cuda"
    if options.dry_run:
        _compile_for_sm_90(options.kernels)
        os.environ["TRITON_INTERPRET"] = "1"  # before a kernel's module is loaded
    bench = Bench(device, options.seconds or (200 if options.quick else 1800), options.kernels)
    names = (
        options.variants.split(",")
        if options.variants
        else list(QUICK if options.quick else {v.name: v for v in VARIANTS})
    )
    rows: list[Row] = []
    for variant in (one for one in VARIANTS if one.name in names):
        lengths = QUICK.get(variant.name, variant.lengths) if options.quick else variant.lengths
        if options.dry_run:
            lengths = (TINY,)
        if options.lengths:
            lengths = tuple(map(int, options.lengths.split(",")))
        for row in bench.rows(variant, lengths):
            rows.append(row)
            print(row, flush=True)
    import triton

    about = {
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "CPU, a rehearsal",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "inputs": "bf16, normal",
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    plain = {"about": about, "rows": [asdict(row) for row in rows]}
    place.with_suffix(".json").write_text(json.dumps(plain, indent=1) + "\n")
    text = "\n".join(table(rows, about)) + "\n"
    place.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
