"""Draw what the records of a GPU show, and write the plotted numbers beside each picture.

    python validation/plot_records.py validation/records/h200_sxm docs/figures [--only l2_read,dram_mix]

Leaves NAME.svg and NAME.csv for each picture of ``tilesight/calibrate/pictures.py``; needs the extra ``plots``. The same
records give the same files.
"""

import argparse
from pathlib import Path

from tilesight.calibrate.identity import architecture_in, identify, records_folder
from tilesight.calibrate.records import Records
from tilesight.plots import save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, help="folder of records of one GPU")
    parser.add_argument("out", type=Path, help="folder for pictures and numbers")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these pictures alone")
    parser.add_argument("--base", default=None, metavar="PROFILE", help="states what no record gives")
    given = parser.parse_args()
    plain = Records(records_folder(given.records))
    base = identify(plain.gpu, given.base, None, architecture_in(plain)).base
    given.out.mkdir(parents=True, exist_ok=True)
    for path in save(Records(plain.folder, base), given.out, [name for name in given.only.split(",") if name]):
        print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
