"""The few functions a user calls: predict, predict_many, rank, explain, compare_records, load_profile."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from os import PathLike
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilesight.candidates import gemm_candidates
from tilesight.compare import compare_records
from tilesight.cost.clock import CLOCKS, busy_seconds
from tilesight.cost.estimate import Estimate, Estimates
from tilesight.cost.explanation import Explanation, explain_estimate
from tilesight.cost.price import Situation
from tilesight.errors import ConfigError, ProblemError, UnsupportedError, shown
from tilesight.hardware.load import list_profiles, load_profile
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.search import Ranking, Rankings, price_many, rank_configs

Hardware = Profile | str | PathLike[str]
Cache = Literal["warm", "cold"]
Clock = Literal["burst", "sustained"]
CACHES = ("warm", "cold")
TENSORS = ("a", "b", "c")
DIRTY_MOST = 1e15
"""Bytes that no L2 holds."""


def _profile(hardware: Hardware) -> Profile:
    if not isinstance(hardware, Profile | str | PathLike):
        raise ConfigError(f"hardware is a {type(hardware).__name__}; give a Profile, its name or its file")
    return hardware if isinstance(hardware, Profile) else load_profile(hardware)


def _numbers(value: ArrayLike) -> NDArray[np.float64] | None:
    """The value as floats; None if it is anything but numbers: text, bools, None and masked ones are not taken for them."""
    if isinstance(value, np.ma.MaskedArray):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array.astype(float) if array.dtype.kind in "iuf" else None


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: object, least: int, most: int | None = None) -> int | None:
    """The value as an int from ``least`` to ``most``; None if it is none: bools and fractions are not taken for one."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    inside = least <= number and (most is None or number <= most)
    return None if isinstance(value, bool | np.bool_) or not inside else number


def _situation(
    hardware: Profile,
    cache: str | None,
    clock: str | ArrayLike,
    resident: Mapping[str, ArrayLike] | None,
    sms: int | None,
    dirty_bytes: float,
) -> Situation:
    """Checked situation."""
    if cache is not None and (not isinstance(cache, str) or cache not in CACHES):
        raise ConfigError(f"cache = {shown(cache)}; known: {', '.join(CACHES)}")
    if cache is not None and resident is not None:
        raise ConfigError(f"cache = {cache!r} and resident both say what is in L2; give one of the two")
    if resident is not None and not isinstance(resident, Mapping):
        raise ConfigError(f"resident is a {type(resident).__name__}; give shares by tensor, such as {{'a': 0.5}}")
    stated = {}
    for name, share in (resident or {}).items():
        if name not in TENSORS:
            raise ConfigError(f"resident tensor {shown(name)}; known: {', '.join(TENSORS)}")
        known = _numbers(share)
        if known is None or not np.all((known >= 0) & (known <= 1)):
            raise ConfigError(f"resident[{name!r}] = {shown(share)} is not a share in 0..1")
        stated[name] = known
    usable = None if sms is None else _whole(sms, 1, hardware.sm_count)
    if sms is not None and usable is None:
        raise ConfigError(f"sms = {shown(sms)}; {hardware.name} has {hardware.sm_count}: give 1..{hardware.sm_count}")
    dirty = _numbers(dirty_bytes) if _is_real(dirty_bytes) else None
    if dirty is None or not 0 <= dirty < DIRTY_MOST:
        raise ConfigError(f"dirty_bytes = {shown(dirty_bytes)}; give bytes, 0 or more")
    busy = clock if isinstance(clock, str) else _numbers(clock)
    if busy is None:
        raise ConfigError(f"clock = {shown(clock)}; give {', '.join(map(repr, CLOCKS))} or seconds under load")
    busy_s = busy_seconds(busy)
    return Situation(cache or "warm", busy_s, stated if resident is not None else None, float(dirty), usable)


def _check_truth(name: str, value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} = {shown(value)} is not True or False")


def _top(top: int | None) -> int | None:
    """How many to keep; None for all."""
    most = None if top is None else _whole(top, 1)
    if top is not None and most is None:
        raise ConfigError(f"top = {shown(top)}; give a whole number of at least 1, or None for all")
    return most


def _check_lengths(situation: Situation, length: int) -> None:
    """Refuse arrays of options that are not one number for each of ``length`` launches."""
    arrays = {"clock": situation.busy_s}
    arrays |= {f"resident[{tensor!r}]": share for tensor, share in (situation.resident or {}).items()}
    for name, values in arrays.items():
        if values.ndim and values.shape != (length,):
            raise ConfigError(f"{name} has shape {values.shape}; give one number, or one for each of {length} launches")


