"""Reports: what they say, how wide they are, and that HTML is escaped. The numbers themselves are tested elsewhere."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tilesight import (
    Gemm,
    GemmConfig,
    compare_records,
    explain,
    load_profile,
    predict,
    predict_many,
    rank,
    rank_many,
    raster_widths,
)
from tilesight.bench import Bench
from tilesight.candidates import gemm_candidates
from tilesight.errors import TilesightError
from tilesight.files import sample_files
from tilesight.report import html, text
from tilesight.report.estimate import DRAM_ROOF, TENSOR_ROOF, quiet_bytes
from tilesight.report.explanation import ExplainedLaunch
from tilesight.report.profile import ProfileList
from tilesight.units import format_bytes, format_seconds

PROBLEM = Gemm(4096, 4096, 4096)


@pytest.fixture(scope="module")
def estimate(hw):
    return predict(PROBLEM, GemmConfig(128, 256, 64, stages=4), hardware=hw)


@pytest.fixture(scope="module")
def other(hw):
    return predict(PROBLEM, GemmConfig(128, 128, 64, stages=3, kernel="cp_async"), hardware=hw)


@pytest.fixture(scope="module")
def ranking(hw):
    """More configurations than are shown; clusters along m and along n tie."""
    clustered = [config for config in gemm_candidates(PROBLEM, hw) if config.cluster_m * config.cluster_n > 1]
    return rank(PROBLEM, clustered, hardware=hw)


@pytest.fixture(scope="module")
def results(hw, estimate, other, ranking):
    """One of each type that has a report."""
    tables = [compare_records(path, hardware=hw) for path in sample_files().values()]
    bench = Bench(0.4, 0.08, 1.5, 0.09, 0.5, 0.0, 5, "h200_sxm")
    batch = predict_many([PROBLEM], [GemmConfig(128, 256, 64, stages=4)] * 25, hardware=hw)
    tables += [batch, rank_many([PROBLEM, Gemm(64, 512, 512)], hardware=hw, top=1)]
    raster = raster_widths(PROBLEM, GemmConfig(128, 256, 64, stages=4), hardware=hw)
    tables += [raster, ExplainedLaunch(explain(estimate), raster)]
    return [estimate, explain(estimate), explain(estimate, other), ranking, *tables, hw, ProfileList((hw,)), bench]


class Tags(HTMLParser):
    """Checks that tags are closed in order; collects what is between them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen |= {tag, *(name for name, _ in attrs)}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert not tags.open
    return tags


def line_with(page, label):
    """What stands behind a label at the beginning of a line, runs of blanks as one."""
    found = [" ".join(line.split()) for line in page.splitlines()]
    return next(line.removeprefix(f"{label} ") for line in found if line.startswith(f"{label} "))


@pytest.mark.parametrize("width", [40, 100, 200])
def test_text_keeps_to_its_width(results, width):
    for result in results:
        page = text(result, width=width)
        assert max(len(line) for line in page.splitlines()) <= width
        assert not re.search(r"\bnan\b|\binf\b|\bNone\b", page, re.IGNORECASE)
        assert "\x1b" not in page


def test_nothing_is_cut_off_when_narrow(results):
    for result in results:
        narrow, wide = (text(result, width=width) for width in (40, 200))
        assert "…" not in narrow
        numbers = {word for word in wide.split() if re.fullmatch(r"[0-9]+\.[0-9]{2,}", word)}
        assert numbers <= set(re.split(r"[\s(),]+", narrow))


