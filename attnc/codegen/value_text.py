"""Values of a READY kernel as Triton expressions, and what they need before the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sympy import Basic, Symbol
from sympy.logic.boolalg import Boolean, BooleanTrue

from attnc.codegen.addresses import Address, address
from attnc.codegen.descriptors import Descriptor, descriptor
from attnc.codegen.texts import Name
from attnc.codegen.torch_text import bare
from attnc.codegen.triton_text import TritonText
from attnc.ir.nodes import (
    Collapse,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Load,
    Loop,
    Pick,
    Start,
    Stmt,
    Store,
    Value,
)
from attnc.ir.position_ranges import learn, scalar_ranges
from attnc.ir.rebuild import lets_in
from attnc.symbols import names_in

INTEGERS = ("i32", "i64")
TYPES = {"i1": "tl.int1", "i32": "tl.int32", "i64": "tl.int64"}
LOOP_NAMES = ("tile", "step", *(f"steps_{i}" for i in range(1, 16)))


class ValueText:
    """Prints the values of one kernel."""

    def __init__(self, kernel: Kernel, dot_precision: str) -> None:
        self.kernel, self.dot_precision = kernel, dot_precision
        self.text = TritonText(_names(kernel), scalar_ranges(kernel))
        self.claimed: dict[str, str] = {}  # names of parts of addresses, and what they name
        for let in lets_of(kernel.body):
            if isinstance(let, Let):
                learn(let, self.text.ranges)

    def value(self, value: Value, axes: tuple[str, ...], dtype: str) -> str:
        """The right-hand side of a value's line."""
        match value:
            case Formula(expr):
                text = self._formula(expr, axes, dtype)
                long = dtype == "i32" and self.text.is_long(expr)
                return f"tl.cast({text}, tl.int32)" if long else text
            case Load():
                return self._load(value, axes, dtype)
            case Dot(left, right, over, add_to):
                first, second = self._rounded(left, right), self._rounded(right, left)
                turned = second if self._axes(right)[0] == over else f"tl.trans({second})"
                added = f", {add_to}" if add_to else ""
                return f'tl.dot({first}, {turned}{added}, input_precision="{self.dot_precision}")'
            case Collapse(kind, tile, over):
                along = self.text.names[tile].axes.index(over)
                if kind == "any":
                    return f"tl.max({tile}.to(tl.int32), {along}) != 0"
                return f"tl.{kind}({self._rounded_product(tile, kind)}, {along})"
            case Pick(tile, over, slot):
                self.text.used.add("pick")
                along = self.text.names[tile].axes.index(over)
                return f"pick({tile}, {slot}, {self.kernel.axis(over).tile}, {along})"
            case Fill(content):
                return f"tl.full({self.shape(axes)}, {self.text.over(content, ())}, tl.float32)"
        raise NotImplementedError(f"{type(value).__name__} in a READY kernel")

    def _rounded_product(self, tile: str, kind: str) -> str:
        """A tile to collapse, rounded where the sum's first addition could swallow its product."""
        named = (let.value for let in lets_of(self.kernel.body) if let.name == tile)
        products = (v for v in named if isinstance(v, Formula) and (v.expr.is_Mul or v.expr.is_Pow))
        if kind != "sum" or not any(products):
            return tile
        self.text.used.add("rounded")
        return f"rounded({tile})"

    def _rounded(self, name: str, other: str) -> str:
        """An operand of a product in the element type."""
        if self._is_element(name):
            return name
        if self._is_element(other):
            return f"{name}.to({other}.dtype)"
        element = next(b.name for b in self.kernel.buffers if b.dtype == "element")
        return f"{name}.to({element}_ptr.dtype.element_ty)"

    def address(self, access: Load | Store, axes: tuple[str, ...]) -> Address:
        """Where an access goes; pieces of a feature axis have offsets of their own."""
        index, claim = access.index, self._claim
        return address(self.kernel, self.text, access.buffer, index, axes, claim, _suffix(axes))

    def descriptor(self, load: Load, axes: tuple[str, ...]) -> Descriptor:
        """How a tensor descriptor does a load; pieces of equal width share one."""
        base, claim = self.address(load, axes).base, self._claim
        return descriptor(self.kernel, self.text, load, axes, base, claim)

    def _claim(self, name: str, text: str) -> str:
        """The name wanted, numbered where it names another text or a value already."""
        unique, count = name, 1
        while unique in self.text.names or self.claimed.setdefault(unique, text) != text:
            count += 1
            unique = f"{name}_{count}"
        return unique

    def guard(self, guard: Boolean, axes: tuple[str, ...]) -> str:
        """The mask argument of an access; nothing where every element exists."""
        if isinstance(guard, BooleanTrue):
            return ""
        return f", mask={self.text.over(guard, axes)}"

    def _formula(self, expr: Basic, axes: tuple[str, ...], dtype: str) -> str:
        own = self.text.print(expr, axes).axes
        text = bare(self.text.over(expr, axes))
        if own == axes:
            return text
        if not own:
            return f"tl.full({self.shape(axes)}, {text}, {TYPES.get(dtype, 'tl.float32')})"
        return f"tl.broadcast_to({text}, {self.shape(axes)})"

    def _load(self, load: Load, axes: tuple[str, ...], dtype: str) -> str:
        pointer = self.address(load, axes).pointer
        fill = "0.0" if dtype not in (*INTEGERS, "i1") else "0"
        if self.text.is_switch(load.guard):
            return f"tl.load({pointer}) if {self.text.over(load.guard, ())} else {fill}"
        guard = self.guard(load.guard, axes)
        text = f"tl.load({pointer}{guard}, other={fill})" if guard else f"tl.load({pointer})"
        if load.described is not None:
            return f"{self.descriptor(load, axes).read} if TMA else {text}"
        return f"{text}.to(tl.float32)" if dtype in ("f16", "bf16") else text

    def _axes(self, name: str) -> tuple[str, ...]:
        return self.text.names[name].axes

    def _is_element(self, name: str) -> bool:
        named = (let for let in lets_of(self.kernel.body) if let.name == name)
        return any(let.dtype == "element" for let in named)

    def shape(self, axes: tuple[str, ...]) -> str:
        """The shape of a tile over these axes."""
        return f"[{', '.join(str(self.kernel.axis(name).tile) for name in axes)}]"


