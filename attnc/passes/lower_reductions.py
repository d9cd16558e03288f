"""Spell out declared reductions: selects, carried values, rescaling, dots.

A hidden key must contribute the identity of each reduction.  One select on the score serves all
whose element vanishes as the score goes to -inf (exp(t - m) v does).

Empty rows are handled in one place: exponents are taken against `anchor`, the running maximum with
0 for -inf, so no difference of two infinities is formed; a repair uses the raw old maximum, and
exp2(-inf - anchor) = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from sympy import Basic, Expr, Float, Integer, Max, S, Symbol, exp
from sympy.logic.boolalg import BooleanTrue

from attnc.ir.functions import Anchor, Exp2, new, old, tile_symbol
from attnc.ir.nodes import (
    Collapse,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Level,
    Loop,
    Pick,
    Reduce,
    Start,
    Stmt,
    Update,
    Value,
)
from attnc.ir.rebuild import axes_by_name
from attnc.passes.elements import dot_operands, is_weighed_by, only_for_sums, unit_of, vanishes
from attnc.passes.products import as_dot
from attnc.symbols import Where, arguments, names_in, replaced


@dataclass(frozen=True, slots=True)
class LowerReductions:
    """Spell out what a loop carries.

    reduce m = max x;  reduce l = sum exp2(x f - m f) following m
    ->   start m = -inf, l = 0; loop: m_new = max(m, max x); anchor = m_new, or 0 for -inf
         rescale = exp2((m - anchor) f); l <- l rescale + sum exp2(x f - anchor f); m <- m_new
    """

    name: ClassVar[str] = "lower-reductions"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Lower every loop; a reduction starts before the first loop that it runs through."""
        body: list[Stmt] = []
        varies = {name: frozenset(axes) for name, axes in axes_by_name(kernel.body).items()}
        for stmt in kernel.body:
            if not isinstance(stmt, Loop):
                body.append(stmt)
                continue
            body += [
                _start(reduction) for reduction in stmt.reductions if reduction.init is not None
            ]
            body.append(_Lowering(stmt, varies, _features(kernel), kernel).loop())
        return replace(kernel, body=tuple(body))


def _features(kernel: Kernel) -> frozenset[str]:
    return frozenset(axis.name for axis in kernel.axes if axis.role == "feature")


def _start(reduction: Reduce) -> Start:
    assert reduction.init is not None
    init = Float(reduction.init) if reduction.init.is_Integer else reduction.init
    return Start(reduction.name, Fill(init), reduction.axes)


