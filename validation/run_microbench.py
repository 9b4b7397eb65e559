"""Build and run the microbenchmarks on the GPU of this machine and write one record each.

    python3 validation/run_microbench.py OUT_DIR [--only dram_read,stage_fill] [--jobs 16]

The list is data: validation/microbench_list.toml. A record is NAME.csv (one row a measured point, columns = JSON keys)
and NAME.toml (device, driver, compiler, clocks before and after, power limit, date, commands). Needs nvcc, nvidia-smi and
Python 3.11 alone.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import hashlib
import json
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "kernels_cuda" / "microbench"
LIST = Path(__file__).with_name("microbench_list.toml")
NVCC = ["nvcc", "-O3", "-lineinfo", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v"]
GPU_QUERY = ("name", "driver_version", "power.limit", "clocks.max.sm", "clocks.max.mem")
LOAD_QUERY = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")


def main() -> int:
    options = parse_arguments()
    benches = read_list(options.list, options.only)
    out = Path(options.out_dir)
    binaries = out / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    sources = sorted({bench["source"] for bench in benches.values()})
    with ThreadPoolExecutor(options.jobs) as pool:
        built = dict(zip(sources, pool.map(lambda source: build(source, binaries), sources), strict=True))
    failed = [source for source, log in built.items() if log is None]
    for name, bench in benches.items():
        if bench["source"] in failed:
            continue
        started = time.monotonic()
        points = measure(name, bench, binaries, out, built[bench["source"]])
        print(f"{name}: {points} points, {time.monotonic() - started:.1f} s", flush=True)
        if points == 0:
            failed.append(name)
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir")
    parser.add_argument("--only", default="", help="comma-separated record names")
    parser.add_argument("--jobs", type=int, default=8, help="compilers at a time")
    parser.add_argument("--list", type=Path, default=LIST)
    return parser.parse_args()


def read_list(path: Path, only: str) -> dict[str, dict]:
    """Record name -> {source, runs, timeout_s}; raises KeyError for a name that is not in the list."""
    table = tomllib.loads(path.read_text())
    names = [name for name in only.split(",") if name] or list(table)
    benches = {}
    for name in names:
        if name not in table:
            raise KeyError(f"no microbenchmark '{name}' in {path.name}; known: {', '.join(table)}")
        entry = table[name]
        benches[name] = {
            "source": entry.get("source", f"{name}.cu"),
            "runs": entry.get("runs", [[]]),
            "timeout_s": entry.get("timeout_s", 60),
        }
    return benches


def build(source: str, binaries: Path) -> str | None:
    """Compile one file; returns the compiler's report (registers, spills), or None when it fails."""
    command = [*NVCC, str(SOURCES / source), "-o", str(binaries / Path(source).stem)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{source} does not compile:\n{done.stderr}", file=sys.stderr)
        return None
    return done.stderr


def measure(name: str, bench: dict, binaries: Path, out: Path, report: str) -> int:
    """Run every command line of one record, write CSV and TOML, return the number of points (0: something failed)."""
    binary = binaries / Path(bench["source"]).stem
    rows, commands, before = [], [], query(LOAD_QUERY)
    for arguments in bench["runs"]:
        words = [str(word) for word in arguments]
        commands.append(" ".join([f"./{binary.name}", *words]))
        text, problem = run_binary([str(binary), *words], bench["timeout_s"])
        rows += [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        if problem:
            print(f"{commands[-1]}: {problem}", file=sys.stderr)
            write_csv(out / f"{name}.incomplete.csv", rows)
            return 0
    write_csv(out / f"{name}.csv", rows)
    write_toml(out / f"{name}.toml", name, bench, commands, before, query(LOAD_QUERY), report)
    return len(rows)


def run_binary(command: list[str], timeout_s: float) -> tuple[str, str]:
    """Standard output, and what went wrong ('' when nothing did)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(), f"over {timeout_s} s"
    return done.stdout, f"exit {done.returncode}\n{done.stderr[-2000:]}" if done.returncode else ""


def query(fields: tuple[str, ...]) -> dict[str, str]:
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if shutil.which(command[0]) is None:
        return {}
    done = subprocess.run(command, capture_output=True, text=True)
    return dict(zip(fields, (value.strip() for value in done.stdout.split(",")), strict=False))


def write_csv(path: Path, rows: list[dict]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_toml(path: Path, name: str, bench: dict, commands: list[str], before: dict, after: dict, report: str) -> None:
    gpu = query(GPU_QUERY)
    compiler = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout.strip().splitlines()
    used = [line.split("info    :")[-1].strip() for line in report.splitlines() if "Used" in line]
    values = {
        "record": name,
        "source": f"kernels_cuda/microbench/{bench['source']}",
        "source_sha256": hashlib.sha256((SOURCES / bench["source"]).read_bytes()).hexdigest(),
        "gpu": gpu.get("name", "unknown"),
        "driver": gpu.get("driver_version", "unknown"),
        "compiler": compiler[-2] if len(compiler) > 1 else "unknown",
        "flags": " ".join(NVCC[1:]),
        "power_limit_w": number(gpu.get("power.limit")),
        "sm_clock_max_mhz": number(gpu.get("clocks.max.sm")),
        "memory_clock_max_mhz": number(gpu.get("clocks.max.mem")),
        "sm_clock_before_mhz": number(before.get("clocks.sm")),
        "sm_clock_after_mhz": number(after.get("clocks.sm")),
        "memory_clock_after_mhz": number(after.get("clocks.mem")),
        "power_after_w": number(after.get("power.draw")),
        "temperature_after_c": number(after.get("temperature.gpu")),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commands": commands,
        "registers": sorted(set(used)),
    }
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def number(text: str | None) -> float | str:
    try:
        return float(text or "")
    except ValueError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
