"""Write the tables of docs/constants.md: every number of the profile, and how it compares with what others state.

    python validation/constants.py                                   write the tables anew
    python validation/constants.py --compare NAME FIRST SECOND       two folders of records: docs/figures/NAME.csv

A table stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``. Values are those of the profile, rules the first
sentences of ``tilesight/calibrate/``, spreads those of the records; what others state is in ``published.toml``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from published import Compared, comparisons
from script import parser_of, refuse

from tilesight.calibrate.derive import DERIVATIONS, derive_numbers
from tilesight.calibrate.fits import FITTED, RUNS_LEAST
from tilesight.calibrate.found import Found
from tilesight.calibrate.identity import records_folder
from tilesight.calibrate.records import Records
from tilesight.errors import TilesightError
from tilesight.hardware.load import load_profile
from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Profile

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "constants.md"
FIGURES = ROOT / "docs" / "figures"
RECORDS = ROOT / "validation" / "records"
GPU = "h200_sxm"
FAMILIES = (
    "chip", "sm", "dram", "l2", "fill", "merging", "drift", "tensor", "alu", "sync", "dsmem", "link", "loop", "power",
    "launch", "ends", "uncertainty", "cache_uncertainty",
)  # fmt: skip
"""Tables of numbers; ``chip``, ``ends`` and ``tensor`` hold several of the profile's."""
MEMBERS = {"chip": ("sm_count", "clock", "gpc"), "ends": ("epilogue", "rounds")}
BY_KIND = ("tensor", "alu", "dsmem")
"""Tables of a profile that hold the same numbers for several things: a row each."""
RUNS = {"two_boards": 0.03, "two_runs": 0.03}
"""Comparisons of records, and the change above which a number is listed."""


INTERVAL = (
    "90th percentile of the relative error of the runs that this binds; of all runs where fewer than "
    f"{RUNS_LEAST} are bound by it."
)
COUNTED_INTERVAL = (
    "90th percentile of the error of the launches in that regime of the cache that Nsight Compute counted: of bytes how "
    "much larger the larger is, of hit rates the difference."
)
FIT, COUNTED = re.compile(r"rms ([0-9.]+) %"), re.compile(r"percentile of the error of (.+ (?:runs|launches).*)")
"""What a note of the profile says of a fit through the model, and of how many runs an interval is taken."""


def rule_of(number: str, record_names: set[str]) -> str:
    """How a number is read from these records, in words."""
    if number.startswith("uncertainty."):
        return INTERVAL
    if number.startswith("cache_uncertainty."):
        return COUNTED_INTERVAL
    if number in FITTED:
        return "Fitted, with others, to runs of kernels through the model."
    able = [derivation for derivation in DERIVATIONS if number in derivation.numbers]
    first = [derivation for derivation in able if record_names <= set(derivation.records)] or able
    return first[0].rule.replace("``", "`") if first else ""


def records_of(profile: Profile, number: str) -> tuple[str, ...]:
    """Names of the records that a profile has a number from; none where it is from elsewhere."""
    source = profile.source[number]
    return tuple(PurePosixPath(ref).stem for ref in source.ref) if source.kind in ("measured", "fitted") else ()


def how_far(found: Found | None, note: str | None = None) -> str:
    """Spread of repeats or misfit of a fit; of what is fitted through the model, as the note in the profile has it."""
    if found is None:
        fit, runs = FIT.search(note or ""), COUNTED.search(note or "")
        return f"fit {fit[1]} %" if fit else runs[1] if runs else ""
    if found.misfit is not None:
        return f"fit {100 * found.misfit:.1f} %"
    said = "" if found.spread is None else f"{100 * found.spread:.1f} %"
    return said if found.kept else f"{said}, kept by name"


def numbers_table(profile: Profile, found: Mapping[str, Found], family: str) -> Iterator[str]:
    """A row a number: its value, and how far its repeats are apart; then where they are from."""
    members = MEMBERS.get(family, (family,))
    numbers = {number: value for number, value in profile.numbers.items() if number.split(".")[0] in members}
    yield "| number | value | spread |"
    yield "|---|---|---|"
    for number, value in numbers.items():
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else plain_number(value)
        yield row(f"`{number}`", shown, how_far(found.get(number), profile.source[number].note))
    yield from origins(profile, {number: (number.split(".", 1)[-1], "") for number in numbers})


def kinds_table(profile: Profile, found: Mapping[str, Found], family: str) -> Iterator[str]:
    """A row a kind (format, instruction, cluster size), a column a number, the largest spread of a row; then the origins."""
    kinds: dict[str, dict[str, str]] = {}
    for number in profile.numbers:
        table, *rest = number.split(".")
        if table == family:
            kinds.setdefault(rest[0], {})[rest[1]] = plain_number(profile.require(number))
    columns = list(dict.fromkeys(name for numbers in kinds.values() for name in numbers))
    yield row(family, *(f"`{name}`" for name in columns), "spread, at most")
    yield "|" + "---|" * (len(columns) + 2)
    for kind, numbers in kinds.items():
        spreads = [each.spread for name in numbers if (each := found.get(f"{family}.{kind}.{name}")) and each.spread]
        cells = (numbers.get(name, "") for name in columns)
        yield row(f"`{kind}`", *cells, f"{100 * max(spreads):.1f} %" if spreads else "")
    yield from origins(profile, {f"{family}.{kind}.{name}": (name, kind) for kind in kinds for name in kinds[kind]})


