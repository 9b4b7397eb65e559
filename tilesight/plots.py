"""Pictures, drawn with matplotlib (extra ``plots``), which is loaded when one is asked for.

A function takes data and ``ax=None`` and returns the Axes; nothing is shown and no state of matplotlib is changed. What is
measured has markers with the spread of its repeats, what a law predicts is a line; a resource has one colour everywhere.
Every picture of records is a :class:`~tilesight.calibrate.chart.Chart` first (``tilesight/calibrate/pictures.py``), so that
the plotted numbers can be written beside it.
"""

from collections.abc import Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilesight.calibrate import drift_charts, pictures
from tilesight.calibrate.chart import Axis, Chart, Series, write_chart
from tilesight.calibrate.records import Records
from tilesight.errors import MissingToolError, UnsupportedError, suggestion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "tensor": "#D55E00",
    "fp32": "#E69F00",
    "sfu": "#F0E442",
    "issue": "#7F7F7F",
    "tmem": "#882255",
    "smem": "#009E73",
    "l2": "#0072B2",
    "dram": "#CC79A7",
    "link": "#56B4E9",
    "launch": "#000000",
}
"""Colour of a resource: Okabe and Ito's palette, which colour-blind readers tell apart, and two of Tol's."""
MARKERS = {"o": "○", "s": "□", "D": "◇", "^": "△", "v": "▽", "P": "✚", "X": "✖", "*": "☆"}
"""Marker of matplotlib, one a series of measured points, to the sign before its label."""
LINE = "―"
SIZE_IN = (6.4, 4.0)
LABEL_ROOM = 0.30
"""Share of the width that labels at the ends of lines have."""
LABEL_PT, LABEL_STEP_PT = 7.5, 9.0
TICKS = 7
"""Most ticks of a log2 axis."""
BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def draw(chart: Chart, ax: "Axes | None" = None) -> "Axes":
    """A chart on an Axes; None makes a figure of its own, which no figure manager knows.

    Raises
    ------
    MissingToolError
        If matplotlib is not installed.
    """
    ax = _axes() if ax is None else ax
    for axis, way in ((chart.x, "x"), (chart.y, "y")):
        _scale(ax, axis, way)
    markers = cycle(MARKERS)
    looks = [(COLOURS[each.resource], next(markers) if each.measured else "") for each in chart.series]
    for each, (colour, marker) in zip(chart.series, looks, strict=True):
        _points(ax, each, colour, marker, categorical=bool(chart.x.categories))
    ax.set_title(chart.title, fontsize=9)
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    _label_ends(ax, chart.series, looks)
    return ax


def require_matplotlib() -> None:
    """Refuse where matplotlib is not installed.

    Raises
    ------
    MissingToolError
        With how to get it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingToolError(
            "pictures need matplotlib; install it by: pip install 'tilesight[plots]' (in a checkout: pip install '.[plots]')"
        ) from None


def _axes() -> "Axes":
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN)
    figure.subplots_adjust(left=0.12, right=1 - LABEL_ROOM, bottom=0.14, top=0.92)
    return figure.add_subplot()


def _scale(ax: "Axes", axis: Axis, way: str) -> None:
    """Words, scale and ticks of one axis."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

    getattr(ax, f"set_{way}label")(axis.words, fontsize=8)
    ax.tick_params(labelsize=7.5)
    ticks = getattr(ax, f"{way}axis")
    if axis.scale != "linear":
        getattr(ax, f"set_{way}scale")("log", base=2 if axis.scale == "log2" else 10)
    if axis.categories:
        ticks.set_ticks(range(len(axis.categories)), labels=axis.categories)
    elif axis.scale == "log2":
        ticks.set_major_locator(LogLocator(base=2, numticks=TICKS))
        ticks.set_major_formatter(FuncFormatter(lambda value, _: _binary(value, axis.unit)))
    elif axis.unit:
        ticks.set_major_formatter(EngFormatter(axis.unit))


def _binary(value: float, unit: str) -> str:
    """A tick of a log2 axis: 64 KiB for bytes, else the number.

    Examples
    --------
    >>> _binary(65536, "B"), _binary(0.5, "")
    ('64 KiB', '0.5')
    """
    if unit == "B":
        for size, name in BINARY:
            if value >= size:
                return f"{value / size:g} {name}"
    return f"{value:g}{' ' if unit else ''}{unit}"


def _points(ax: "Axes", each: Series, colour: str, marker: str, *, categorical: bool) -> None:
    if not marker:
        style: dict[str, Any] = {"linestyle": "none", "marker": "_", "markersize": 16} if categorical else {}
        ax.plot(each.x, each.y, color=colour, linewidth=1.0, alpha=0.8, **style)
        return
    half = [value * spread / 2 for value, spread in zip(each.y, each.spread, strict=True)] if each.spread else None
    ax.errorbar(
        each.x, each.y, yerr=half, color=colour, linestyle="none", marker=marker, markersize=3.5, fillstyle="none",
        markeredgewidth=0.8, elinewidth=0.7,
    )  # fmt: skip


