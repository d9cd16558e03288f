"""Read the command line, run one command, turn mistakes into exit statuses.

Exit status: 0 all well, 1 something was checked and failed, 2 the user's input is wrong.

Why argparse: `attnc compile` must start in well under a second, and typer with click and rich costs
about 0.1 s of that before the first line of a command runs.  Each command's module is imported only
when it is asked for, so `attnc schema` never pays for sympy's passes or `compile` for torch.
"""

from __future__ import annotations

import _thread
import argparse
import errno
import gc
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from attnc.errors import AttncError

OK, FAILED, WRONG_INPUT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Command:
    """A command's name, the module under attnc.commands that runs it, and one line for --help."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("compile", "compile_specs", "write kernels"),
    Command("verify", "verify_specs", "prove and measure kernels; write a certificate"),
    Command("explain", "explain_spec", "formulas, plan, tile ranges, cost, memory"),
    Command("show", "show_spec", "the program after each pass; a picture of the mask"),
    Command("tune", "tune_spec", "choose schedules for a GPU, here or not"),
    Command("schema", "print_schema", "the JSON Schema of a spec, for editors"),
    Command("list", "list_things", "building blocks, specs, targets, devices"),
    Command("new", "new_spec", "write a commented starter spec"),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    from attnc import __version__

    parser = argparse.ArgumentParser(
        prog="attnc",
        description="A compiler for attention kernels: a spec in, a verified Triton file out.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"attnc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.help, description=command.help, allow_abbrev=False
        )
        _ADD[command.name](sub)
    return parser


def _add_compile(parser: argparse.ArgumentParser) -> None:
    _add_specs(parser)
    _add_set(parser)
    _add_output(parser, "where the kernels go, default generated/")
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite also files that were edited or that attnc did not write",
    )
    parser.add_argument(
        "--target",
        default="",
        metavar="SM,...",
        help="also cross-compile for these (sm_80,sm_90,gfx942 ...) and report",
    )
    _add_json(parser)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_specs(parser, "SPEC|FILE.py")
    _add_set(parser)
    _add_output(parser, "where kernels of specs lie, default generated/")
    parser.add_argument(
        "--mutants", action="store_true", help="also plant faults, each to be caught"
    )
    _add_json(parser)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_spec(parser)
    _add_set(parser)
    for name, what in (("batch", "batch entries"), ("q-len", "query rows"), ("kv-len", "keys")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what}, else the spec's")
    _add_param(parser)
    parser.add_argument("--against", metavar="SPEC", help="where a second spec differs")
    parser.add_argument(
        "--target", default="sm_90", metavar="SM", help="whose schedule to count with"
    )
    parser.add_argument(
        "--generated",
        default="generated",
        metavar="FOLDER",
        help="where certificates lie, default generated/",
    )
    _add_json(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_spec(parser)
    _add_set(parser)
    parser.add_argument("--after", metavar="PASS", help="the program after this pass")
    parser.add_argument("--list", action="store_true", help="the passes, in order")
    parser.add_argument("--mask", action="store_true", help="a picture of mask and tiles")
    parser.add_argument("--q-len", type=int, metavar="N", help="rows of the picture")
    parser.add_argument("--kv-len", type=int, metavar="N", help="columns of the picture")
    parser.add_argument("--head", type=int, default=0, metavar="N", help="head of the picture")
    parser.add_argument(
        "--tile", type=int, default=4, metavar="N", help="tiles of the picture, N x N"
    )
    _add_param(parser)
    _add_json(parser)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    _add_spec(parser)
    _add_set(parser)
    parser.add_argument(
        "--target", default="", metavar="GPU", help="h200, a100, sm_90 ...; default: the one here"
    )
    parser.add_argument(
        "--dtype", default="", choices=("fp16", "bf16", "fp32"), help="of q, k, v; else the spec's"
    )
    parser.add_argument(
        "--candidates", type=int, default=48, metavar="N", help="schedules to compile, default 48"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, metavar="S", help="of measuring on a GPU, default 60"
    )
    parser.add_argument("--fresh", action="store_true", help="ask again what is known already")
    parser.add_argument(
        "--bake", action="store_true", help="write NAME.tuned.json beside the spec, and compile"
    )
    _add_output(parser, "where --bake compiles to, default generated/")
    parser.add_argument("--force", action="store_true", help="--bake overwrites also edited files")
    _add_json(parser)


def _add_schema(parser: argparse.ArgumentParser) -> None:
    _add_json(parser)


def _add_list(parser: argparse.ArgumentParser) -> None:
    kinds = ("blocks", "specs", "targets", "devices")
    parser.add_argument("what", choices=kinds, nargs="?", help="which, else all of them")
    _add_json(parser)


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="writes NAME.yaml")
    _add_json(parser)


_ADD = {
    "compile": _add_compile,
    "verify": _add_verify,
    "explain": _add_explain,
    "show": _add_show,
    "tune": _add_tune,
    "schema": _add_schema,
    "list": _add_list,
    "new": _add_new,
}


def _add_specs(parser: argparse.ArgumentParser, metavar: str = "SPEC") -> None:
    parser.add_argument(
        "specs", nargs="+", metavar=metavar, help="a spec, or a folder of specs (*.yaml)"
    )


def _add_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="a spec (*.yaml)")


def _add_output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", default="generated", metavar="FOLDER", help=what)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="override a part of the spec, for example schedule.block_q=64; may be repeated",
    )


def _add_param(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="a param of the spec"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for a program to read")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a bug of ours flies on with its traceback."""
    options = build_parser().parse_args(arguments)
    module = next(c.module for c in COMMANDS if c.name == options.command)
    try:
        command = importlib.import_module(f"attnc.commands.{module}")
        return command.run(options)
    except AttncError as error:
        if options.json:
            from attnc.commands.mistakes_json import mistakes_json

            print(mistakes_json(error))
        else:
            print(error, file=sys.stderr)
        return WRONG_INPUT


def _interrupt_again(ignored: sys.UnraisableHookArgs) -> None:
    """Deliver an interrupt anew that hit a finalizer (z3 has thousands), where Python drops it."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        # a moment later: from here it would end in this hook, unseen again
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(ignored)


def entry() -> NoReturn:
    """Run as a process of its own, quiet when a pipe's reader leaves or the user interrupts."""
    sys.unraisablehook = _interrupt_again
    gc.disable()  # collecting while sympy is imported costs a fifth of a short command's time
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has what it wanted; without this Python would complain once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141  # what a shell reports for SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        print(f"user/cannot-write cannot write the output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = WRONG_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)
