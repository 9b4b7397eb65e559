"""The code in README.md and docs/*.md runs.

```python``` blocks of a page run in order in one namespace; blocks with ``>>>`` are compared with what they print.
```console``` blocks hold ``$ tilesight …`` commands; the lines below a command are compared with its output, in which
``...`` stands for anything. Other blocks (```sh```, ```toml```) are not run. ``<!-- not run: reason -->`` above a block
leaves it out.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilesight.files import data_root

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(markdown: str) -> list[Block]:
    """Blocks to run, with the number of the line on which their code begins."""
    found = []
    for match in FENCE.finditer(markdown):
        before = markdown[: match.start()]
        if not re.search(r"<!-- not run: [^\n]+ -->\n\s*\Z", before):
            found.append(Block(match[1], match[2], before.count("\n") + 2))
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """Commands of a console block, each with the output shown below it."""
    first, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not first.strip(), f"a console block begins with a command: {first!r}"
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1] if "\n" in part else "") for part in parts]


def run_python(block: Block, namespace: dict, page: str) -> None:
    if ">>>" not in block.text:
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page, page, block.line - 1)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    namespace.update(test.globs)


def run_console(block: Block) -> None:
    for command, shown in commands(block.text):
        words = shlex.split(command)
        assert words[0] == "tilesight", f"a console block runs tilesight only; put {command!r} in a sh block"
        program = Path(sys.executable).with_name("tilesight")
        done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        if shown.strip():
            same = doctest.OutputChecker().check_output(shown, done.stdout, OPTIONS)
            assert same, f"{command} printed\n{done.stdout}"


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty folder to run in, from which the shipped data are seen under their usual names."""
    for name in ("hardware_profiles", "kernels_cuda", "validation"):
        if (data_root() / name).exists():
            (tmp_path / name).symlink_to(data_root() / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    monkeypatch.setitem(os.environ, "COLUMNS", "120")


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page):
    namespace: dict = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            run_python(block, namespace, page.name)
        elif block.language == "console":
            run_console(block)


def test_readme_has_one_line_commands():
    shell = [block.text for block in blocks(PAGES[0].read_text(encoding="utf-8")) if block.language == "sh"]
    assert [text.count("\n") for text in shell[:2]] == [1, 1]
    assert re.fullmatch(r"python3 -m venv \S+ && \S+/pip install \. && .*tilesight predict gemm .*\n", shell[0])
    assert re.fullmatch(r"python3 -m venv .* -m pytest\n", shell[1])


def test_readme_states_no_share_that_scores_would_move():
    row = next(line for line in PAGES[0].read_text(encoding="utf-8").splitlines() if "`seconds_low`" in line)
    assert "%" not in row  # validation/scores hold the shares


def test_blocks_are_found():
    page = (
        "a\n```python\nx = 1\n```\n<!-- not run: takes a GPU -->\n```python\ny\n```\n```console\n$ a b\nout\n$ c\n```\n"
    )
    assert blocks(page) == [Block("python", "x = 1\n", 3), Block("console", "$ a b\nout\n$ c\n", 10)]
    assert commands("$ a b\nout\n$ c\n") == [("a b", "out\n"), ("c", "")]


def test_blocks_share_a_namespace_and_are_compared():
    namespace: dict = {}
    run_python(Block("python", "x = 1\n", 1), namespace, "page")
    run_python(Block("python", ">>> y = x + 1\n>>> y\n2\n", 3), namespace, "page")
    assert namespace["y"] == 2
    with pytest.raises(AssertionError, match="Expected:"):
        run_python(Block("python", ">>> y\n3\n", 7), namespace, "page")
    with pytest.raises(AssertionError, match="runs tilesight only"):
        run_console(Block("console", "$ rm file\n", 1))