def test_text_takes_the_width_of_the_terminal(estimate, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    assert 40 < max(len(line) for line in text(estimate).splitlines()) <= 50
    monkeypatch.setenv("COLUMNS", "3")
    assert max(len(line) for line in text(estimate).splitlines()) <= 20


def test_color_only_when_asked_for(estimate):
    assert "\x1b[" in text(estimate, width=100, color=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text(estimate, width=100, color=True))
    assert [line.rstrip() for line in plain.splitlines()] == text(estimate, width=100).splitlines()


def test_results_print_themselves(estimate, ranking):
    assert str(estimate) == text(estimate)
    assert ranking._repr_html_() == html(ranking)


def test_estimate_says_everything(estimate):
    page = text(estimate, width=200)
    assert page.splitlines()[0] == f"gemm 4096 x 4096 x 4096 bf16 on h200_sxm: {format_seconds(estimate.seconds)}"
    assert line_with(page, "config") == "128x256x64, 4 stages, 8 warps, warp_specialized"
    assert line_with(page, "time") == format_seconds(estimate.seconds)
    assert line_with(page, "rate").endswith(f"{100 * estimate.share_of_peak:.1f} % of peak")
    assert line_with(page, "roofline").startswith(format_seconds(estimate.roofline_s))
    assert line_with(page, "bound by").startswith(f"{estimate.binding}, {estimate.margin:.2f} times the next bound")
    # 32 x 16 tiles on 100 SMs: 5.12 waves, the sixth round holds 12 of 100
    assert line_with(page, "launch") == "512 tiles, 5.12 waves in 6 rounds, the last fills 12 % of the slots"
    assert line_with(page, "occupancy").startswith(f"1 CTA an SM, limited by {estimate.occupancy_limiter}: ")
    assert line_with(page, "sum") == f"{format_seconds(estimate.seconds)} 100.0 %"
    for name, bound in estimate.period_s.items():
        assert re.search(rf"^{name} +{re.escape(format_seconds(bound))} ", page, re.MULTILINE)
    assert f"{100 * estimate.l2_hit_rate:.1f} % hit" in page
    assert estimate.hardware_hash in page
    assert all(assumption in page for assumption in estimate.assumptions)


def test_terms_on_paper_sum_to_the_time(estimate):
    lines = text(estimate, width=200).split("where the time goes")[1].split("sum")[0].splitlines()
    shares = [float(found[1]) for line in lines if (found := re.search(r"([0-9.]+) %", line))]
    assert len(shares) > 3
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_likely_interval_only_where_known(estimate):
    assert "likely" not in text(estimate)
    known = replace(estimate, seconds_low=1e-4, seconds_high=2.5e-4)
    assert "(likely 100.0 us to 250.0 us)" in text(known, width=200)


def test_a_launch_that_fits_in_part_of_one_wave(hw):
    small = predict(Gemm(128, 256, 64), GemmConfig(128, 256, 64, stages=4), hardware=hw)
    assert line_with(text(small, width=200), "launch") == "1 tile, 0.01 waves in 1 round, it fills 1 % of the slots"
    assert line_with(text(small, width=200), "bound by") == "launch"


def test_a_launch_faster_than_its_roofline(estimate):
    page = line_with(text(replace(estimate, roofline_s=2 * estimate.seconds), width=400), "roofline")
    # the GPU is none that ships, so that nobody knows which term it was
    assert "the estimate is 0.50 times that, which reads all operands from DRAM at the rate of a copy" in page
    assert "; or which goes at the tensor rate" in page
    slower = text(replace(estimate, roofline_s=estimate.seconds / 2), width=400)
    assert line_with(slower, "roofline").endswith("times that")


def test_the_reason_goes_by_the_term_that_is_the_roof():
    # 16 x 8192 x 8192: 134.7 MB of operands in 34.7 us of a copy, 2.1 GFLOP in 3.1 us; 8192 cubed: 1592 us and 104
    for problem, roof, other in (
        (Gemm(16, 8192, 8192), DRAM_ROOF, TENSOR_ROOF),
        (Gemm(8192, 8192, 8192), TENSOR_ROOF, DRAM_ROOF),
    ):
        made = predict(problem, GemmConfig(128, 128, 64, stages=3), hardware="h200_sxm")
        page = text(replace(made, seconds=made.roofline_s / 2), width=400)
        assert roof in page
        assert other not in page


def test_layouts_that_pay_a_transposing_kernel_are_named():
    config = GemmConfig(128, 128, 128, stages=4)

    def hint(**layouts):
        page = text(predict(Gemm(4096, 4096, 4096, dtype="fp8", **layouts), config, hardware="h200_sxm"), width=200)
        return [line for line in page.splitlines() if line.startswith("hint")]

    assert hint() == ["hint       column-major B avoids preparation by a transposing kernel"]
    assert hint(layout_a="column")[0].endswith(
        "row-major A and column-major B avoid preparation by a transposing kernel"
    )
    assert hint(layout_b="column") == []
    assert hint(layout_b="column", quantise_a=True) == []  # the quantiser stays whatever the layout


def test_rounding_residues_are_printed_as_nothing(estimate):
    # 36 B beside 33.5 MB, less than a line; a term 0.01 ns longer than one of 4.4 us
    some = next(iter(estimate.terms))
    residue = replace(estimate, dram_write_bytes=36.01, terms={**estimate.terms, some: estimate.terms[some] + 1.1e-11})
    page = text(explain(residue, replace(estimate, dram_write_bytes=33.5e6)), width=200)
    assert line_with(page, "DRAM writes").split() == ["0", "B", "33.50", "MB", "-"]
    assert line_with(page, some).endswith(" 0 s")
    page = text(explain(replace(estimate, dram_read_bytes=33.5e6), replace(estimate, dram_read_bytes=73.9)), width=200)
    assert line_with(page, "DRAM reads").split() == ["33.50", "MB", "0", "B", "-"]
    page = text(explain(residue, replace(estimate, dram_write_bytes=0.0)), width=200)
    assert "DRAM writes" not in page  # both are nothing
    assert "0 B written" in text(residue, width=200)
    # of a product of few bytes a few are no residue
    assert quiet_bytes(6.0) < 1.0


def test_noise_is_printed_as_nothing(estimate):
    quiet = replace(
        estimate,
        dram_read_bytes=1.0,
        dram_write_bytes=1e-3,
        dirty_after_bytes=0.5,
        resident_after=dict.fromkeys("abc", 9.56e-120),
    )
    page = text(quiet, width=200)
    assert line_with(page, "DRAM") == "0 B read + 0 B written, 0.00 times the compulsory"
    assert line_with(page, "left in L2") == "nothing"


def test_explanation_says_what_moved(estimate, other):
    page = text(explain(estimate, other), width=200)
    found = line_with(page, "L2 lookups").split()
    assert float(found[-1]) == pytest.approx(estimate.lookup_bytes / other.lookup_bytes, abs=5e-4)
    # rounds are 512 tiles on 100 SMs, and 1024 on 2 CTAs of each
    assert {cause.name for cause in explain(estimate, other).causes} >= {"lookup_bytes", "requested_bytes"}
    assert "what moved" not in text(explain(estimate, estimate), width=200)


def test_explanation_of_a_difference(estimate, other):
    page = text(explain(estimate, other), width=200)
    assert page.startswith(f"{format_seconds(estimate.seconds)} against {format_seconds(other.seconds)}\n")
    assert all(sentence in page for sentence in explain(estimate, other).sentences)
    total = line_with(page, "sum")
    assert total.startswith(f"{format_seconds(estimate.seconds)} {format_seconds(other.seconds)} ")
    assert total.endswith(format_seconds(abs(estimate.seconds - other.seconds)))
    assert "cp_async" in line_with(page, "config")


def test_ranking_names_its_ties(ranking, hw):
    page = text(ranking, width=200)
    assert f"the first {ranking.ties} are within 2 % of the best; measure them to tell them apart" in page
    marked = re.findall(r"^ *([0-9]+) = ", page, re.MULTILINE)
    assert marked == [str(place) for place in range(1, ranking.ties + 1)]
    assert f"{len(ranking) - 20} more are not shown" in page
    alone = rank(PROBLEM, [GemmConfig(128, 256, 64, stages=4), GemmConfig(64, 64, 64, stages=4)], hardware=hw)
    assert "no ties: no other is within 2 % of the best" in text(alone, width=200)


def test_ranking_says_what_was_pruned(hw):
    candidates = [GemmConfig(128, 256, 64, stages=4), GemmConfig(256, 256, 64, stages=4)]
    assert "1 that can't run, the first: 4 stages of 256x256x64 need" in text(
        rank(PROBLEM, candidates, hardware=hw), width=200
    )


def test_comparison_counts_and_refusals(hw, altered):
    path = sample_files()["gemm_triton.csv"]
    result = compare_records(path, hardware=altered(hw, {"launch.event_s": None}))
    page = text(result, width=200)
    assert line_with(page, "predictions") == "60 scored, 60 refused"
    assert line_with(page, "mean absolute error") == f"{result.time['mape']:.2f} %"
    assert line_with(page, "roofline alone") == f"{result.time['roofline_mape']:.2f} %"
    for name, scores in result.by_regime.items():
        assert bool(re.search(rf"^{name} ", page, re.MULTILINE)) == bool(scores["n"])
    assert "60 x profile 'h200_sxm' has no launch.event_s" in page
    assert line_with(page, "Kendall tau") == f"{result.ranking['kendall_tau']:.3f}"


def test_profile_shows_sources_and_what_is_absent(hw, altered):
    less = altered(hw, {"launch.graph_gap_s": None, "l2.line_bytes": 128})
    page = text(less, width=200)
    assert re.search(r"^l2\.line_bytes +128 +assumed +changed by a test$", page, re.MULTILINE)
    assert re.search(r"^- +launch\.graph_gap_s$", page, re.MULTILINE)
    assert less.hash in text(ProfileList((less,)), width=200)


def test_html_is_whole_and_loads_nothing(results):
    for result in results:
        tags = parsed(html(result))
        assert tags.seen <= {
            "div", "style", "h4", "h5", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "span", "class",
        }  # fmt: skip
        assert not re.search(r"url\(|@import|://", html(result).split("</style>")[0])


def test_html_and_text_say_the_same(results):
    for result in results:
        in_html = "".join("".join(parsed(html(result)).words[1:]).split())
        in_text = "".join(re.sub(r"[─█]|^- ", "", text(result, width=400), flags=re.MULTILINE).split())
        assert in_text == in_html


def test_hostile_words_are_printed_as_they_are(estimate):
    hostile = replace(estimate, problem="<script>&[red]x[/red]", assumptions=("[/] <b>",), hardware='"><img src=x>')
    tags = parsed(html(hostile))
    assert not tags.seen & {"script", "b", "img", "src"}
    assert "<script>&[red]x[/red]" in "".join(tags.words)
    page = text(hostile, width=200)
    assert '<script>&[red]x[/red] on "><img src=x>' in page
    assert "[/] <b>" in page


def test_batch_is_a_short_table(hw):
    configs = [GemmConfig(128, 64 * n, 64, stages=stages) for n in (1, 2, 3, 4) for stages in range(2, 11)]
    batch = predict_many([PROBLEM], configs, hardware=hw, skip_refused=True)
    page = str(batch)
    assert page.startswith(f"{len(batch)} estimates on h200_sxm\n")
    assert len(batch) > 20
    assert page.count(PROBLEM.dtype) == 20
    assert f"{len(batch) - 20} more are not shown" in page
    assert f"{len(batch.refusals)} refused, the first in place {batch.refusals[0][0]}: " in page
    assert len(page) < 5000
    assert len(repr(batch)) < 100
    assert batch._repr_html_().startswith("<div")
    some = predict_many([PROBLEM], configs[:1], hardware=hw, clock=[0.05])
    assert line_with(text(some, width=200), "state") == "warm cache, 50.00 ms under load"
    nothing = predict_many([PROBLEM], [GemmConfig(128, 256, 64, stages=9)], hardware=hw, skip_refused=True)
    assert text(nothing).startswith("0 estimates on h200_sxm")


def test_no_report_of_other_things():
    with pytest.raises(TilesightError, match="no report of a dict"):
        text({})


def test_less_than_a_byte_is_no_number_of_bytes(estimate):
    page = text(replace(estimate, requested_bytes=0.5757), width=200)
    assert line_with(page, "asked by CTAs") == "below 1 B"


def test_copied_numbers_name_their_origin():
    page = text(load_profile("h100_sxm"), width=200)
    assert re.search(r"^l2\.lookup_bytes_per_s +\S+ +assumed +from h200_sxm: same chip", page, re.MULTILINE)
    assert line_with(page, "predicts") == "tf32, bf16, fp16, fp8, fp8_e5m2, int8"
    assert line_with(page, "not modelled") == "fp64: rates alone"


def test_singulars(hw):
    page = text(rank_many([PROBLEM], [GemmConfig(64, 64, 64, stages=1)], hardware=hw), width=200)
    assert page.startswith("1 problem on ")
    assert "64x64x64, 1 stage, 4 warps" in page


def test_drift_and_the_regime_of_the_cache_are_printed():
    deep = predict(Gemm(8192, 8192, 65536), GemmConfig(128, 256, 64, stages=3, group_m=1), hardware="h200_sxm")
    assert deep.cache_regime == "drift"
    assert f" read, {format_bytes(deep.drift_read_bytes)} of them by drift (likely " in text(deep, width=200)
    still = predict(Gemm(4096, 4096, 64), GemmConfig(128, 256, 64, stages=3), hardware="h200_sxm", cache="cold")
    assert "by drift" not in text(still, width=200)
    assert (still.regime, still.cache_regime) == ("launch-bound", "lockstep")
    assert "regime     launch-bound, lockstep in the cache" in text(still, width=200)