def _suffix(axes: tuple[str, ...]) -> str:
    """What tells pieces of a feature axis apart."""
    pieces = [name for name in axes if name[-1].isdigit()]
    return f"_{pieces[0][1:]}" if pieces else ""


def _names(kernel: Kernel) -> dict[str, Name]:
    """Every name that a formula of the kernel may speak of."""
    scalars = [str(axis.tile) for axis in kernel.axes if isinstance(axis.tile, Symbol)]
    scalars += [*(dim.index.name for dim in kernel.grid), *LOOP_NAMES]
    rounds = (stmt.rounds for stmt in kernel.body if isinstance(stmt, Loop))
    scalars += [each.index.name for each in rounds if each is not None]
    names = {name: Name(name, (), True) for name in scalars}
    for scalar in kernel.scalars:
        switch = scalar.kind == "switch"
        text = scalar.name.upper() if switch else scalar.name
        names[scalar.name] = Name(text, (), scalar.kind == "i32", switch=switch)
    for axis in kernel.axes:
        names |= {name: Name(name, (), True) for name in names_in(axis.first)}
        for name in (axis.index.name, axis.within.name):
            names[name] = Name(name, (axis.name,), True)
    for let in lets_of(kernel.body):
        text = f"{let.name}.to(tl.float32)" if let.dtype == "element" else let.name
        names[let.name] = Name(text, let.axes, let.dtype in INTEGERS, let.dtype == "i64")
    return names


def lets_of(body: Iterable[Stmt]) -> Iterator[Let | Start]:
    """Every value that a body binds, in loops too."""
    for stmt in body:
        if isinstance(stmt, Let | Start):
            yield stmt
        elif isinstance(stmt, Loop):
            yield from lets_in(stmt)
