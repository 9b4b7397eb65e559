"""Draw what the records of a GPU show, and write the plotted numbers beside each picture.

    python validation/plot_records.py validation/records/h200_sxm docs/figures [--only l2_read,dram_mix]

Leaves NAME.svg and NAME.csv for each picture of ``tilesight/calibrate/pictures.py``; needs the extra ``plots``. The same
records give the same files. Exit status 2, and one line, where there are no records, no such picture or no matplotlib.
"""

from __future__ import annotations

from pathlib import Path

from script import parser_of, refuse

from tilesight.calibrate.identity import architecture_in, identify, records_folder
from tilesight.calibrate.pictures import PICTURES
from tilesight.calibrate.records import Records
from tilesight.errors import TilesightError, UnsupportedError, suggestion
from tilesight.plots import require_matplotlib, save


def main() -> None:
    parser = parser_of(__doc__, folder=False)
    parser.add_argument("records", type=Path, help="folder of records of one GPU")
    parser.add_argument("out", type=Path, help="folder for pictures and numbers")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these pictures alone")
    parser.add_argument("--base", default=None, metavar="PROFILE", help="states what no record gives")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name]
    try:
        for path in draw(given.records, given.out, names, given.base):
            print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")
    except (TilesightError, OSError) as error:
        refuse(str(error))


def draw(folder: Path, out: Path, names: list[str], base: str | None) -> tuple[Path, ...]:
    """Draw pictures; nothing is made where one can't be asked for.

    Raises
    ------
    MissingFileError, UnsupportedError, UnknownProfileError, MissingToolError
        If there are no records, no picture of a name, no such base or no matplotlib.
    """
    for name in names:
        if name not in PICTURES:
            raise UnsupportedError(f"no picture {name!r}; {suggestion(name, PICTURES, len(PICTURES))}")
    plain = Records(records_folder(folder))
    records = Records(plain.folder, identify(plain.gpu, base, None, architecture_in(plain)).base)
    require_matplotlib()
    out.mkdir(parents=True, exist_ok=True)
    return save(records, out, names)


if __name__ == "__main__":
    main()
