"""Which nodes may stand at which level; `verifier` asks here after every pass.

NAIVE, STREAMED   reductions are declared on their loops; products are contractions
READY             what is carried is spelled out: starts, updates, dots, collapses
"""

from __future__ import annotations

from attnc.ir.nodes import (
    Ahead,
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    Let,
    Level,
    Load,
    Loop,
    Node,
    Pick,
    Piece,
    Reduce,
    Rounds,
    Start,
    Store,
    Update,
)

_EVERYWHERE: frozenset[type[Node]] = frozenset({Let, Loop, Rounds, Piece, Store, Load, Formula})
_DECLARED = _EVERYWHERE | {Contract, Reduce}

ALLOWED: dict[Level, frozenset[type[Node]]] = {
    Level.NAIVE: _DECLARED | {Collapse},  # of what a loop has summed
    Level.STREAMED: _DECLARED | {Collapse},  # and a column test: does any row see the key?
    Level.READY: _EVERYWHERE | {Start, Update, Ahead, Dot, Collapse, Pick, Fill},
}


def allowed(node: Node, level: Level) -> bool:
    """Say whether a node of this kind may stand at the level."""
    return type(node) in ALLOWED[level]
