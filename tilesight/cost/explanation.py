"""Why an estimate is what it is, and why two differ: term by term, summing to the whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilesight.cost.estimate import Estimate
from tilesight.display import Displayable
from tilesight.errors import ConfigError
from tilesight.hardware.load import list_profiles, load_profile


@dataclass(frozen=True)
class Term:
    """One part of the time, in seconds: of the estimate, of the other (None without one), and what the first adds."""

    name: str
    seconds: float
    other_seconds: float | None
    difference_s: float | None


@dataclass(frozen=True)
class Cause:
    """A number behind the terms that differs between two estimates: ``dram_read_bytes``, ``period_s.tensor``, ..."""

    name: str
    value: float
    other_value: float


@dataclass(frozen=True)
class Explanation(Displayable):
    """Terms of one estimate, or of the difference ``estimate - other``; sentences that say what matters.

    ``terms`` are sorted by size; their ``seconds`` sum to the estimate's, their ``difference_s`` to the difference.
    ``causes`` are the bytes, the clock, waves and bounds of the period that moved; none without another estimate.
    """

    estimate: Estimate
    other: Estimate | None
    terms: tuple[Term, ...]
    causes: tuple[Cause, ...]
    sentences: tuple[str, ...]

    @property
    def difference_s(self) -> float | None:
        """``estimate.seconds - other.seconds``; None without another."""
        return None if self.other is None else self.estimate.seconds - self.other.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data in a versioned schema."""
        return {
            "schema": "tilesight.explanation/1",
            "estimate": self.estimate.to_dict(),
            "other": None if self.other is None else self.other.to_dict(),
            "difference_s": self.difference_s,
            "terms": [vars(term) for term in self.terms],
            "causes": [vars(cause) for cause in self.causes],
            "sentences": list(self.sentences),
        }


_ADVICE: Mapping[str, str] = {
    "tensor": "the matrix instructions and what is lost between them; a wider instruction or fewer ragged tiles would help",
    "l2": "L2 lookups of the whole chip; a larger tile, multicast or a raster that merges more requests would help",
    "dram": "DRAM traffic; fewer bytes, or operands left in L2, would help",
    "ring": "the time to fill one stage over the stages in flight; more stages or larger ones would help",
    "tma": "rows at an odd pitch hold the copy engine; a row pitch that is a multiple of 128 bytes would help",
    "recurrence": "a chain of dependent actions from one iteration to the next",
    "issue": "element-wise loads: strides that are not a multiple of 16 elements forbid vector loads; pad them",
    "launch": "starts and ends, not the loop: launch, first fill and epilogue outlast it; fuse, or split k over more SMs",
}


def explain_estimate(estimate: Estimate, other: Estimate | None = None) -> Explanation:
    """Explanation of one estimate, or of why it differs from another (other GPU, configuration or problem).

    Raises
    ------
    ConfigError
        If an argument is no Estimate.

    Examples
    --------
    >>> from tilesight import Gemm, GemmConfig, predict
    >>> slow, fast = (
    ...     predict(Gemm(4096, 4096, 4096), GemmConfig(128, tile_n, 64, stages=4), hardware="h200_sxm")
    ...     for tile_n in (64, 256)
    ... )
    >>> why = explain_estimate(slow, fast)
    >>> abs(sum(term.difference_s for term in why.terms) - why.difference_s) < 1e-12
    True
    """
    for value in (estimate, *(() if other is None else (other,))):
        if not isinstance(value, Estimate):
            raise ConfigError(f"explain takes Estimates, got a {type(value).__name__}")
    names = [*estimate.terms, *(name for name in (other.terms if other else ()) if name not in estimate.terms)]
    terms = []
    for name in names:
        mine = estimate.terms.get(name, 0.0)
        theirs = None if other is None else other.terms.get(name, 0.0)
        terms.append(Term(name, mine, theirs, None if theirs is None else mine - theirs))
    terms.sort(key=lambda term: -abs(term.seconds if term.difference_s is None else term.difference_s))
    if other is None:
        return Explanation(estimate, other, tuple(terms), (), tuple(_reasons(estimate)))
    said = _contrast(estimate, other, terms)
    return Explanation(estimate, other, tuple(terms), tuple(_causes(estimate, other)), tuple(said))


SAME = 1.0005
"""Ratio of times that prints as 1.000."""
MOVED = 1e-3
"""Relative difference from which a number counts as another one."""
HALF_EMPTY = 0.5
"""Waves below which a launch leaves most of the slots without a tile."""
IN_SIGHT = 0.5
"""Bounds of less than this share of both periods explain nothing."""
_NUMBERS = ("dram_read_bytes", "dram_write_bytes", "lookup_bytes", "requested_bytes", "clock_hz", "waves", "rounds")


def _causes(estimate: Estimate, other: Estimate) -> Iterator[Cause]:
    """Numbers that moved, bounds of the period last."""
    for name in _NUMBERS:
        yield from _moved(name, getattr(estimate, name), getattr(other, name))
    mine, theirs = estimate.period_s, other.period_s
    for name in {**mine, **theirs}:
        pair = mine.get(name, 0.0), theirs.get(name, 0.0)
        if pair[0] >= IN_SIGHT * max(mine.values()) or pair[1] >= IN_SIGHT * max(theirs.values()):
            yield from _moved(f"period_s.{name}", *pair)