def origins(profile: Profile, numbers: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """A line for each rule (or citation), with the numbers that share it and the records that each is from.

    ``numbers`` gives the words for each: its name, and the kind it is of, which is said where not all kinds share the rule.
    """
    shared: dict[str, dict[str, dict[str, list[str]]]] = {}
    kinds: dict[str, list[str]] = {}
    for number, (name, kind) in numbers.items():
        names, source = records_of(profile, number), profile.source[number]
        rule = rule_of(number, set(names)) if names else f"{source.kind}, {'; '.join(source.ref)}"
        records = f" from {', '.join(f'`{record}`' for record in names)}" if names else ""
        shared.setdefault(rule, {}).setdefault(records, {}).setdefault(name, []).append(kind)
        kinds.setdefault(name, []).append(kind)
    yield ""
    for rule, by_records in shared.items():
        groups = []
        for records, those in by_records.items():
            words = (f"`{name}`" + ("" if of == kinds[name] else f" of {', '.join(of)}") for name, of in those.items())
            groups.append(f"{', '.join(words)}{records}")
        yield f"- {'; '.join(groups)}: {rule}"


def comparison_table(rows: Iterable[Compared]) -> Iterator[str]:
    """What others state beside what the records give, with the reason of a difference."""
    yield "| what | stated | here | difference | from | why |"
    yield "|---|---|---|---|---|---|"
    for each in rows:
        stated = f"{each.said or plain(each.stated / each.scale)} {each.unit}"
        ours = f"{plain(each.ours / each.scale)} {each.unit}"
        yield row(each.what, stated, ours, percent(each.difference), each.source, each.why)


def runs_table(name: str, above: float) -> Iterator[str]:
    """Numbers of a comparison of records that differ by more than a share; how many do not."""
    with (FIGURES / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    changes = [abs(float(each["change"])) for each in rows]
    within = ", ".join(
        f"{sum(change <= share for change in changes)} within {100 * share:.0f} %" for share in (0.01, 0.03, 0.1)
    )
    yield f"{len(rows)} numbers, {within}. Those that differ by more than {100 * above:.0f} %:"
    yield ""
    yield "| number | first | second | change | record |"
    yield "|---|---|---|---|---|"
    for each in sorted(rows, key=lambda each: -abs(float(each["change"]))):
        if abs(float(each["change"])) > above:
            names = ", ".join(f"`{record}`" for record in each["records"].split())
            yield row(f"`{each['number']}`", each["first"], each["second"], percent(float(each["change"])), names)


def compare_folders(first: Path, second: Path) -> Iterator[tuple[str, str, str, str, str]]:
    """Numbers that two folders of records give by the same rule, from different measurements."""
    yield "number", "first", "second", "change", "records"
    base = load_profile(GPU)
    one, other = Records(first, base), Records(second, base)
    numbers = derive_numbers(one).found
    for name, after in derive_numbers(other).found.items():
        before = numbers.get(name)
        if before is None or before.records != after.records:
            continue
        same = all(
            (one.folder / f"{record}.csv").read_bytes() == (other.folder / f"{record}.csv").read_bytes()
            for record in after.records
        )
        if not same and before.value:
            values = [each.rounded.value for each in (before, after)]
            change = (values[1] - values[0]) / abs(values[0])
            yield name, plain_number(values[0]), plain_number(values[1]), f"{change:.4f}", " ".join(after.records)


def row(*cells: str) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def percent(share: float) -> str:
    """With its sign, unless it is 0."""
    said = f"{100 * share:+.1f} %"
    return "0.0 %" if said in ("+0.0 %", "-0.0 %") else said


def plain(value: float) -> str:
    """Four digits, no exponent."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def blocks() -> dict[str, list[str]]:
    """Every table of the page by name."""
    profile = load_profile(GPU)
    records = Records(RECORDS / GPU, profile)
    found = derive_numbers(records).found
    tables = {
        family: list((kinds_table if family in BY_KIND else numbers_table)(profile, found, family))
        for family in FAMILIES
    }
    tables |= {name: list(comparison_table(rows)) for name, rows in comparisons(profile, records).items()}
    return tables | {name: list(runs_table(name, above)) for name, above in RUNS.items()}


def rewritten(text: str, tables: Mapping[str, list[str]]) -> str:
    """The page with its tables as they are now."""
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise TilesightError(f"{PAGE.name} has no block {begin} ... {end}")
        before, rest = text.split(begin)
        text = "\n".join([before + begin, *lines, end + rest.split(end)[1]])
    return text


def main() -> None:
    parser = parser_of(__doc__, folder=False)
    parser.add_argument(
        "--compare", nargs=3, metavar=("NAME", "FIRST", "SECOND"), help="compare two folders of records"
    )
    given = parser.parse_args()
    try:
        if given.compare:
            write_comparison(*given.compare)
        else:
            PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), blocks()), encoding="utf-8")
    except (TilesightError, OSError) as error:
        refuse(str(error))


def write_comparison(name: str, first: str, second: str) -> None:
    """Compare two folders of records and write docs/figures/NAME.csv, which is left alone where one can't be read.

    Raises
    ------
    TilesightError
        If the name is none, or a folder is missing or holds no records, or damaged ones.
    """
    if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name):
        raise TilesightError(f"name {name!r} must be lower-case letters, digits and underscores")
    rows = list(compare_folders(*(records_folder(Path(folder)) for folder in (first, second))))
    with (FIGURES / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
