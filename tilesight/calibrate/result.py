"""What calibrating gives, as data: numbers kept, left out, not derived; benchmarks that ran, were skipped or failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilesight.calibrate.found import Found, Numbers
from tilesight.calibrate.run import Outcome
from tilesight.calibrate.suite import Benchmark
from tilesight.check import ProfileCheck
from tilesight.display import Displayable
from tilesight.hardware.profile import Number, Profile


@dataclass(frozen=True)
class Ran:
    """One pass through the suite: what became of each benchmark, and why others were not run."""

    outcomes: tuple[Outcome, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Benchmarks that this machine can't run, or parts of them, by name; with the reason."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Benchmarks that did not compile or failed, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [{"name": each.name, "points": each.points, "seconds": round(each.seconds, 3)} for each in self.outcomes]
        return {"ran": rows, "skipped": dict(self.skipped), "failed": dict(self.failed)}


@dataclass(frozen=True)
class Unfinished(Displayable):
    """A pass through the suite of which no profile could be made, with the reason."""

    gpu: str
    problem: str
    ran: Ran

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "schema": "tilesight.calibration_unfinished/1",
            "gpu": self.gpu,
            "problem": self.problem,
            **self.ran.to_dict(),
        }


@dataclass(frozen=True)
class Calibration(Displayable):
    """A profile made from records.

    Attributes
    ----------
    profile
        The profile: what was found and kept, and what its base states of the GPU.
    gpu
        Name of the GPU as the records have it.
    base
        Name of the profile that states what no record gives.
    found
        Every number that the records give, also those left out.
    left_out
        Numbers that were found and not kept, with the reason.
    missing
        Numbers that could not be derived, with the record that each needs.
    carried
        Numbers that the base states and no record gives.
    checked
        What the profile is good for: numbers that matrix products lack, and those that measured tables do.
    remedies
        Commands that give those numbers.
    ran
        The pass through the suite, if there was one.
    path
        File of the profile, None while it is not written.
    """

    profile: Profile
    gpu: str
    base: str
    found: Numbers
    left_out: Mapping[str, str]
    missing: Mapping[str, str]
    carried: tuple[str, ...]
    checked: ProfileCheck
    remedies: tuple[str, ...] = ()
    ran: Ran = Ran()
    path: Path | None = None

    @property
    def kept(self) -> Numbers:
        """The numbers found that are in the profile."""
        return {name: found for name, found in self.found.items() if name not in self.left_out}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "schema": "tilesight.calibration/1",
            "name": self.profile.name,
            "gpu": self.gpu,
            "base": self.base,
            "hash": self.profile.hash,
            "profile": None if self.path is None else str(self.path),
            "kept": {name: plain_found(found) for name, found in self.kept.items()},
            "left_out": {name: plain_found(self.found[name]) | {"reason": why} for name, why in self.left_out.items()},
            "missing": dict(self.missing),
            "carried": list(self.carried),
            **{name: self.checked.to_dict()[name] for name in ("gemm", "tables")},
            "remedies": list(self.remedies),
            **self.ran.to_dict(),
        }


def plain_found(found: Found) -> dict[str, Any]:
    """Plain data of a number that was found."""
    return {
        "value": found.rounded.value,
        "spread": found.spread,
        "misfit": found.misfit,
        "kind": found.kind,
        "records": list(found.records),
    }


@dataclass(frozen=True)
class Moved:
    """A number that differs from the profile by more than it may."""

    name: str
    before: Number
    after: int | float
    allowed: float
    """Difference, relative to the value before, up to which it counts as the same."""

    @property
    def change(self) -> float | None:
        """(after - before) / before; None where the profile has 0 or a list."""
        if isinstance(self.before, tuple) or not self.before:
            return None
        return (self.after - self.before) / abs(self.before)


@dataclass(frozen=True)
class Check(Displayable):
    """A profile held against records: how many numbers were compared, and which moved."""

    profile: Profile
    gpu: str
    checked: tuple[str, ...]
    moved: tuple[Moved, ...]
    missing: Mapping[str, str]
    """Numbers of the profile that records should give and these do not, or not well enough, with the reason."""
    ran: Ran = Ran()
    records: Path | None = None
    """Where the records are, if there was a pass through the suite."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [
            {
                "name": each.name,
                "before": each.before,
                "after": each.after,
                "change": each.change,
                "allowed": each.allowed,
            }
            for each in self.moved
        ]
        return {
            "schema": "tilesight.calibration_check/1",
            "name": self.profile.name,
            "hash": self.profile.hash,
            "gpu": self.gpu,
            "checked": list(self.checked),
            "moved": rows,
            "missing": dict(self.missing),
            "records": None if self.records is None else str(self.records),
            **self.ran.to_dict(),
        }


@dataclass(frozen=True)
class SuiteList(Displayable):
    """The suite, and records of the repository that other scripts make: name to script and what it needs."""

    benchmarks: tuple[Benchmark, ...]
    targets: tuple[tuple[str, ...], ...]
    elsewhere: Mapping[str, tuple[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [
            {
                "name": bench.name,
                "source": bench.source.name,
                "runs": [list(words) for words in bench.runs],
                "timeout_s": bench.timeout_s,
                "needs": bench.needs,
                "targets": list(targets),
            }
            for bench, targets in zip(self.benchmarks, self.targets, strict=True)
        ]
        others = [{"name": name, "script": script, "needs": needs} for name, (script, needs) in self.elsewhere.items()]
        return {"schema": "tilesight.suite/1", "suite": rows, "elsewhere": others}
