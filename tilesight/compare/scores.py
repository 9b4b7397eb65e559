"""Scores of predictions against measurements: pure functions of arrays.

    error  e_i = 100 (p_i - t_i) / t_i            in percent, p predicted, t measured
    MAPE   mean |e_i|        bias  mean e_i       median APE  median |e_i|
    wMAPE  100 sum |p_i - t_i| / sum t_i          large times weigh more

Errors are in percent, regrets and shares are ratios, hit rates in percentage points. A score without rows is None,
never 0. NaN and Inf are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import TilesightError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Scores = dict[str, float | int | None]

LT_20_US, GT_100_US = 20e-6, 100e-6
SMALL_M, DEEP_K = 64, 16384
NEAR_BEST = 1.02
"""A configuration counts as good as the best if its measured time is within 2 % of it."""
REUSED = 1.05
"""DRAM reads beyond this multiple of the compulsory ones mean that operands were read again."""


def signed_errors_percent(predicted: Floats, measured: Floats) -> Floats:
    """100 (predicted - measured) / measured, in percent, element by element.

    Raises
    ------
    TilesightError
        If a value is not finite or a measured one is not above 0.

    Examples
    --------
    >>> signed_errors_percent(np.array([11.0, 8.0]), np.array([10.0, 10.0]))
    array([ 10., -20.])
    """
    predicted, measured = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    for name, values in (("predicted", predicted), ("measured", measured)):
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise TilesightError(f"{name} value {bad[0]} is {values[bad[0]]}; scores need finite numbers")
    if np.any(measured <= 0):
        raise TilesightError("a measured value is not above 0, so a relative error has no meaning")
    errors: Floats = 100 * (predicted - measured) / measured
    return errors


def mape(predicted: Floats, measured: Floats) -> float | None:
    """Mean absolute error in percent; None without rows.

    Examples
    --------
    >>> mape(np.array([11.0, 8.0]), np.array([10.0, 10.0]))
    15.0
    """
    errors = np.abs(signed_errors_percent(predicted, measured))
    return float(errors.mean()) if len(errors) else None


def time_scores(predicted_s: Floats, measured_s: Floats, roofline_s: Floats) -> Scores:
    """MAPE, median APE, bias and wMAPE of times, and the MAPE of the roofline; percent."""
    errors = signed_errors_percent(predicted_s, measured_s)
    if not len(errors):
        return dict.fromkeys(("mape", "median_ape", "bias", "wmape", "roofline_mape"))
    return {
        "mape": float(np.abs(errors).mean()),
        "median_ape": float(np.median(np.abs(errors))),
        "bias": float(errors.mean()),
        "wmape": float(100 * np.abs(predicted_s - measured_s).sum() / np.sum(measured_s)),
        "roofline_mape": mape(roofline_s, measured_s),
    }


def regimes(measured_s: Floats, m: Floats, k: Floats, cache: NDArray[Any]) -> dict[str, Mask]:
    """Masks of the regimes, by measured time, by shape and by state of the cache; they overlap.

    A time of exactly 20 us or 100 us is in ``20to100us``.
    """
    return {
        "lt20us": measured_s < LT_20_US,
        "20to100us": (measured_s >= LT_20_US) & (measured_s <= GT_100_US),
        "gt100us": measured_s > GT_100_US,
        "m_le_64": m <= SMALL_M,
        "deep_k": k >= DEEP_K,
        "warm": cache == "warm",
        "cold": cache == "cold",
    }


REGIMES = {
    "lt20us": f"measured under {LT_20_US * 1e6:.0f} us",
    "20to100us": f"measured {LT_20_US * 1e6:.0f} to {GT_100_US * 1e6:.0f} us",
    "gt100us": f"measured over {GT_100_US * 1e6:.0f} us",
    "m_le_64": f"m <= {SMALL_M}",
    "deep_k": f"k >= {DEEP_K}",
    "warm": "operands in L2 as far as they fit",
    "cold": "nothing of the operands in L2",
}
"""What the regimes are."""


def interval_scores(measured_s: Floats, low_s: Floats, high_s: Floats) -> Scores:
    """How many likely intervals are known (``n``), and the share of them that holds the measured time.

    Examples
    --------
    >>> interval_scores(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.5, np.nan]), np.array([1.5, 3.5, np.nan]))
    {'n': 2, 'inside': 0.5}
    """
    known = np.isfinite(low_s) & np.isfinite(high_s)
    inside = (low_s <= measured_s) & (measured_s <= high_s)  # false where unknown
    n = int(np.count_nonzero(known))
    return {"n": n, "inside": float(np.count_nonzero(inside) / n) if n else None}


def regime_scores(
    predicted_s: Floats, measured_s: Floats, roofline_s: Floats, masks: Mapping[str, Mask]
) -> dict[str, Scores]:
    """``{n, mape, roofline_mape}`` of each regime."""
    return {
        name: {
            "n": int(np.count_nonzero(mask)),
            "mape": mape(predicted_s[mask], measured_s[mask]),
            "roofline_mape": mape(roofline_s[mask], measured_s[mask]),
        }
        for name, mask in masks.items()
    }


def kendall_tau(first: Floats, second: Floats) -> float | None:
    """Rank correlation tau-b: 1 the same order, -1 the reverse; None if one of the two is constant.

    tau_b = (C - D) / sqrt((n0 - T1) (n0 - T2))    (Kendall, Biometrika 33, 1945)

    C, D concordant and discordant pairs, n0 = n (n - 1) / 2, T1 and T2 the pairs tied in each.

    Examples
    --------
    >>> kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))  # 2 pairs agree, 1 does not
    0.3333333333333333
    """
    agreement, differ_first, differ_second = 0, 0, 0
    for i in range(len(first) - 1):
        one, two = np.sign(first[i + 1 :] - first[i]), np.sign(second[i + 1 :] - second[i])
        agreement += int((one * two).sum())
        differ_first += int(np.count_nonzero(one))
        differ_second += int(np.count_nonzero(two))
    if not differ_first or not differ_second:
        return None
    return agreement / float(np.sqrt(differ_first * differ_second))


def group_regret(predicted_s: Floats, measured_s: Floats) -> tuple[float, bool]:
    """Measured time of the predicted best over that of the best, and whether the predicted best two hold a good one.

    A refused configuration has predicted time Inf: it is never picked, but it counts among the measured. Of equal
    predictions the earlier one is picked.

    Examples
    --------
    >>> group_regret(np.array([1.0, 2.0, 3.0]), np.array([12.0, 10.0, 15.0]))  # picks 12 where 10 was possible
    (1.2, True)
    """
    best = measured_s.min()
    order = np.argsort(predicted_s, kind="stable")
    picked = order[: min(2, np.count_nonzero(np.isfinite(predicted_s)))]
    return float(measured_s[order[0]] / best), bool(measured_s[picked].min() <= NEAR_BEST * best)


NO_RANKING: Scores = dict.fromkeys(("top1_regret_geomean", "top1_regret_max", "top2_within_2pct", "kendall_tau"))


def ranking_scores(predicted_s: Floats, measured_s: Floats, groups: NDArray[np.int64]) -> Scores:
    """How well predictions rank the configurations of a problem; None where no group has two.

    Parameters
    ----------
    predicted_s, measured_s
        Times, shape (n,). A refused prediction is Inf.
    groups
        Group of each row, shape (n,): rows with the same value are alternatives for one problem.
    """
    regrets, near, taus = [], [], []
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        priced = rows[np.isfinite(predicted_s[rows])]
        if len(rows) < 2 or not len(priced):
            continue
        regret, holds_good = group_regret(predicted_s[rows], measured_s[rows])
        regrets.append(regret)
        near.append(holds_good)
        taus.append(kendall_tau(predicted_s[priced], measured_s[priced]))
    if not regrets:
        return dict(NO_RANKING)
    defined = [tau for tau in taus if tau is not None]
    return {
        "top1_regret_geomean": float(np.exp(np.log(regrets).mean())),
        "top1_regret_max": float(max(regrets)),
        "top2_within_2pct": float(np.mean(near)),
        "kendall_tau": float(np.mean(defined)) if defined else None,
    }


def group_numbers(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """One number per row, equal where all keys are equal, counted from 0 in order of first appearance.

    Examples
    --------
    >>> group_numbers(np.array([5, 5, 7]), np.array(["warm", "cold", "warm"])).tolist()
    [0, 1, 2]
    """
    seen: dict[tuple[object, ...], int] = {}
    columns = zip(*(key.tolist() for key in keys), strict=True)
    return np.array([seen.setdefault(key, len(seen)) for key in columns], dtype=np.int64)


def l2_scores(predicted: Mapping[str, Floats], measured: Mapping[str, Floats], compulsory: Floats, k: Floats) -> Scores:
    """Bytes at L2 and DRAM, and hit rates; None for what is not measured or not predicted.

    Parameters
    ----------
    predicted, measured
        Some of ``dram_read_bytes``, ``dram_write_bytes``, ``lookup_bytes``, ``crossing_bytes``, ``l2_hit_rate``, shape (n,)
        each. A measured nan says that nobody counted in that row; the row is no part of that score, nor of a relative one
        where 0 was counted.
    compulsory
        Operand bytes, each read once, shape (n,).
    k
        Size of the summed dimension, shape (n,).
    """
    scores: Scores = dict.fromkeys(L2_SCORES)
    both = {
        name: ~np.isnan(measured[name]) & ((measured[name] != 0) | (name == "l2_hit_rate"))
        for name in set(predicted).intersection(measured)
    }
    if "dram_read_bytes" in both and both["dram_read_bytes"].any():
        counted = both["dram_read_bytes"]
        read, measured_read = predicted["dram_read_bytes"][counted], measured["dram_read_bytes"][counted]
        reused, deep = measured_read > REUSED * compulsory[counted], k[counted] >= DEEP_K
        scores["dram_read_mape"] = mape(read, measured_read)
        scores["dram_read_mape_reused"] = mape(read[reused], measured_read[reused])
        scores["dram_read_median_ape"] = float(np.median(np.abs(signed_errors_percent(read, measured_read))))
        scores["dram_read_mape_deep_k"] = mape(read[deep], measured_read[deep])
    if {"dram_read_bytes", "dram_write_bytes"} <= both.keys():
        total, measured_total = (each["dram_read_bytes"] + each["dram_write_bytes"] for each in (predicted, measured))
        counted = ~np.isnan(measured_total) & (measured_total != 0)
        scores["dram_bytes_mape"] = mape(total[counted], measured_total[counted])
    for name, score in (("lookup_bytes", "lookup_mape"), ("crossing_bytes", "crossing_mape")):
        if name in both:
            scores[score] = mape(predicted[name][both[name]], measured[name][both[name]])
    if "l2_hit_rate" in both and both["l2_hit_rate"].any():
        counted = both["l2_hit_rate"]
        points = 100 * np.abs(predicted["l2_hit_rate"][counted] - measured["l2_hit_rate"][counted])
        if not np.all(np.isfinite(points)):
            raise TilesightError("a hit rate is not finite; scores need finite numbers")
        scores["hit_rate_mae_pp"] = float(points.mean())
        scores["hit_rate_p90_pp"] = float(np.percentile(points, 90))
    return scores


L2_SCORES = (
    "dram_read_mape",
    "dram_read_mape_reused",
    "dram_read_median_ape",
    "dram_read_mape_deep_k",
    "dram_bytes_mape",
    "lookup_mape",
    "crossing_mape",
    "hit_rate_mae_pp",
    "hit_rate_p90_pp",
)
