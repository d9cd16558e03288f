"""From the tree of a spec to a checked AttentionSpec.  Gathers every mistake and raises once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from attnc.errors import SpecErrors
from attnc.source import Span
from attnc.spec import mistakes
from attnc.spec.fields import root_section
from attnc.spec.formula_text import FormulaText
from attnc.spec.formulas import Declared, ReadFormula, read_formula
from attnc.spec.frozen import FrozenMap, frozen
from attnc.spec.kinds import Report
from attnc.spec.names import derived_from, spec_name_problem
from attnc.spec.param_values import check_param_values
from attnc.spec.schema import AttentionSpec, Param, Sizes, Tensor, Tunable
from attnc.spec.sections import gathered
from attnc.spec.yaml_reader import Mapping, Node, Scalar, Sequence
from attnc.symbols import MAX_PARAM

_ROLES = {"scale": "1/sqrt(d)", "score": "score", "mask": "true"}
_CHECK_LENGTHS = {"q_len": 128, "kv_len": 128}  # what an entry of `check` leaves out
_DEFAULT_CHECK = (  # tails, one, zero, more keys than queries and fewer
    Sizes(batch=2, q_len=200, kv_len=333),
    Sizes(batch=1, q_len=64, kv_len=64),
    Sizes(batch=1, q_len=1, kv_len=77),
    Sizes(batch=1, q_len=130, kv_len=1),
    Sizes(batch=1, q_len=96, kv_len=40),
    Sizes(batch=2, q_len=3, kv_len=0),
    Sizes(batch=1, q_len=0, kv_len=5),
)


def check_spec(root: Mapping) -> AttentionSpec:
    """Check a tree and make the spec of it.

    Raises: SpecErrors with every mistake found.
    """
    spec = _Checker(root).spec()
    check_param_values(spec, root)
    return spec


class _Checker:
    def __init__(self, root: Mapping) -> None:
        self.root = root
        self.path = root.source.path
        self.report: Report = []

    def spec(self) -> AttentionSpec:
        self.values = root_section(self._declared_params()).read(self.root, "", self.report)
        parts = self._heads() | self._head_dims()
        name = self._name()
        params, tensors = self._params(), self._tensors()
        parts |= self._formulas(parts, params, tensors)
        sizes = self._sizes(self.values.get("sizes", {}))
        check = self._check(params)
        if self.report:
            raise SpecErrors(self.report)
        plain = ("dtype", "layout", "fp32_dot", "backward", "head_gate", "dropout")
        fallback = {
            "dtype": "bf16",
            "layout": "bhsd",
            "fp32_dot": "ieee",
            "backward": True,
            "head_gate": False,
            "dropout": False,
        }
        return AttentionSpec(
            name=name,
            doc=self.values.get("doc", ""),
            outputs=self.values.get("outputs", ()),
            params=params,
            tensors=tensors,
            sink=self.values.get("sink", "none") == "per_head",
            sizes=sizes,
            schedule=self._schedule(),
            check=check,
            text=self.root.source.text,
            path=self.path,
            spans=self._spans(),
            **parts,
            **{key: self.values.get(key, fallback[key]) for key in plain},
        )

    def _try(self, check: Callable[[], Any]) -> Any:
        return gathered(check, self.report)

    def _declared_params(self) -> dict[str, Any]:
        """Which params are declared, read ahead: `check` and `sizes` may come before `params`."""
        node = self.root.get("params")
        if not isinstance(node, Mapping):
            return {}
        types = {
            e.key.value: e.value.get("type") for e in node.entries if isinstance(e.value, Mapping)
        }
        known = ("int", "float")
        return {
            k: {"type": v.value}
            for k, v in types.items()
            if isinstance(v, Scalar) and v.value in known
        }

    def _name(self) -> str:
        node = self.root.get("name")
        name = self.values.get("name", "") if node else PurePath(self.path).stem
        problem = spec_name_problem(name)
        if problem and not (node and "name" not in self.values):
            place = (
                node.span if node else self.root.source.span(self.root.start, self.root.start + 1)
            )
            advice = (
                "for example my_spec"
                if node
                else "the file's stem is no identifier: write name: my_spec"
            )
            self.report.append(
                mistakes.BadName(place, name=name, what="spec", problem=problem, advice=advice)
            )
        return name

    def _heads(self) -> dict[str, int]:
        heads = self.values.get("heads")
        if heads is None:
            return {}
        if isinstance(heads, int):
            return {"heads_q": heads, "heads_kv": heads}
        q, kv = heads.get("q"), heads.get("kv")
        if q and kv and q % kv:
            place = self.root.get("heads")
            assert place is not None
            self.report.append(mistakes.HeadsDoNotDivide(place.span, q=q, kv=kv))
        return {"heads_q": q, "heads_kv": kv} if q and kv else {}

    def _head_dims(self) -> dict[str, int]:
        dims = self.values.get("head_dim")
        if isinstance(dims, dict):
            return {"head_dim_qk": dims.get("qk", 0), "head_dim_v": dims.get("v", 0)}
        return {"head_dim_qk": dims or 0, "head_dim_v": dims or 0}

    def _node(self, *keys: str) -> Node:
        """The node under a path of keys, or the nearest one above it."""
        node: Node = self.root
        for key in keys:
            below = node.get(key) if isinstance(node, Mapping) else None
            node = below or node
        return node

    def _params(self) -> tuple[Param, ...]:
        params: list[Param] = []
        for name, parts in self.values.get("params", {}).items():
            kind, default = parts.get("type", "float"), parts.get("default")
            if kind == "int" and default is not None:
                default = self._whole_default(name, default)
            params.append(Param(name, kind, default))
        return tuple(params)

    def _whole_default(self, name: str, default: float) -> int:
        if default != int(default) or abs(default) > MAX_PARAM:
            node = self._node("params", name, "default")
            expected = f"a whole number of at most {MAX_PARAM} in size"
            facts = {
                "field": f"params.{name}.default",
                "expected": expected,
                "given": repr(default),
            }
            self.report.append(mistakes.BadValue(node.span, **facts))
        return int(default)

    def _tensors(self) -> tuple[Tensor, ...]:
        tensors: list[Tensor] = []
        for name, parts in self.values.get("tensors", {}).items():
            tensor = Tensor(
                name, parts.get("shape", ()), parts.get("dtype", "fp32"), parts.get("grad", False)
            )
            if tensor.grad and tensor.dtype not in ("fp32", "fp16", "bf16"):
                place = self._node("tensors", name, "grad").span
                self.report.append(mistakes.NoIntegerGradient(place, name=name, dtype=tensor.dtype))
            if name in self.values.get("params", {}):
                self._clash("tensor", name, "a param has this name")
            tensors.append(tensor)
        names = [tensor.name for tensor in tensors]
        for what in ("param", "tensor"):
            for name in self.values.get(f"{what}s", {}):
                if source := derived_from(name, names):
                    self._clash(what, name, f"generated code says this of the tensor {source}")
        return tuple(tensors)

    def _clash(self, what: str, name: str, problem: str) -> None:
        node = self.root.get(f"{what}s")
        entry = (
            next(e for e in node.entries if e.key.value == name)
            if isinstance(node, Mapping)
            else None
        )
        place = entry.key.span if entry else self.root.span
        facts = {"name": name, "what": what, "problem": problem, "advice": "rename one of them"}
        self.report.append(mistakes.BadName(place, **facts))

    def _formulas(
        self, parts: dict[str, Any], params: tuple[Param, ...], tensors: tuple[Tensor, ...]
    ) -> dict[str, Any]:
        """Read the three formulas; skipped when what they may name is itself in doubt."""
        if "heads_q" not in parts or self._declarations_are_doubtful():
            return {}
        declared = Declared(
            parts["heads_q"],
            parts["head_dim_qk"],
            {p.name: p for p in params},
            {t.name: t for t in tensors},
        )
        read: dict[str, ReadFormula] = {}
        found: dict[str, Any] = {}
        for role, default in _ROLES.items():
            text = self.values.get(role) or FormulaText.of_text(default, self.path)
            result = self._try(lambda text=text, role=role: read_formula(text, role, declared))
            if result is not None:
                read[role] = result
                found |= {role: result.formula, f"{role}_text": text.tidy()}
        if len(read) == len(_ROLES):
            self._unused(declared, frozenset().union(*(one.used for one in read.values())))
        return found | {"fixes_heads": any(one.fixes_heads for one in read.values())}

    def _declarations_are_doubtful(self) -> bool:
        """Whether a mistake in params or tensors would make another of each formula."""
        codes = ("spec/bad-name", "spec/bad-value", "spec/missing-key")
        places = [(e.span.line, e.span.column) for e in self.report if e.code in codes]
        for node in (self.root.get("params"), self.root.get("tensors")):
            if node is None:
                continue
            first, last = node.span, node.source.span(max(node.start, node.end - 1), node.end)
            ends = (first.line, first.column), (last.line, last.column)
            if any(ends[0] <= place <= ends[1] for place in places):
                return True
        return False

    def _unused(self, declared: Declared, used: frozenset[str]) -> None:
        for section, what, names in (
            ("params", "param", declared.params),
            ("tensors", "tensor", declared.tensors),
        ):
            node = self.root.get(section)
            for entry in node.entries if isinstance(node, Mapping) else ():
                if entry.key.value in names and entry.key.value not in used:
                    self.report.append(
                        mistakes.UnusedName(entry.key.span, what=what, name=entry.key.value)
                    )

    def _sizes(self, given: dict[str, Any]) -> Sizes:
        lengths = {key: given[key] for key in ("batch", "q_len", "kv_len") if key in given}
        params = tuple(sorted((key, value) for key, value in given.items() if key not in lengths))
        return Sizes(**lengths, params=params)

    def _check(self, params: tuple[Param, ...]) -> tuple[Sizes, ...]:
        declared = self._declared_params()
        required = [
            p.name
            for p in params
            if p.name in declared and not _has(self._node("params", p.name), "default")
        ]
        node = self.root.get("check")
        if node is None:
            for name in required:
                self._needs_check(self._node("params", name), name)
            return _DEFAULT_CHECK
        items = node.items if isinstance(node, Sequence) else ()
        entries: list[Sizes] = []
        for item, given in zip(items, self.values.get("check", ()), strict=False):
            for name in (name for name in required if not _has(item, name)):
                self._needs_check(item, name)
            entries.append(self._sizes(_CHECK_LENGTHS | (given or {})))
        return tuple(entries)

    def _needs_check(self, node: Node, name: str) -> None:
        self.report.append(mistakes.CheckNeedsParam(node.span, name=name))

    def _schedule(self) -> FrozenMap[Tunable | FrozenMap[Tunable]] | None:
        schedule = self.values.get("schedule", "auto")
        return None if schedule == "auto" or not schedule else frozen(schedule)

    def _spans(self) -> FrozenMap[Span]:
        """Where each key's value stands, by dotted path: `mask`, `params.width`, `check.0`."""
        spans: dict[str, Span] = {}
        for entry in self.root.entries:
            key, value = entry.key.value, entry.value
            spans[key] = value.span
            if isinstance(value, Mapping):
                spans |= {f"{key}.{below.key.value}": below.value.span for below in value.entries}
            if isinstance(value, Sequence):
                spans |= {f"{key}.{at}": item.span for at, item in enumerate(value.items)}
        return FrozenMap(spans)


def _has(node: Node, key: str) -> bool:
    """Say whether a mapping has a key; anything else is another mistake, reported already."""
    return not isinstance(node, Mapping) or node.get(key) is not None
