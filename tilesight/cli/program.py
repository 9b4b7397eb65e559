"""The program: commands put together, and every bad input told in one line.

Exit status 0: done; 1: a number moved or a benchmark failed (``calibrate``); 2: bad input, one line on stderr; 130:
interrupted; 143: ended by SIGTERM (``calibrate``).
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from tilesight import __version__
from tilesight.cli.calibrate import calibrate
from tilesight.cli.dsmem import dsmem
from tilesight.cli.gemm import explain_app, predict_app, rank_app
from tilesight.cli.options import Json
from tilesight.cli.profiles import profiles_app
from tilesight.cli.tables import compare
from tilesight.errors import TilesightError, shortened

BAD_INPUT, INTERRUPTED = 2, 130
_USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    help="How long does a GPU kernel take, and why: answered without running it.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(predict_app, name="predict")
app.add_typer(rank_app, name="rank")
app.add_typer(explain_app, name="explain")
app.command()(compare)
app.add_typer(profiles_app, name="profiles")
app.command()(calibrate)
app.command()(dsmem)


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(f"tilesight {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def bench(
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME|FILE", help="Profile to time with.")] = "h200_sxm",
    as_json: Json = False,
) -> None:
    """How fast tilesight itself is, measured here and now."""
    from tilesight.bench import measure
    from tilesight.cli.asked import hardware_of
    from tilesight.cli.output import print_result

    print_result(measure(hardware_of(gpu)), as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with ``arguments`` (those of the process by default); the exit status."""
    words = _with_files_command(list(sys.argv[1:] if arguments is None else arguments))
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that can't show a character shows another
    try:
        status = app(words, prog_name="tilesight", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:  # typer and rich answer a closed pipe with SystemExit
        _drop_output()  # who reads has seen enough
        status = error.code if isinstance(error, SystemExit) else 0
        return status if isinstance(status, int) and status > 128 else 0  # above: a signal ended us
    except KeyboardInterrupt:
        return INTERRUPTED
    except (TilesightError, _USAGE) as error:
        return _refuse(_message(error))
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    return status if isinstance(status, int) else 0


def _with_files_command(words: list[str]) -> list[str]:
    """``explain A.json B.json`` names no command: put in the hidden one that takes files."""
    if words[:1] == ["explain"] and any(not word.startswith("-") for word in words[1:]):
        first = next(word for word in words[1:] if not word.startswith("-"))
        if first not in ("gemm", "files"):
            return ["explain", "files", *words[1:]]
    return words


def _message(error: Exception) -> str:
    """What is wrong; for the wrong use of a command also where its help is."""
    if isinstance(error, TilesightError):
        return str(error)
    message = str(error.format_message())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message} (see {context.command_path} --help)"


def _refuse(message: str) -> int:
    line = shortened(" ".join(message.split())).encode("utf-8", "backslashreplace").decode("utf-8")
    print("tilesight:", line, file=sys.stderr)  # a name may hold what no text in UTF-8 does
    return BAD_INPUT


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that leaving the process does not fail once more."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is no file
        pass