@dataclass
class _Lowering:
    """One loop: collects the statements that its reductions need."""

    source: Loop
    varies: dict[str, frozenset[str]]
    features: frozenset[str]
    kernel: Kernel
    body: list[Let] = field(default_factory=list)
    known: dict[tuple[Value, tuple[str, ...]], str] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    late: list[Let] = field(default_factory=list)
    anchors: dict[str, Symbol] = field(default_factory=dict)
    selected: dict[str, str] = field(default_factory=dict)
    zeroed: set[str] = field(default_factory=set)

    def loop(self) -> Loop:
        late = only_for_sums(self.source, self.features, self.varies)
        for let in self.source.body:
            if let.name not in late:
                self.body.append(as_dot(self._zero_where_hidden(let)))
        self.late = [let for let in self.source.body if let.name in late]
        order = sorted(self.source.reductions, key=lambda reduction: reduction.kind != "max")
        for reduction in order:
            self._maximum(reduction) if reduction.kind == "max" else self._sum(reduction)
        maxima = {reduction.name for reduction in order if reduction.kind == "max"}
        updates = tuple(sorted(self.updates, key=lambda update: update.name in maxima))
        return replace(self.source, body=tuple(self.body), reductions=(), updates=updates)

    def _zero_where_hidden(self, let: Let) -> Let:
        """An exponential that a sum weighs by, as that of -inf where the pair is hidden.

        The select then stands before the exponential, while its condition is at hand.
        """
        value, sums = let.value, self.source.reductions
        one_domain = len({reduction.where for reduction in sums}) == 1
        if not (isinstance(value, Formula) and isinstance(value.expr, Exp2 | exp) and one_domain):
            return let
        weighing = [r for r in sums if is_weighed_by(let.name, r, self.features, self.varies)]
        later = {other.name for other in self.source.body} - {made.name for made in self.body}
        if not weighing or names_in(weighing[0].where) & later:
            return let
        self.zeroed.add(let.name)
        (power,) = arguments(value.expr)
        shown = Where(self._visible(weighing[0]), power, S.NegativeInfinity)
        return replace(let, value=Formula(type(value.expr)(shown)))

    def _visible(self, reduction: Reduce) -> Symbol:
        """The pairs that a sum runs over, by name."""
        if isinstance(reduction.where, Symbol):
            return reduction.where
        made = self._let(
            "visible", Formula(reduction.where), self._pairs(reduction), "i1", reduction.note
        )
        return Symbol(str(made))

    def _let(
        self, name: str, value: Value, axes: tuple[str, ...], dtype: str = "f32", note: str = ""
    ) -> Symbol:
        """Bind a value once; an equal value keeps its first name."""
        key = (value, axes)
        if key not in self.known:
            taken = {let.name for let in self.body} | set(self.varies)
            free = (n for n in (name, *(f"{name}_{i}" for i in range(2, 99))) if n not in taken)
            unique = next(free)
            self.body.append(Let(unique, value, axes, dtype, note))
            self.known[key] = unique
            self.varies = self.varies | {unique: frozenset(axes)}
        return tile_symbol(self.known[key])

    def _maximum(self, reduction: Reduce) -> None:
        unit, element = unit_of(reduction.element, reduction.over, self.varies)
        score = self._select(element, reduction)
        largest = self._let("tile_max", Collapse("max", str(score), reduction.over), reduction.axes)
        raised = Formula(Max(tile_symbol(reduction.name), unit * largest))
        moved = self._let(f"{reduction.name}_new", raised, reduction.axes)
        self.updates.append(Update(reduction.name, str(moved)))
        if any(other.follows == reduction.name for other in self.source.reductions):
            note = "an empty row keeps -inf out of the exponents"
            self.anchors[reduction.name] = self._let(
                "anchor", Formula(Anchor(moved)), reduction.axes, note=note
            )

    def _select(self, score: Expr, reduction: Reduce) -> Symbol:
        """The score, -inf where hidden."""
        axes = (*reduction.axes, reduction.over)
        visible = reduction.where
        if isinstance(visible, BooleanTrue):
            return self._named(score, axes, "score")
        if not isinstance(visible, Symbol):
            visible = self._let("visible", Formula(visible), axes, "i1", reduction.note)
        label = f"{score}_visible" if isinstance(score, Symbol) else "score_visible"
        chosen = self._let(
            label, Formula(Where(Symbol(str(visible)), score, S.NegativeInfinity)), axes
        )
        self.selected[str(score)] = str(chosen)
        return chosen

    def _named(self, value: Expr, axes: tuple[str, ...], name: str) -> Symbol:
        return value if isinstance(value, Symbol) else self._let(name, Formula(value), axes)

    def _sum(self, reduction: Reduce) -> None:
        element = self._hidden_adds_nothing(reduction)
        carried = tile_symbol(reduction.name)
        if reduction.follows is not None:
            anchor = self.anchors[reduction.follows]
            element = replaced(element, {tile_symbol(reduction.follows): anchor})
            carried = self._repaired(reduction, anchor)
        weights, values = dot_operands(element, self.features, self.varies)
        varying = self._axes(weights)
        tile_axes = tuple(a for a in self._pairs(reduction) if a in varying)
        name = "p" if isinstance(weights, Exp2 | exp) else "terms"
        p = self._named(self._by_name(weights), tile_axes, name)
        if reduction.onto is not None:
            joined: Value = Formula(carried + self._landed(p, reduction))
        elif reduction.over in reduction.axes:
            joined = Formula(carried + p)
        elif values is None:
            total = self._let("tile_sum", Collapse("sum", str(p), reduction.over), reduction.axes)
            joined = Formula(carried + total)
        else:
            self._bring(values)
            scaled = self._named(carried, reduction.axes, f"{reduction.name}_rescaled")
            joined = Dot(str(p), values, reduction.over, str(scaled))
        result = self._let(f"{reduction.name}_new", joined, reduction.axes)
        self.updates.append(Update(reduction.name, str(result)))

    def _by_name(self, product: Expr) -> Expr:
        """A product over exponentials that are computed already."""
        made = {
            value.expr: tile_symbol(name)
            for (value, _), name in self.known.items()
            if isinstance(value, Formula) and isinstance(value.expr, Exp2 | exp)
        }
        return product if product in made else replaced(product, made)

    def _landed(self, pairs: Symbol, reduction: Reduce) -> Symbol:
        """The sum of the pairs of a tile that land on each element, one of each row at most.

        A pair lands at its column, moved by what the row says: the column is found from the place.
        """
        assert reduction.onto is not None
        (landed,) = reduction.axes
        columns, result = self.kernel.axis(reduction.over), self.kernel.axis(landed)
        (rows,) = (a for a in self._pairs(reduction) if a != reduction.over)
        column = result.index - (reduction.onto - columns.index)
        slot = self._let("slot", Formula(column - columns.first), (rows, landed), "i32")
        pick = Pick(str(pairs), reduction.over, str(slot))
        picked = self._let("picked", pick, (rows, landed))
        return self._let("tile_sum", Collapse("sum", str(picked), rows), reduction.axes)

    def _pairs(self, reduction: Reduce) -> tuple[str, ...]:
        """The axes of the pairs that a sum counts."""
        rows = self._rows(reduction)
        if reduction.onto is not None:
            rows = tuple(a for a in ("q", "k") if a != reduction.over)
        return tuple(dict.fromkeys((*rows, reduction.over)))

    def _rows(self, reduction: Reduce) -> tuple[str, ...]:
        """The axes of a sum but for those of the values that it weighs."""
        return tuple(axis for axis in reduction.axes if axis not in self.features)

    def _axes(self, formula: Basic) -> frozenset[str]:
        return frozenset().union(
            *(self.varies.get(name, frozenset()) for name in names_in(formula))
        )

    def _bring(self, name: str) -> None:
        """Put what only a sum reads (the values) just before it: the load overlaps the softmax."""
        for let in [let for let in self.late if let.name == name]:
            self.body.append(let)
            self.late.remove(let)

    def _repaired(self, reduction: Reduce, anchor: Symbol) -> Expr:
        """What has been summed, against the new maximum.

        Exponentials take the old maximum as it is, and give 0 where it is -inf; factors take it
        anchored, so that they are finite.
        """
        assert reduction.follows is not None and reduction.repair is not None
        leader = tile_symbol(reduction.follows)
        raised = {old(reduction.follows): leader, new(reduction.follows): anchor}
        note = "what was summed against the old maximum"
        rescales = {
            power: self._let(
                "rescale", Formula(replaced(power, raised)), self._rows(reduction), note=note
            )
            for power in reduction.repair.atoms(Exp2, exp)
        }
        rest = replaced(reduction.repair, rescales)
        return replaced(rest, raised | {old(reduction.follows): Anchor(leader)})

    def _hidden_adds_nothing(self, reduction: Reduce) -> Expr:
        """The element over the selected score.

        With a select of the weights where it does not vanish at -inf.
        """
        element = reduction.element
        if isinstance(reduction.where, BooleanTrue):
            return element
        for score, chosen in self.selected.items():
            if vanishes(element, tile_symbol(score)):
                return replaced(element, {tile_symbol(score): tile_symbol(chosen)})
        weights, values = dot_operands(element, self.features, self.varies)
        if str(weights) in self.zeroed:
            return element
        visible, axes = self._visible(reduction), self._pairs(reduction)
        shown = Where(visible, weights, Integer(0))
        chosen = self._let(
            f"{weights}_visible" if weights.is_Symbol else "weights", Formula(shown), axes
        )
        return chosen if values is None else chosen * tile_symbol(values)