def _label_ends(ax: "Axes", drawn: Sequence[Series], looks: Sequence[tuple[str, str]]) -> None:
    """Words beside the last point of each series, moved apart where they would lie on each other."""
    ax.margins(x=0.03)
    ax.autoscale_view()
    named = [(each, *look) for each, look in zip(drawn, looks, strict=True) if each.words]
    points_per_pixel = 72.0 / ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    right, top = (float(value) * points_per_pixel for value in ax.transAxes.transform((1.0, 1.0)))
    ends = [ax.transData.transform((each.x[-1], each.y[-1])) * points_per_pixel for each, *_ in named]
    heights = apart([float(end[1]) for end in ends], LABEL_STEP_PT, top)
    for (each, colour, marker), end, height in zip(named, ends, heights, strict=True):
        ax.annotate(
            f"{MARKERS.get(marker, LINE)} {each.words}",
            (each.x[-1], each.y[-1]),
            xytext=(right - float(end[0]) + 5, height - float(end[1])),
            textcoords="offset points",
            fontsize=LABEL_PT,
            color=colour,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4, "alpha": 0.5},
            annotation_clip=False,
        )


def apart(heights: Sequence[float], step: float, top: float) -> list[float]:
    """Heights moved so that they keep their order, lie a step apart at least, and none lies above the top.

    Examples
    --------
    >>> apart([5.0, 1.0, 5.5], step=2.0, top=6.0)
    [4.0, 1.0, 6.0]
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + step)
    ceiling = top
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - step
    return moved


def save(records: Records, folder: Path, names: Sequence[str] = ()) -> tuple[Path, ...]:
    """Write pictures (NAME.svg) and their numbers (NAME.csv) to a folder; all of them, or those of these names.

    The same records give the same bytes.

    Raises
    ------
    UnsupportedError
        If there is no picture of a name.
    """
    for name in names:
        if name not in pictures.PICTURES:
            raise UnsupportedError(
                f"no picture {name!r}; {suggestion(name, pictures.PICTURES, len(pictures.PICTURES))}"
            )
    written = []
    for name in names or pictures.PICTURES:
        chart = pictures.PICTURES[name](records)
        path = folder / f"{name}.svg"
        _save(draw(chart), path)
        write_chart(path.with_suffix(".csv"), chart)
        written.append(path)
    return tuple(written)


def _save(ax: "Axes", path: Path) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "tilesight", "svg.fonttype": "none"}):
        ax.get_figure(root=True).savefig(path, metadata={"Date": None})  # type: ignore[union-attr]


def l2_read(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Read bandwidth against footprint, from L2 and DRAM, with the fitted law."""
    return draw(pictures.l2_read(records), ax)


def l2_latency(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Latency against footprint."""
    return draw(pictures.l2_latency(records), ax)


def merging_skew(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Lookup share against how much later SMs ask for the same line."""
    return draw(pictures.merging_skew(records), ax)


def merging_sharers(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Lookup share against how many SMs ask for the same line."""
    return draw(pictures.merging_sharers(records), ax)


def drift_starts(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Spread of starts of tiles by rank and by what sets the pace, with the law."""
    return draw(drift_charts.drift_starts(records), ax)


def drift_reads_narrow(records: Records, ax: "Axes | None" = None) -> "Axes":
    """DRAM reads of deep products against k beside the model, raster of width 1."""
    return draw(drift_charts.drift_reads_narrow(records), ax)


def drift_reads_wide(records: Records, ax: "Axes | None" = None) -> "Axes":
    """DRAM reads of deep products against k beside the model, raster of width 8."""
    return draw(drift_charts.drift_reads_wide(records), ax)


def dram_mix(records: Records, ax: "Axes | None" = None) -> "Axes":
    """DRAM bandwidth of mixes of reads and writes."""
    return draw(pictures.dram_mix(records), ax)


def clock_under_load(records: Records, ax: "Axes | None" = None) -> "Axes":
    """SM clock from the start of a load on."""
    return draw(pictures.clock_under_load(records), ax)


def power_under_load(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Power from the start of a load on."""
    return draw(pictures.power_under_load(records), ax)


def tensor_rates(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Tensor rates by format, burst and sustained."""
    return draw(pictures.tensor_rates(records), ax)


def wgmma(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Cycles of wgmma by columns and format."""
    return draw(pictures.wgmma(records), ax)


def smem_bandwidth(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Shared-memory bandwidth by warps and width."""
    return draw(pictures.smem_bandwidth(records), ax)


def smem_conflicts(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Cycles of an access of shared memory by its bank conflicts."""
    return draw(pictures.smem_conflicts(records), ax)


def tma_rate(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Rate of tensor copies by box."""
    return draw(pictures.tma_rate(records), ax)


def dsmem_rate(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Rates in another CTA's shared memory by cluster size."""
    return draw(pictures.dsmem_rate(records), ax)


def dsmem_latency(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Latencies between CTAs by cluster size."""
    return draw(pictures.dsmem_latency(records), ax)


def launch_gaps(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Gaps between dependent kernels."""
    return draw(pictures.launch_gaps(records), ax)


def peer_copy(records: Records, ax: "Axes | None" = None) -> "Axes":
    """Rate of copies between GPUs by size."""
    return draw(pictures.peer_copy(records), ax)
