"""Calibrations: numbers kept and left out, what moved, the suite, what compiled."""

from collections.abc import Iterator, Mapping

from tilesight.calibrate.build import Builds
from tilesight.calibrate.found import Found
from tilesight.calibrate.result import Calibration, Check, Ran, SuiteList, Unfinished
from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Number
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe


@describe.register
def describe_unfinished(unfinished: Unfinished) -> Page:
    """Page of a pass through the suite that gave no profile."""
    facts = [("GPU", unfinished.gpu), ("profile", f"none: {unfinished.problem}"), *_facts(unfinished.ran)]
    return Page("calibration", [Facts(facts), *_ran(unfinished.ran)])


@describe.register
def describe_calibration(calibration: Calibration) -> Page:
    """Page of a profile made from records."""
    kept = calibration.kept
    without = sum(found.spread is None for found in kept.values())
    facts = [
        ("GPU", calibration.gpu),
        ("profile", str(calibration.path) if calibration.path else "not written"),
        ("hash", calibration.profile.hash),
        ("numbers", f"{len(kept)} from records, {len(calibration.carried)} as {calibration.base} states them"),
        ("left out", f"{len(calibration.left_out)} found and not kept, {len(calibration.missing)} not derived"),
        ("spread", f"(p90 - p10) / median of repeats; {without} numbers have none: counts, fits, single runs"),
        *_facts(calibration.ran),
    ]
    columns = ("<kept", "value", "spread", "<record")
    blocks: list[Block] = [
        Facts(facts),
        Grid(
            columns,
            [
                (name, plain_number(found.rounded.value), _spread(found), _records(found))
                for name, found in kept.items()
            ],
        ),
        Grid(
            ("<left out", "value", "spread", "<record"),
            [
                (
                    name,
                    plain_number(calibration.found[name].rounded.value),
                    _spread(calibration.found[name]),
                    _records(calibration.found[name]),
                )
                for name in calibration.left_out
            ],
        ),
        Lines(list(_by_reason(calibration.left_out)), "why left out"),
        Lines(list(_by_reason(calibration.missing)), "not derived"),
        *_ran(calibration.ran),
        Lines([*_usable(calibration), *calibration.remedies], "what the profile is good for"),
    ]
    return Page(f"calibration of {calibration.profile.name}", blocks)


def _usable(calibration: Calibration) -> Iterator[str]:
    checked = calibration.checked
    yield from (f"matrix products are refused: {reason}" for reason in checked.gemm_refused)
    if checked.gemm_lacks or not checked.gemm_refused:
        yield f"matrix products lack: {', '.join(checked.gemm_lacks) or 'nothing'}"
    if checked.tables_lack:
        yield f"tables that compare scores lack: {', '.join(checked.tables_lack)}"


@describe.register
def describe_moved(check: Check) -> Page:
    """Page of a profile held against records."""
    facts = [
        ("GPU", check.gpu),
        ("hash", check.profile.hash),
        ("checked", f"{len(check.checked)} numbers, of which {len(check.moved)} moved"),
        *([("records", str(check.records))] if check.records else []),
        *_facts(check.ran),
    ]
    rows = [
        (each.name, _value(each.before), plain_number(each.after), _percent(each.change, "+"), _percent(each.allowed))
        for each in check.moved
    ]
    blocks: list[Block] = [
        Facts(facts),
        Grid(("<moved", "profile", "measured", "change", "allowed"), rows),
        Lines(list(_by_reason(check.missing)), "not checked"),
        *_ran(check.ran),
    ]
    return Page(f"{check.profile.name} against records", blocks)


@describe.register
def describe_suite(suite: SuiteList) -> Page:
    """Page of the suite."""
    rows = [
        (
            bench.name,
            bench.source.name,
            f"{len(bench.runs)}",
            f"{bench.timeout_s:g} s",
            " ".join(targets),
            bench.needs or "",
        )
        for bench, targets in zip(suite.benchmarks, suite.targets, strict=True)
    ]
    others = [(name, script, needs) for name, (script, needs) in suite.elsewhere.items()]
    return Page(
        "microbenchmarks",
        [
            Grid(("<record", "<source", "runs", "limit", "<targets", "<needs"), rows),
            Grid(("<made elsewhere", "<script", "<needs"), others),
        ],
    )


@describe.register
def describe_builds(builds: Builds) -> Page:
    """Page of what compiled."""
    rows = [
        (
            each.job.source.name,
            each.job.target,
            "cubin" if each.job.cubin else "program",
            "does not compile" if each.result is None else each.usage,
        )
        for each in builds.built
    ]
    left_out: dict[str, list[str]] = {}
    for source, target, reason in builds.left_out:
        left_out.setdefault(f"{source}: {reason}", []).append(target)
    count = len(builds.built) - len(builds.failed)
    blocks: list[Block] = [
        Facts([("compiled", f"{count} of {len(builds.built)}")]),
        Grid(("<file", "<target", "<as", "<result"), rows),
        Lines([f"{' '.join(targets)}: {what}" for what, targets in left_out.items()], "left out"),
        Lines([f"{each.job.source.name} for {each.job.target}: {each.complaint}" for each in builds.failed], "failed"),
    ]
    return Page("kernels", blocks)


def _facts(ran: Ran) -> Iterator[tuple[str, str]]:
    if ran.outcomes or ran.failed or ran.skipped:
        good = sum(each.failed is None for each in ran.outcomes)
        seconds = sum(each.seconds for each in ran.outcomes)
        yield "suite", f"{good} benchmarks in {seconds:.0f} s, {len(ran.failed)} failed, {len(ran.skipped)} skipped"


def _ran(ran: Ran) -> Iterator[Block]:
    yield Lines([f"{name}: {reason}" for name, reason in ran.skipped.items()], "skipped")
    yield Lines([f"{name}: {reason}" for name, reason in ran.failed.items()], "failed")


def _by_reason(missing: Mapping[str, str]) -> Iterator[str]:
    """One sentence a reason, with the numbers that share it."""
    names: dict[str, list[str]] = {}
    for name, reason in missing.items():
        names.setdefault(reason, []).append(name)
    for reason, shared in names.items():
        yield f"{', '.join(shared)}: {reason}"


def _spread(found: Found) -> str:
    if found.misfit is not None:
        return f"fit {_percent(found.misfit)}"
    return _percent(found.spread)


def _records(found: Found) -> str:
    return " ".join(found.records)


def _percent(share: float | None, sign: str = "") -> str:
    return "" if share is None else f"{100 * share:{sign}.1f} %"


def _value(value: Number) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else plain_number(value)
