"""Draw the small sample of measured tables that ships with the package: validation/records/sample.

    python validation/sample_records.py TABLES_FOLDER validation/records/sample

TABLES_FOLDER holds gemm_cublas.csv and gemm_triton.csv. The choice depends on the rows alone, so the same tables give
the same sample: products evenly spaced in order of measured time, for Triton one with a deep K besides, and the same
number of configurations of each, evenly spaced in the order of the table. Cells are copied as they are. The sample is
for tests, examples and the documentation; accuracy is scored on whole tables.
"""

import csv
from pathlib import Path

from script import parser_of, refuse

CUBLAS_ROWS = 40
TRITON_PRODUCTS, TRITON_CONFIGS = 5, 10
DEEP_K = 16384

Row = dict[str, str]


def evenly_spaced(items: list, count: int) -> list:
    """``count`` of ``items`` at equal distances, the first and the last among them."""
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def sample_cublas(rows: list[Row]) -> list[Row]:
    """Products from the fastest to the slowest, given back in the order of the table."""
    by_time = sorted(range(len(rows)), key=lambda i: (float(rows[i]["warm_us"]), i))
    return [rows[i] for i in sorted(evenly_spaced(by_time, CUBLAS_ROWS))]


def sample_triton(rows: list[Row]) -> list[Row]:
    """Products from the fastest to the slowest and the middle one of deep K, with as many configurations each."""
    products: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        products.setdefault((row["m"], row["n"], row["k"]), []).append(row)
    by_time = sorted(products.values(), key=lambda group: min(float(row["warm_us"]) for row in group))
    deep = [group for group in by_time if int(group[0]["k"]) >= DEEP_K]
    other = [group for group in by_time if int(group[0]["k"]) < DEEP_K]
    chosen = [*evenly_spaced(other, TRITON_PRODUCTS), deep[len(deep) // 2]]
    return [row for group in chosen for row in evenly_spaced(group, TRITON_CONFIGS)]


SAMPLES = {"gemm_cublas.csv": sample_cublas, "gemm_triton.csv": sample_triton}


def main(tables: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, choose in SAMPLES.items():
        with (tables / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        chosen = choose(rows)
        with (out / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(chosen[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(chosen)
        print(f"{name}: {len(chosen)} of {len(rows)} rows")


if __name__ == "__main__":
    parser = parser_of(__doc__, folder=False)
    parser.add_argument("tables", type=Path, metavar="TABLES_FOLDER", help="folder of gemm_cublas.csv, gemm_triton.csv")
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER", help="folder for the sample")
    given = parser.parse_args()
    missing = [name for name in SAMPLES if not (given.tables / name).is_file()]
    if missing:
        refuse(f"no {' and no '.join(missing)} in {given.tables}")
    main(given.tables, given.out)
