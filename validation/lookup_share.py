"""Share of asked bytes that reach the L2 as lookups, from Nsight Compute on the l2_lookup_rate microbenchmark.

    ncu --clock-control none --cache-control none -k regex:lookup_ --csv --page raw --metrics \\
        lts__t_sectors_srcunit_tex.sum,lts__t_requests_srcunit_tex.sum,lts__t_sectors_op_read.sum,\\
dram__bytes_read.sum,gpu__time_duration.sum --log-file COUNTERS.csv ./l2_lookup_rate --repeats 1 > POINTS.jsonl
    python3 validation/lookup_share.py COUNTERS.csv POINTS.jsonl OUT.csv

Every point is four launches (one that checks, three that are timed); the last one is taken. Requests in flight for the
same line merge before the L2, so lookups / asked is 1 for private walks and less where neighbours ask for the same bytes.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

LAUNCHES_PER_POINT = 4
SECTOR_BYTES = 32
EXTRA_SLOTS = {"bulk": 6, "cp_async": 5}  # what a CTA asks for beyond its counted steps
COUNTERS = (
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_requests_srcunit_tex.sum",
    "lts__t_sectors_op_read.sum",
    "dram__bytes_read.sum",
)
KEPT = ("method", "walk", "set_bytes", "group", "active_sms", "ctas_per_sm", "slot_bytes", "steps")


def main(counters: str, points: str, out: str) -> None:
    launches = read_counters(Path(counters))
    measured = [json.loads(line) for line in Path(points).read_text().splitlines() if line.startswith("{")]
    if len(launches) != LAUNCHES_PER_POINT * len(measured):
        raise ValueError(
            f"{counters}: {len(launches)} launches for {len(measured)} points, expected {LAUNCHES_PER_POINT} each"
        )
    with open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["bench", *KEPT, "asked_bytes", "lookup_share", *COUNTERS])
        for index, point in enumerate(measured):
            launch = launches[LAUNCHES_PER_POINT * index + LAUNCHES_PER_POINT - 1]
            slots = point["steps"] + EXTRA_SLOTS[point["method"]]
            asked = point["slot_bytes"] * slots * point["active_sms"] * point["ctas_per_sm"]
            values = [float(launch[name].replace(",", "")) for name in COUNTERS]
            share = round(values[0] * SECTOR_BYTES / asked, 4)
            writer.writerow(
                ["l2_lookup_share", *(point[key] for key in KEPT), asked, share, *(int(value) for value in values)]
            )


def read_counters(path: Path) -> list[dict[str, str]]:
    """Rows of an ncu raw page, without the lines before the header and the row of units."""
    lines = path.read_text().splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    return list(csv.DictReader(lines[header:]))[1:]


if __name__ == "__main__":
    main(*sys.argv[1:4])
