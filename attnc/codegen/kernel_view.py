"""A READY kernel as lines for the template: every value a line, every decision already made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attnc.codegen.addresses import position_name
from attnc.codegen.carried import in_place
from attnc.codegen.choices import CHOICES
from attnc.codegen.counting import Counting, Steps, count_tiles
from attnc.codegen.lines import Line, arange, by_words, comment, position, tidy, where_a_tile_stands
from attnc.codegen.skewed import first_scores, skewed
from attnc.codegen.value_text import ValueText
from attnc.ir.choices import choices_of, described
from attnc.ir.nodes import Axis, Kernel, Let, Load, Loop, Program, Rounds, Start, Stmt, Store
from attnc.ir.rebuild import reads_of
from attnc.symbols import names_in

NUMBERS = ("i32", "f32")
CONSTANTS = {"sign": ": -1 or 1; 0 where only the device knows it", "switch": ""}
TILES = (("BLOCK_Q", "query rows of a tile"), ("BLOCK_KV", "keys of a tile"))
DIGITS = {
    "q_block": "query tile",
    "kv_block": "key tile",
    "n_block": "band of distances",
    "h": "head",
    "h_kv": "key/value head",
    "b": "batch entry",
}


@dataclass(frozen=True, slots=True)
class KernelView:
    """What the template of a kernel prints."""

    name: str
    pointers: tuple[str, ...]
    strides: tuple[tuple[str, ...], ...]  # one group a buffer
    scalars: tuple[tuple[str, str], ...]  # (name, meaning)
    constants: tuple[tuple[str, str], ...]
    unspecialised: tuple[str, ...]  # scalars whose value must not compile a kernel of its own
    lines: tuple[Line, ...]
    helpers: tuple[str, ...]
    choices: tuple[str, ...]  # fields of a schedule beyond tile, warps and stages
    described: tuple[str, ...]  # buffers whose rows a schedule may have read by descriptors
    element: str  # a pointer to elements of the dtype of q; empty where it touches none


def view_kernel(kernel: Kernel, program: Program) -> KernelView:
    """Print a READY kernel."""
    return _View(kernel, program).view()


class _View:
    def __init__(self, kernel: Kernel, program: Program) -> None:
        self.kernel, self.params = kernel, program.interface.params
        self.values = ValueText(kernel, program.interface.fp32_dot)
        self.text = self.values.text
        self.written: set[str] = set()
        self.read = {name for stmt in kernel.body for name in reads_of(stmt)}
        loops = (stmt.rounds for stmt in kernel.body if isinstance(stmt, Loop))
        lets = (let for rounds in loops if rounds is not None for let in rounds.lets)
        self.in_rounds = {let.name for let in lets}

    def view(self) -> KernelView:
        lines = [*self._numbers(), *self._grid(), *self._positions(), *self._body()]
        elements = (f"{b.name}_ptr" for b in self.kernel.buffers if b.dtype == "element")
        helpers = tuple(sorted(self.text.used | ({"number"} if self._floats() else set())))
        return KernelView(
            name=self.kernel.name,
            pointers=tuple(f"{buffer.name}_ptr" for buffer in self.kernel.buffers),
            strides=tuple(
                tuple(f"{b.name}_stride_{dim}" for dim in b.dims)
                for b in self.kernel.buffers
                if b.dims
            ),
            scalars=tuple((s.name, s.meaning) for s in self.kernel.scalars if s.kind in NUMBERS),
            constants=self._constants(),
            unspecialised=tuple(s.name for s in self.kernel.scalars if s.kind == "i32"),
            lines=tuple(tidy(lines)),
            helpers=helpers,
            choices=tuple(choices_of(self.kernel)),
            described=described(self.kernel),
            element=next(elements, ""),
        )

    def _constants(self) -> tuple[tuple[str, str], ...]:
        known = [
            (s.name.upper(), s.meaning + CONSTANTS[s.kind])
            for s in self.kernel.scalars
            if s.kind in CONSTANTS
        ]
        used = {str(axis.tile) for axis in self.kernel.axes}
        tiles = [(name, meaning) for name, meaning in TILES if name in used]
        return (
            *known,
            *tiles,
            *((choice.upper(), CHOICES[choice]) for choice in choices_of(self.kernel)),
            ("INDEX", "type of offsets within a tile: tl.int32 or tl.int64"),
        )

    # ------------------------------------------------------------ where the program instance stands

    def _numbers(self) -> Iterator[Line]:
        """Scalars that may lie on the device, as values."""
        for name in self._floats():
            yield Line("line", f"{name} = number({name})")
        for scalar in self.kernel.scalars:
            if scalar.kind == "sign":
                known = scalar.name.upper()
                read = "tl.where(scale < 0, -1, 1)"
                yield Line("line", f"{scalar.name} = {known} if {known} != 0 else {read}")

    def _floats(self) -> list[str]:
        """Scalars of the call that may be 0-d tensors."""
        given = {"scale", *(param.name for param in self.params)}
        return [s.name for s in self.kernel.scalars if s.kind == "f32" and s.name in given]

    def _grid(self) -> Iterator[Line]:
        """The digits of the program's number, innermost first."""
        *inner, last = self.kernel.grid
        words = [DIGITS[str(dim.index)] for dim in self.kernel.grid]
        plural = "bands" if words[0].startswith("band") else f"{words[0]}s"
        yield Line("comment", f"one program for each ({', '.join(words)}), {plural} innermost")
        yield Line("line", "program = tl.program_id(0)")
        rest = "program"
        for dim in inner:
            extent = self.text.over(dim.extent, ())
            if dim.extent.args:
                yield Line("line", f"{dim.index}s = {extent}")
                extent = f"{dim.index}s"
            number = f"{rest} % {extent}"
            if dim.turned:
                number = f"{extent} - 1 - {number} if LAST_FIRST else {number}"
            yield Line("line", f"{dim.index} = {number}")
            rest = f"{rest} // {extent}"
        yield Line("line", f"{last.index} = {rest}")

    def _positions(self) -> Iterator[Line]:
        yield Line("blank")
        for axis in self.kernel.axes:
            yield Line("line", f"{position_name(axis)} = {arange(axis)}")

    def _row_positions(self) -> Iterator[Line]:
        """Positions on the whole axis, where something asks for them."""
        for axis in self._rows():
            if str(axis.first) not in self.in_rounds and str(axis.index) in self.read:
                yield position(axis)

    def _rows(self) -> list[Axis]:
        return [axis for axis in self.kernel.axes if axis.role == "rows"]

    # ------------------------------------------------------------ statements

    def _body(self) -> Iterator[Line]:
        firsts = names_in(*(axis.first for axis in self._rows()))
        placed = False
        for stmt in self.kernel.body:
            if not placed and not self._comes_first(stmt, firsts):
                placed = True
                yield from self._row_positions()
                yield Line("blank")
            yield from self._stmt(stmt)

    def _comes_first(self, stmt: Stmt, wanted: set[str]) -> bool:
        return (
            isinstance(stmt, Let) and not stmt.axes and (stmt.name in wanted or stmt.name == "h_kv")
        )

    def _stmt(self, stmt: Stmt) -> Iterator[Line]:
        match stmt:
            case Let():
                yield from self._let(stmt)
            case Start():
                yield Line(
                    "line", f"{stmt.name} = {self.values.value(stmt.value, stmt.axes, stmt.dtype)}"
                )
            case Store():
                yield from self._store(stmt)
            case Loop():
                yield from self._loop(stmt)

    def _let(self, let: Let) -> Iterator[Line]:
        if isinstance(let.value, Load):
            yield from self._setup(let)
        yield Line(
            "line",
            f"{let.name} = {self.values.value(let.value, let.axes, let.dtype)}",
            let.note,
        )

    def _setup(self, let: Let) -> Iterator[Line]:
        assert isinstance(let.value, Load)
        for name, text in self.values.address(let.value, let.axes).setup:
            if name not in self.written:
                self.written.add(name)
                yield Line("line", f"{name} = {text}")

    def _descriptor(self, let: Let) -> Iterator[Line]:
        """What a loop's load needs where a tensor descriptor does it, once a kernel."""
        if isinstance(let.value, Load) and let.value.described is not None:
            made = self.values.descriptor(let.value, let.axes)
            if made.name not in self.written:
                self.written.add(made.name)
                yield Line("line", f"{made.name} = {made.made}")

    def _store(self, store: Store) -> Iterator[Line]:
        lines = tuple(self._written(store))
        if self.kernel.buffer(store.buffer).optional:
            yield Line("block", f"if {store.buffer}_ptr is not None:", "", lines)
        else:
            yield from lines

    def _written(self, store: Store) -> Iterator[Line]:
        name = self.text.names[store.value]
        place = self.values.address(store, name.axes)
        for setup_name, text in place.setup:
            if setup_name not in self.written:
                self.written.add(setup_name)
                yield Line("line", f"{setup_name} = {text}")
        mask = self.values.guard(store.guard, name.axes)
        element = f"{store.buffer}_ptr.dtype.element_ty"
        yield Line("line", f"tl.store({place.pointer}, {store.value}.to({element}){mask})")

    # ------------------------------------------------------------ loops

    def _loop(self, loop: Loop) -> Iterator[Line]:
        loads = [let for let in loop.body if isinstance(let.value, Load)]
        setup = [line for let in loads for line in self._setup(let)]
        counting = count_tiles(loop, self.text)
        body = (*counting.hop, *self._visit(loop, counting.steps))
        if loop.rounds is None:
            yield from setup
            if made := tuple(line for let in loads for line in self._descriptor(let)):
                yield Line("block", "if TMA:", "", made)
            yield Line("blank")
            yield from comment(loop.note)
            if loop.ahead is not None:
                yield first_scores(loop.ahead, self.values)
            yield from (*counting.before, Line("block", counting.head, "", body))
        else:
            yield from self._in_rounds(loop.rounds, loop.note, counting, setup, body)
        yield Line("blank")

    def _in_rounds(
        self,
        rounds: Rounds,
        note: str,
        counting: Counting,
        setup: list[Line],
        body: tuple[Line, ...],
    ) -> Iterator[Line]:
        """A loop over rounds, or the one that is joined with them."""
        own = {rounds.index.name, *(let.name for let in rounds.lets)}
        lines = [line for let in rounds.lets for line in self._in_round(let)]
        lets, still = by_words(lines, own, own)
        inside, outside = by_words([*setup, *counting.before], own)
        self.written -= {line.text.partition(" = ")[0] for line in (*lets, *inside)}
        yield from (*still, *outside)
        yield Line("blank")
        yield from comment(note)
        if rounds.joined:
            yield Line("block", counting.head, "", (*counting.turn, *lets, *inside, *body))
        else:
            walk = Line("block", counting.head, "", body)
            head = f"for {rounds.index} in range(0, {self.text.over(rounds.count, ())}):"
            yield Line("block", head, "", (*lets, *inside, walk))

    def _in_round(self, let: Let) -> Iterator[Line]:
        """A value of a round, and where a tile stands whose first position it is."""
        yield from self._let(let)
        for axis in self._rows():
            if str(axis.first) == let.name and str(axis.index) in self.read:
                yield position(axis)

    def _visit(self, loop: Loop, steps: Steps | None) -> Iterator[Line]:
        """What happens to one tile."""
        changed = in_place(loop)
        body = [self._bound(let) for let in changed.body]
        body += [Line("line", f"{update.name} = {update.value}") for update in changed.updates]
        axis = self.kernel.axis(loop.axis)
        yield from where_a_tile_stands(axis, body)
        yield from body if steps is None else skewed(changed, body, axis, steps)

    def _bound(self, let: Let) -> Line:
        value = self.values.value(let.value, let.axes, let.dtype)
        return Line("line", f"{let.name} = {value}", let.note)