def predict(
    problem: Gemm,
    config: GemmConfig | None = None,
    *,
    hardware: Hardware,
    cache: Cache | None = None,
    clock: Clock | float = "sustained",
    resident: Mapping[str, float] | None = None,
    sms: int | None = None,
    dirty_bytes: float = 0.0,
) -> Estimate:
    """Predicted time of one launch, and why.

    Parameters
    ----------
    problem
        What is computed.
    config
        How; None takes the configuration that :func:`rank` puts first.
    hardware
        A profile, its name or the path of its TOML file.
    cache
        ``"warm"``: the same launch repeated on the same buffers; ``"cold"``: nothing of it in L2. None is ``"warm"``
        where ``resident`` is not given.
    clock
        ``"burst"``, ``"sustained"``, or the seconds for which the GPU has been under this load.
    resident
        Share of the tensors ``a``, ``b``, ``c`` that is in L2, instead of ``cache``.
    sms
        SMs the kernel may use; all by default.
    dirty_bytes
        Bytes of other data that wait in L2 to be written back.

    Raises
    ------
    ConfigError
        If the configuration is impossible on this GPU, or an option is out of range.
    UnsupportedError
        If the profile lacks a number the model needs, or dtype or GPU can't be priced.
    UnknownProfileError
        If no profile has that name.

    Examples
    --------
    >>> estimate = predict(Gemm(4096, 4096, 4096), GemmConfig(128, 256, 64, stages=4), hardware="h200_sxm")
    >>> estimate.binding
    'tensor'
    """
    if not isinstance(problem, Gemm):
        raise ProblemError(f"problem is a {type(problem).__name__}; give a tilesight.Gemm")
    if config is None:
        return rank(
            problem,
            hardware=hardware,
            cache=cache,
            clock=clock,
            resident=resident,
            sms=sms,
            dirty_bytes=dirty_bytes,
            top=1,
        )[0]
    return predict_many(
        [problem],
        [config],
        hardware=hardware,
        cache=cache,
        clock=clock,
        resident=resident,
        sms=sms,
        dirty_bytes=dirty_bytes,
    )[0]


def predict_many(
    problems: Sequence[Gemm],
    configs: Sequence[GemmConfig],
    *,
    hardware: Hardware,
    cache: Cache | None = None,
    clock: Clock | ArrayLike = "sustained",
    resident: Mapping[str, ArrayLike] | None = None,
    sms: int | None = None,
    dirty_bytes: float = 0.0,
    skip_refused: bool = False,
) -> Estimates:
    """Estimates of many launches at once, in columns; the same numbers as one by one.

    Parameters
    ----------
    problems, configs
        Lists of one length, or one of them of length one; one dtype.
    clock
        As in :func:`predict`; an array gives the seconds under load of each.
    resident
        As in :func:`predict`; an array gives the share for each launch.
    skip_refused
        Leave out configurations that can't run and list them in ``refusals``, instead of raising for the first.

    Other parameters and errors are those of :func:`predict`.

    Examples
    --------
    >>> configs = [GemmConfig(128, 256, 64, stages=s) for s in (3, 4)]
    >>> len(predict_many([Gemm(4096, 4096, 4096)], configs, hardware="h200_sxm"))
    2
    """
    if configs is None:
        raise ConfigError("configs = None: give a list of GemmConfig; rank_many chooses the best one of each problem")
    for items, kind in ((problems, Gemm), (configs, GemmConfig)):
        if isinstance(items, Gemm | GemmConfig) or not isinstance(items, Sequence):
            raise ConfigError(f"give a list of {kind.__name__}, not a {type(items).__name__}")
        for item in items:
            if not isinstance(item, kind):
                raise ConfigError(f"a {type(item).__name__} stands in the list of {kind.__name__}")
    _check_truth("skip_refused", skip_refused)
    profile = _profile(hardware)
    situation = _situation(profile, cache, clock, resident, sms, dirty_bytes)
    _check_lengths(situation, max(len(problems), len(configs)))
    return price_many(problems, configs, profile, situation, skip_refused=skip_refused)


def _candidates(candidates: Iterable[GemmConfig] | None) -> list[GemmConfig] | None:
    """The candidates as a list, each checked; None where the model is to choose them."""
    if candidates is None:
        return None
    try:
        given = list(candidates)
    except TypeError:
        raise ConfigError(f"candidates is a {type(candidates).__name__}; give a list of GemmConfig") from None
    for item in given:
        if not isinstance(item, GemmConfig):
            raise ConfigError(f"a {type(item).__name__} stands among the candidates; give GemmConfig")
    if not given:
        raise ConfigError("no candidates to rank")
    return given


