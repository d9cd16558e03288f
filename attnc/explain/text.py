"""Print an explanation for a person; `report.explain` gathers what is printed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnc.explain import costs
from attnc.explain.pictures import POLARITY
from attnc.ir.interface import CHOICES

Facts = dict[str, Any]


def explanation_text(facts: Facts) -> str:
    """Lay out an explanation in sections."""
    sections = {
        "": _head(facts),
        "formulas": _formulas(facts),
        "contracts": _pairs(facts["contracts"]),
        "mask": _picture(facts["picture"]),
        "plan": _plan(facts["plan"]),
        "gradients": _gradients(facts["gradients"]),
        "tiles": _tiles(facts),
        "cost of one forward call": _costs(facts),
        "memory": _memory(facts),
        "proofs that `attnc verify` attempts, for all sizes": _proofs(facts["proofs"]),
    }
    lines: list[str] = []
    for title, body in sections.items():
        lines += ([f"\n{title}"] if title else []) + [
            f"  {line}" if title else line for line in body
        ]
    return "\n".join(line.rstrip() for line in lines)


def _pairs(table: dict[str, str]) -> Iterator[str]:
    width = max(map(len, table), default=0)
    for key, value in table.items():
        yield f"{key:<{width}}  {value}"


def _head(facts: Facts) -> Iterator[str]:
    yield facts["name"] + (f": {facts['doc']}" if facts["doc"] else "")
    for lint in facts["lints"]:
        yield f"warning: {lint}"


def _formulas(facts: Facts) -> Iterator[str]:
    for name, formula in facts["formulas"].items():
        yield f"{name:<6} {formula['written']}"
        if formula["means"] != formula["written"]:
            yield f"       = {formula['means']}"
    for name, block in facts["blocks"].items():
        yield f"{name}: {block['formula']}"
        yield f"    {block['meaning']} ({block['source']})"


def _picture(picture: Facts) -> Iterator[str]:
    yield f"{picture['q_len']} queries x {picture['kv_len']} keys, head {picture['head']}"
    yield POLARITY
    yield from (f"drawn with example contents, {rule}" for rule in picture["examples"])
    yield " " * 6 + "".join(str(j % 10) for j in range(picture["kv_len"])) + "  visible"
    for i, row in enumerate(picture["rows"]):
        count = picture["visible"][i]
        yield f"{i:>5} {row}  {count}{'' if count else '  (out 0, lse -inf)'}"


def _plan(plan: Facts) -> Iterator[str]:
    yield f"strategy  {plan['strategy']}"
    yield f"schedule  {_schedule(plan['schedule'])}"
    for kernel in plan["kernels"]:
        grid = ", ".join(f"{index} < {extent}" for index, extent in kernel["grid"].items())
        yield f"kernel    {kernel['name']}, one linear grid: {grid}"
        yield from (f"    {name} = {text}" for name, text in kernel["where"].items())
        for loop in kernel["loops"]:
            yield f"    loop over {loop['axis']} tiles" + (
                f": {loop['note']}" if loop["note"] else ""
            )
            for piece in loop["pieces"]:
                kind = "with the mask" if piece["masked"] else "without mask code"
                yield f"        from {piece['start']} to {piece['stop']}, {kind}"


def _gradients(found: Facts | None) -> Iterator[str]:
    if found is None:
        yield "none: the spec says `backward: false`"
        return
    yield f"of {', '.join(found['of'])}; the derivation, masked where `visible` says so:"
    yield from (f"    {line}" for line in found["formulas"])
    sizes = found["sizes"]
    yield (
        f"what the forward keeps for them, chosen at batch {sizes['batch']}, {sizes['q_len']} "
        f"queries, {sizes['kv_len']} keys"
    )
    yield (
        f"limit: {costs.size(found['limit_bytes'])} beyond the outputs, as much as q, k, v and the "
        f"outputs; price of a byte {found['price_ps_per_byte']:.3g} ps"
    )
    yield f"    {'value':<20} {'bytes':>9} {'keep':>13} {'make again':>13}"
    for value in found["values"]:
        choice = "kept" if value["kept"] else "made again"
        choice += ", an output anyway" if value["kept"] and value["is_output"] else ""
        yield (
            f"    {value['name']:<20} {costs.size(value['bytes']):>9} "
            f"{_time(value['keeping_us'], value['may_keep']):>13} "
            f"{_time(value['making_us'], value['may_make']):>13}  {choice}"
        )
    yield (
        "(in brackets: what no kernel does; a tile of queries and keys is never kept, "
        "a sum of such tiles never made again)"
    )


def _time(microseconds: float, is_open: bool) -> str:
    """A time of the cost model, in brackets where there is no such choice."""
    text = f"{microseconds:.2f} us"
    return text if is_open else f"({text})"


def _schedule(schedule: Facts) -> str:
    tile = f"{schedule['block_q']} x {schedule['block_kv']}"
    return (
        f"{schedule['device']}: tiles of {tile}, {schedule['warps']} warps, "
        f"{schedule['stages']} stages"
        + "".join(f", {name}" for name in CHOICES if schedule.get(name))
    )


def _tiles(facts: Facts) -> Iterator[str]:
    sizes, tiles = facts["sizes"], facts["tiles"]
    visited, seen = (_made_up(tiles["example_contents"][kind]) for kind in ("visited", "visible"))
    yield f"at {_sizes(sizes)}"
    for name in sorted(set().union(*tiles["example_contents"].values())):
        yield f"example contents, {facts['examples'][name]}"
    yield (
        f"visited {tiles['visited']} of {tiles['total']} ({_percent(tiles['tile_density'])}): "
        f"{tiles['unmasked']} without mask code, {tiles['masked']} with it{visited}"
    )
    counted, all_of_them = tiles["query_tiles_counted"], tiles["query_tiles"]
    if counted < all_of_them:
        yield (
            f"an estimate, as all counts here that follow from it: {counted} of {all_of_them} "
            "query tiles were counted, evenly spread"
        )
    if tiles["needed"] is None:
        low, high = _percent(tiles["density_at_least"]), _percent(tiles["density_at_most"])
        yield (
            f"between {low} and {high} of all pairs are visible "
            f"(too many to count one by one){visited}"
        )
    else:
        yield f"needed  {tiles['needed']} hold a visible pair, counted by brute force{seen}"
        if tiles["visited"] != tiles["needed"]:
            yield "the mask is beyond the range algebra: the ranges are a sound superset"
        share = _percent(tiles["density"])
        yield f"visible {tiles['visible_pairs']} of {tiles['total_pairs']} pairs ({share}){seen}"
    yield f"'#' visited without mask code, '+' visited with it, '.' skipped{visited}"
    yield from facts["tile_map"]


def _made_up(names: list[str]) -> str:
    """What a number says that rests on contents nobody gave."""
    return f", with example contents of {' and '.join(names)}" if names else ""


def _sizes(sizes: Facts) -> str:
    text = f"batch {sizes['batch']}, {sizes['heads']} heads over {sizes['kv_heads']}, "
    text += f"{sizes['q_len']} queries, {sizes['kv_len']} keys"
    return text + "".join(f", {name} = {value}" for name, value in sizes["params"].items())


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _costs(facts: Facts) -> Iterator[str]:
    found = facts["costs"]
    made_up = _made_up(found["example_contents"])
    saved = 1 - found["flops"] / found["dense_flops"] if found["dense_flops"] else 0.0
    less = f"{_percent(saved)} less than without a mask{made_up}"
    yield f"work       {costs.flops(found['flops'])} ({less})"
    traffic = costs.size(found["bytes"])
    yield f"traffic    {traffic} at least: inputs read once, outputs written once"
    yield f"intensity  {found['flops_per_byte']:.4g} FLOP a byte{made_up}"
    if backward := facts["backward_flops"]:
        parts = ", ".join(
            f"{name} {costs.flops(count)}" for name, count in backward.items() if count
        )
        total = sum(backward.values())
        times = f"{total / max(found['flops'], 1):.3g} times as much"
        yield f"backward   {costs.flops(total)} for all gradients, {times}: {parts}"


def _memory(facts: Facts) -> Iterator[str]:
    found, sizes = facts["costs"], facts["sizes"]
    written, avoided = found["output_bytes"], found["attention_matrix_bytes"]
    yield f"written   {costs.size(written)}: the outputs, nothing of size q_len x kv_len"
    yield f"avoided   {costs.size(avoided)}: the attention matrices of all heads"
    for cache in facts["kv_cache"]:
        each, whole = costs.size(cache["bytes_per_token"]), costs.size(cache["bytes_total"])
        heads = f"{cache['grouping']:<8} {cache['kv_heads']:>3} heads"
        yield (
            f"KV cache  {heads}: {each} a token and layer, {whole} "
            f"for {sizes['batch']} x {sizes['kv_len']} tokens"
        )
    row = ", ".join(f"{n}: {what}" for n, what in facts["attention_matrix_fp16"].items())
    yield f"for scale one head's attention matrix in fp16 at {row}"


def _proofs(proofs: list[str]) -> Iterator[str]:
    yield from (f"- {claim}" for claim in proofs)