def _moved(name: str, value: float, other_value: float) -> Iterator[Cause]:
    if abs(value - other_value) > MOVED * max(abs(value), abs(other_value)):
        yield Cause(name, value, other_value)


def _reasons(estimate: Estimate) -> list[str]:
    said = [f"bound by {estimate.binding}: {_ADVICE[estimate.binding]}"]
    ranked = sorted(estimate.period_s.items(), key=lambda item: -item[1])
    if len(ranked) > 1:
        (first, most), (second, next_most) = ranked[:2]
        ratio = most / next_most
        said.append(
            f"a k-step takes {most * 1e9:.0f} ns by {first}, {next_most * 1e9:.0f} ns by {second} ({ratio:.2f}x)"
        )
    if 0 < estimate.tail_share < 1 and estimate.rounds > 0:
        said.append(
            f"{estimate.waves:.2f} waves run as {estimate.rounds} round{'s' if estimate.rounds > 1 else ''}: "
            f"{'the last' if estimate.rounds > 1 else 'it'} fills {100 * estimate.tail_share:.0f} % of the slots"
        )
    if estimate.rounds == 1 and estimate.waves < HALF_EMPTY:
        said.append(
            f"{100 * (1 - estimate.waves):.0f} % of the slots have no tile, which is what the tail counts; split k or "
            "smaller tiles would use them"
        )
    if estimate.terms.get("clock", 0.0) > 0.01 * estimate.seconds:
        said.append(f"power holds the clock at {estimate.clock_hz / 1e6:.0f} MHz under this load")
    reread = estimate.dram_read_bytes + estimate.dram_write_bytes
    if reread > 1.05 * estimate.compulsory_bytes:
        said.append(f"DRAM moves {reread / estimate.compulsory_bytes:.2f} times the compulsory bytes")
    return said


def _same_bound(estimate: Estimate, other: Estimate) -> Iterator[str]:
    """What the bound of both takes for a k-step of the launch in each, where it moved."""
    mine, theirs = (one.period_s.get(one.binding) for one in (estimate, other))
    if mine and theirs and abs(mine / theirs - 1) > MOVED:
        yield f"both bound by {estimate.binding}: a k-step takes {mine * 1e9:.0f} ns by it against {theirs * 1e9:.0f} ns"


_OF_A_GPU: Mapping[str, tuple[str, float, str]] = {
    "sm_count": ("SMs", 1.0, ""),
    "clock.boost_hz": ("boost clock", 1e9, " GHz"),
    "dram.bandwidth_read_bytes_per_s": ("DRAM reads", 1e12, " TB/s"),
    "l2.lookup_bytes_per_s": ("L2 lookups", 1e12, " TB/s"),
    "l2.capacity_bytes": ("L2", 2.0**20, " MiB"),
}
"""Numbers that say how two GPUs differ: words, unit."""


def _hardware(estimate: Estimate, other: Estimate) -> Iterator[str]:
    """How the GPUs of two estimates differ, as far as their profiles are still what they were."""
    if estimate.hardware_hash == other.hardware_hash:
        return
    names = [one.hardware for one in (estimate, other)]
    if not set(names) <= set(list_profiles()):  # a what-if copy, or a file of one's own
        return
    gpus = [load_profile(name) for name in names]
    if any(gpu.hash != one.hardware_hash for gpu, one in zip(gpus, (estimate, other), strict=True)):
        return
    formats = [
        name for name in gpus[0].tensor if name in gpus[1].tensor and name == estimate.problem_fields.get("dtype")
    ]
    numbers = {**_OF_A_GPU} | {
        f"tensor.{name}.flop_per_cycle_per_sm": (f"{name} flop a cycle and SM", 1.0, "") for name in formats
    }
    moved = []
    for name, (words, unit, suffix) in numbers.items():
        mine, theirs = (gpu.get(name) for gpu in gpus)
        if mine and theirs and mine != theirs:
            moved.append(f"{words} {mine / unit:.4g} against {theirs / unit:.4g}{suffix}")
    if moved:
        yield f"{estimate.hardware} against {other.hardware}: {', '.join(moved)}"


def _contrast(estimate: Estimate, other: Estimate, terms: list[Term]) -> list[str]:
    ratio = estimate.seconds / other.seconds
    if estimate.seconds == other.seconds:
        return ["takes the same time"]
    said = [f"takes {ratio:.3f} times as long" if ratio > 1 else f"is {1 / ratio:.3f} times as fast"]
    if max(ratio, 1 / ratio) < SAME:
        said = [f"takes the same time to {100 * (SAME - 1):.2g} %"]
    if estimate.binding != other.binding:
        said.append(f"bound by {estimate.binding} against {other.binding}")
    else:
        said += _same_bound(estimate, other)
    said += _hardware(estimate, other)
    total = estimate.seconds - other.seconds
    for term in terms[:3]:
        if total and term.difference_s and abs(term.difference_s) > 0.05 * abs(total):
            how = "more" if term.difference_s > 0 else "less"
            said.append(f"{term.name}: {abs(term.difference_s) * 1e6:.2f} us {how}")
    return said