def rank(
    problem: Gemm,
    candidates: Iterable[GemmConfig] | None = None,
    *,
    hardware: Hardware,
    top: int | None = None,
    cache: Cache | None = None,
    clock: Clock | float = "sustained",
    resident: Mapping[str, float] | None = None,
    sms: int | None = None,
    dirty_bytes: float = 0.0,
) -> Ranking:
    """Configurations of a problem by predicted time; illegal ones are pruned first, ties within 2 % are counted.

    Parameters
    ----------
    candidates
        Configurations to choose from; None takes those of :func:`tilesight.candidates.gemm_candidates`.
    top
        Keep the first so many; None keeps all.

    Other parameters and errors are those of :func:`predict`.

    Examples
    --------
    >>> candidates = [GemmConfig(64, 64, 64, stages=4), GemmConfig(128, 256, 64, stages=4)]
    >>> rank(Gemm(4096, 4096, 4096), candidates, hardware="h200_sxm").best
    GemmConfig(128x256x64, 4 stages, 8 warps, warp_specialized)
    """
    if not isinstance(problem, Gemm):
        raise ProblemError(f"problem is a {type(problem).__name__}; give a tilesight.Gemm")
    most = _top(top)
    profile = _profile(hardware)
    situation = _situation(profile, cache, clock, resident, sms, dirty_bytes)
    return _ranked(problem, _candidates(candidates), profile, situation, most)


def _ranked(
    problem: Gemm, candidates: list[GemmConfig] | None, profile: Profile, situation: Situation, most: int | None
) -> Ranking:
    chosen = gemm_candidates(problem, profile) if candidates is None else candidates
    _check_lengths(situation, len(chosen))
    return rank_configs(problem, chosen, profile, situation, most)


def rank_many(
    problems: Sequence[Gemm],
    candidates: Iterable[GemmConfig] | None = None,
    *,
    hardware: Hardware,
    top: int | None = None,
    cache: Cache | None = None,
    clock: Clock | float = "sustained",
    resident: Mapping[str, float] | None = None,
    sms: int | None = None,
    dirty_bytes: float = 0.0,
    skip_refused: bool = False,
) -> Rankings:
    """Rankings of several problems, each as :func:`rank` gives it; other parameters and errors are those of :func:`rank`.

    Parameters
    ----------
    candidates
        As in :func:`rank`, the same for each problem.
    skip_refused
        Leave out problems that the GPU or the candidates can't do and list them in ``refusals``, instead of raising for
        the first one, by its place.

    Examples
    --------
    >>> problems = [Gemm(64, 4096, 4096), Gemm(4096, 4096, 4096)]
    >>> [ranking.best.tile_m for ranking in rank_many(problems, hardware="h200_sxm", top=1)]
    [64, 256]
    """
    if isinstance(problems, Gemm) or not isinstance(problems, Sequence):
        raise ConfigError(f"give a list of Gemm, not a {type(problems).__name__}")
    if not problems:
        raise ConfigError("no problems to rank configurations of")
    for problem in problems:
        if not isinstance(problem, Gemm):
            raise ConfigError(f"a {type(problem).__name__} stands in the list of Gemm")
    _check_truth("skip_refused", skip_refused)
    most, profile, given = _top(top), _profile(hardware), _candidates(candidates)
    situation = _situation(profile, cache, clock, resident, sms, dirty_bytes)
    if given is not None:
        _check_lengths(situation, len(given))
    found: dict[int, Ranking] = {}
    refusals = []
    for place, problem in enumerate(problems):
        try:
            found[place] = _ranked(problem, given, profile, situation, most)
        except (ConfigError, UnsupportedError) as error:
            if not skip_refused:
                raise _of_problem(place, error) if len(problems) > 1 else error from None
            refusals.append((place, str(error)))
    return Rankings(tuple(found.values()), tuple(found), tuple(refusals))


def _of_problem(place: int, error: ConfigError | UnsupportedError) -> ConfigError | UnsupportedError:
    """The error with the place of the problem that it is about."""
    said = f"problem {place}: {error}"
    return UnsupportedError(said, field=error.field) if isinstance(error, UnsupportedError) else ConfigError(said)


def explain(estimate: Estimate, other: Estimate | None = None) -> Explanation:
    """Why an estimate is what it is; with another, why the two differ, term by term.

    Raises
    ------
    ConfigError
        If an argument is no Estimate.

    Examples
    --------
    >>> estimate = predict(Gemm(64, 4096, 4096), GemmConfig(64, 128, 64, stages=4), hardware="h200_sxm")
    >>> explain(estimate).terms[0].seconds <= estimate.seconds
    True
    """
    for given in (estimate, other):
        if isinstance(given, Estimates | Ranking):
            raise ConfigError(f"explain takes one Estimate, not a batch ({type(given).__name__}); pick one, as in [0]")
    return explain_estimate(estimate, other)


__all__ = [
    "compare_records",
    "explain",
    "list_profiles",
    "load_profile",
    "predict",
    "predict_many",
    "rank",
    "rank_many",
]
