"""Write the profiles of GPUs that are not measured here, from datasheets, publications and the calibrated profile.

Each number stands here once, beside its source. What no document gives is copied from `h200_sxm` by the rules of
profile_draft.py and is `assumed`, with that origin: after a new calibration of `h200_sxm` the copies follow by running
this again.

Run        python validation/profiles_from_sources.py [--check]      --check writes nothing, fails where a file differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from profile_draft import CEILINGS, MEASURED, Draft, add_ceilings, add_copies, rounded

from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.hardware.write import to_toml

ROOT = Path(__file__).resolve().parent.parent
KIB, MIB = 2**10, 2**20

GUIDE = "CUDA C++ Programming Guide, technical specifications per compute capability"
OCCUPANCY = "CUDA occupancy calculator (cuda_occupancy.h), register allocation per warp"
AMPERE = "NVIDIA A100 Tensor Core GPU Architecture (whitepaper, 2020)"
HOPPER = "NVIDIA H100 Tensor Core GPU Architecture (whitepaper, 2022)"
RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture (whitepaper, 2025), GeForce RTX 5090 (GB202)"
ADA = "NVIDIA L40S datasheet (2023)"
HGX = "NVIDIA Blackwell and Blackwell Ultra datasheets, HGX, per GPU, dense"
NVL72 = "NVIDIA GB200 and GB300 NVL72 datasheets, per GPU, dense"
VERDA = "Verda, GB300 NVL72 architecture (2025), specifications per GPU without sparsity"
PAIRS = "a TPC holds two SMs, so that pairs fill all of them, as on b200_sxm"
FLASHINFER = "FlashInfer source, measurement notes of its Blackwell kernels (2026)"
PRO_CARD = "aiconfigurator, systems/rtx_pro_6000_server.yaml: as the card reports, peaks at its 2430 MHz"
BENCHES = "te42kyfo, gpu-benches, gpu-l2-cache (measured, GitHub)"
CDNA2 = "AMD CDNA 2 Architecture (whitepaper, 2021)"
MI210 = "AMD Instinct MI210 datasheet"

SM_LIMITS = {  # threads, CTAs, KiB of shared memory an SM, a CTA
    "sm_80": ("8.0", 2048, 32, 164, 163),
    "sm_89": ("8.9", 1536, 24, 100, 99),
    "sm_90": ("9.0", 2048, 32, 228, 227),
    "sm_100": ("10.0", 2048, 32, 228, 227),
    "sm_103": ("10.3", 2048, 32, 228, 227),
    "sm_120": ("12.0", 1536, 24, 100, 99),
}


def nvidia(name: str, architecture: str) -> Draft:
    """A draft with what all GPUs of a compute capability share."""
    draft = Draft(name, "NVIDIA", architecture)
    capability, threads, ctas, smem, smem_cta = SM_LIMITS[architecture]
    guide = f"{GUIDE}, {capability}"
    draft.published(
        guide,
        sm__threads_max=threads,
        sm__ctas_max=ctas,
        sm__warp_size=32,
        sm__registers=65536,
        sm__registers_per_thread_max=255,
    )
    if architecture == "sm_120":
        draft.say(
            "sm.ctas_max", ctas, "published", guide, "the Blackwell tuning guide says 32; 1536 threads bind first"
        )
    draft.say("sm.register_allocation_unit", 256, "published", f"{OCCUPANCY}, compute capability {capability}")
    draft.published(guide, f"{smem} KiB", sm__smem_bytes=smem * KIB)
    draft.published(guide, f"{smem_cta} KiB", sm__smem_per_cta_max_bytes=smem_cta * KIB)
    draft.published(guide, "1 KiB", sm__smem_reserved_per_cta_bytes=KIB)
    draft.published(
        "CUDA C++ Programming Guide, shared memory: 32 banks of 32 bits per clock cycle",
        sm__smem_bandwidth_bytes_per_cycle=128.0,
    )
    draft.published(
        "CUDA C++ Programming Guide, global memory: 128-byte cache lines of 32-byte sectors",
        l2__line_bytes=128,
        l2__sector_bytes=32,
    )
    return draft


def h100_sxm(measured: Profile) -> Draft:
    """H100 SXM: the chip of the measured GPU with other memory."""
    draft = nvidia("h100_sxm", "sm_90")
    sheet = "NVIDIA H100 Tensor Core GPU datasheet, H100 SXM"
    draft.published(f"{HOPPER}, H100 SXM5", sm_count=132, gpc__count=8)
    draft.published(f"{sheet}: 67 TFLOP/s of fp32", "67e12 / (132 SMs * 256 flop)", clock__boost_hz=1.98e9)
    draft.datasheet(sheet, dram__capacity_bytes=80e9, dram__bandwidth_peak_bytes_per_s=3.35e12)
    draft.published(f"{HOPPER}, H100 SXM5: 50 MB", l2__capacity_bytes=50 * MIB)
    draft.published(
        f"{AMPERE}, L2 cache in two partitions", "the H100 whitepaper keeps the structure", l2__partitions=2
    )
    for name, rate in measured.tensor.items():
        where = f"{HOPPER}, table 2, H100 SXM5, dense"
        draft.say(f"tensor.{name}.flop_per_cycle_per_sm", rate.flop_per_cycle_per_sm, "published", where)
        draft.say(f"tensor.{name}.rate_peak_flop_per_s", rate.rate_peak_flop_per_s, "published", where, "at 1.83 GHz")
    same = ("clock.tensor_hz", "gpc.max_active_clusters.", "l2.lookup_bytes_per_s", "power.", "uncertainty.")
    for name, value in measured.numbers.items():
        if name.startswith(same):
            draft.say(name, value, "assumed", note="same chip and power limit", origin=MEASURED)
    return draft


def a100_sxm(measured: Profile) -> Draft:
    """A100 SXM4, 80 GB."""
    draft = nvidia("a100_sxm", "sm_80")
    sheet = "NVIDIA A100 Tensor Core GPU datasheet, A100 80GB SXM, dense"
    draft.published(f"{AMPERE}, table 4: 7 GPCs, 108 SMs, 1410 MHz", sm_count=108, gpc__count=7, clock__boost_hz=1.41e9)
    draft.datasheet(sheet, dram__capacity_bytes=80e9, dram__bandwidth_peak_bytes_per_s=2.039e12)
    draft.published(f"{AMPERE}, L2 cache: 40 MB in two partitions", l2__capacity_bytes=40 * MIB, l2__partitions=2)
    draft.published(
        f"{BENCHES}: A100 80GB, 10 to 25 MB",
        "of 5120 B a clock (7.2 TB/s) in the whitepaper",
        l2__lookup_bytes_per_s=5.4e12,
    )
    draft.tensor(
        "datasheet",
        sheet,
        fp64=(128, 19.5e12),
        tf32=(1024, 156e12),
        bf16=(2048, 312e12),
        fp16=(2048, 312e12),
        int8=(4096, 624e12),
    )
    return draft


def data_center_blackwell(
    name: str, architecture: str, sms: int, boost: tuple[float, str, str, str], memory: float, peak: float
) -> Draft:
    """What B200, B300, GB200 and GB300 share. Peaks by dtype follow from that of bf16."""
    draft = nvidia(name, architecture)
    sheet = NVL72 if name.startswith("gb") else HGX
    clock, kind, ref, note = boost
    draft.say("clock.boost_hz", clock, kind, ref, note)
    draft.published(f"{FLASHINFER}: multiprocessor count as the device reports", sm_count=sms)
    draft.published("NVIDIA, Inside NVIDIA Blackwell Ultra (technical blog, 2025): two dies of 4 GPCs", gpc__count=8)
    draft.datasheet(sheet, dram__capacity_bytes=memory)
    reported = "the driver of a B200 reports 7680 bits at 3996 MHz, 7.67 TB/s (pytorch/ao, pull request 4002)"
    draft.datasheet(
        "NVIDIA DGX B200, DGX B300, GB200 and GB300 NVL72 datasheets: 8 TB/s a GPU",
        reported,
        dram__bandwidth_peak_bytes_per_s=8e12,
    )
    device = "pytorch/ao, pull request 4002: device query of a B200, 126.5 MB"
    if name == "b200_sxm":
        draft.published(device, "126.5 MiB", l2__capacity_bytes=132644864)
    else:
        draft.assume("126.5 MiB; the same two dies", "b200_sxm", l2__capacity_bytes=132644864)
    draft.assume("one per die; latencies of two kinds are published (chipsandcheese.com, B200)", l2__partitions=2)
    draft.assume(
        "0.9 of 5120 B a clock and die: 5120 B is the A100 whitepaper's, 0.9 what h200_sxm reaches; "
        "20.5 TB/s is published, crossing dies costs an unknown part",
        "h200_sxm",
        l2__lookup_bytes_per_s=rounded(0.9 * 2 * 5120 * clock),
    )
    draft.tensor("datasheet", sheet, tf32=(4096, peak / 2), bf16=(8192, peak), fp16=(8192, peak))
    draft.tensor("datasheet", sheet, fp8=(16384, 2 * peak), fp6=(16384, 2 * peak))
    return draft


def b200_sxm(measured: Profile) -> Draft:
    """B200 of an HGX board."""
    boost = (1.965e9, "published", f"{FLASHINFER}: B200 at 1965 MHz", "")
    draft = data_center_blackwell("b200_sxm", "sm_100", 148, boost, 180e9, 2250e12)
    draft.tensor("datasheet", HGX, int8=(16384, 4.5e15), fp4=(32768, 9e15), fp64=(128, 37e12))
    draft.clusters(f"{FLASHINFER}: maximum active clusters of a B200", P2=74, P4=33, P8=15, P16=7)
    return draft


def b300_sxm(measured: Profile) -> Draft:
    """B300 of an HGX board: little fp64 and int8, more fp4."""
    boost = (2.032e9, "published", f"{FLASHINFER}: B300 at 2032 MHz", "the highest clock as the device reports")
    draft = data_center_blackwell("b300_sxm", "sm_103", 148, boost, 270e9, 2250e12)
    draft.say("dram.capacity_bytes", 270e9, "published", VERDA, "288 GB of memory, 270 GB of it usable")
    draft.tensor("datasheet", HGX, "1.5 times the rate of B200", fp4=(49152, 13.5e15))
    draft.tensor("published", VERDA, "512 flop a cycle at 2.032 GHz are 0.154e15", int8=(512, 0.15e15))
    draft.tensor("published", "Verda, B200 and B300 (2025): 1.25 TFLOP/s of fp64 on B300", fp64=(4, 1.25e12))
    draft.clusters(f"{FLASHINFER}: maximum active clusters of a B300", P2=74, P4=33, P8=15, P16=7)
    return draft


def gb200(measured: Profile) -> Draft:
    """One GPU of a GB200 superchip."""
    boost = (2.008e9, "assumed", "", "clock at which 152 SMs * 8192 flop give the 2500 TFLOP/s of the datasheet")
    draft = data_center_blackwell("gb200", "sm_100", 152, boost, 186e9, 2500e12)
    draft.tensor("datasheet", NVL72, int8=(16384, 5e15), fp4=(32768, 10e15), fp64=(128, 40e12))
    draft.clusters(f"{FLASHINFER}: maximum active clusters of a GB200", P4=36, P8=15)
    draft.assume(PAIRS, gpc__max_active_clusters__2=76)
    return draft


def gb300(measured: Profile) -> Draft:
    """One GPU of a GB300 superchip."""
    boost = (2.032e9, "assumed", "", "the chip of b300_sxm; 152 SMs * 8192 flop at it are 1 % above the datasheet")
    draft = data_center_blackwell("gb300", "sm_103", 152, boost, 279e9, 2500e12)
    draft.source["clock.boost_hz"]["origin"] = "b300_sxm"
    draft.say("dram.capacity_bytes", 279e9, "published", VERDA)
    draft.tensor("datasheet", NVL72, "1.5 times the rate of GB200", fp4=(49152, 15e15))
    draft.tensor("published", VERDA, "512 flop a cycle at 2.032 GHz are 0.158e15", int8=(512, 0.165e15))
    fp64 = {"flop_per_cycle_per_sm": 4.0, "rate_peak_flop_per_s": 1.236e12}
    for key, value in fp64.items():
        draft.say(f"tensor.fp64.{key}", value, "assumed", note="as b300_sxm, by SMs", origin="b300_sxm")
    draft.clusters(f"{FLASHINFER}: clusters of a GB300 with one CTA of 226 KiB an SM", P4=36, P8=14)
    draft.assume(PAIRS, gpc__max_active_clusters__2=76)
    return draft


def l40s(measured: Profile) -> Draft:
    """L40S (AD102)."""
    draft = nvidia("l40s", "sm_89")
    draft.published("NVIDIA L40S product brief: 18176 CUDA cores, boost 2520 MHz", sm_count=142, clock__boost_hz=2.52e9)
    draft.published("NVIDIA Ada GPU Architecture (whitepaper, 2022), AD102: 12 GPCs", gpc__count=12)
    draft.datasheet(ADA, dram__capacity_bytes=48e9, dram__bandwidth_peak_bytes_per_s=0.864e12)
    draft.published("NVIDIA Ada GPU Architecture (whitepaper, 2022), AD102: 98304 KB", l2__capacity_bytes=96 * MIB)
    draft.assume("no second latency or copy of lines is published", l2__partitions=1)
    draft.published(f"{BENCHES}: L40, 20 to 80 MB", "the same chip, at 2490 MHz", l2__lookup_bytes_per_s=5.2e12)
    draft.tensor("datasheet", f"{ADA}, dense", tf32=(512, 183e12), bf16=(1024, 362.05e12), fp16=(1024, 362.05e12))
    draft.tensor("datasheet", f"{ADA}, dense", fp8=(2048, 733e12), int8=(2048, 733e12))
    return draft


def gb202(name: str, sms: int, clock: float, kind: str, ref: str) -> Draft:
    """What RTX PRO 6000 and RTX 5090 share."""
    draft = nvidia(name, "sm_120")
    draft.say("clock.boost_hz", clock, kind, ref)
    draft.say("sm_count", sms, kind, RTX_BLACKWELL if name == "rtx_5090" else f"{ref}; 24064 CUDA cores")
    draft.assume("published as monolithic for GB203 (Dissecting the NVIDIA Blackwell Architecture)", l2__partitions=1)
    return draft


def rtx_pro_6000_server(measured: Profile) -> Draft:
    """RTX PRO 6000 Blackwell Server Edition (GB202): full rate with fp32 accumulation."""
    draft = gb202("rtx_pro_6000_server", 188, 2.43e9, "published", PRO_CARD)
    draft.published(
        f"{RTX_BLACKWELL}: 12 GPCs, 131072 KB", "the full chip", gpc__count=12, l2__capacity_bytes=128 * MIB
    )
    draft.published(PRO_CARD, dram__capacity_bytes=102641958912.0)
    draft.published(
        PRO_CARD, "NVIDIA's page lists 1597 GB/s; measured products pass it", dram__bandwidth_peak_bytes_per_s=1.792e12
    )
    draft.published(
        "chipsandcheese.com, Blackwell: Nvidia's Massive GPU (2025), measured on an RTX PRO 6000",
        "on a card of a higher clock",
        l2__lookup_bytes_per_s=8.7e12,
    )
    draft.tensor("published", PRO_CARD, bf16=(1024, 467.8e12), fp16=(1024, 467.8e12))
    draft.tensor("published", PRO_CARD, fp8=(2048, 935.6e12), int8=(2048, 935.6e12), fp4=(4096, 1871.2e12))
    rates = f"{RTX_BLACKWELL}: tf32 at half the rate of bf16, fp6 at that of fp8"
    draft.tensor("published", rates, "at 2430 MHz", tf32=(512, 233.9e12), fp6=(2048, 935.6e12))
    return draft


def rtx_5090(measured: Profile) -> Draft:
    """RTX 5090 (GB202): fp16, bf16 and fp8 with fp32 accumulation run at half the rate of the professional cards."""
    draft = gb202("rtx_5090", 170, 2.407e9, "published", RTX_BLACKWELL)
    draft.published(f"{RTX_BLACKWELL}: 11 GPCs, 98304 KB", gpc__count=11, l2__capacity_bytes=96 * MIB)
    draft.published(RTX_BLACKWELL, dram__capacity_bytes=32e9, dram__bandwidth_peak_bytes_per_s=1.792e12)
    draft.assume("by SMs, 170 / 188", "rtx_pro_6000_server", l2__lookup_bytes_per_s=rounded(8.7e12 * 170 / 188))
    draft.tensor("published", RTX_BLACKWELL, "fp32 accumulation, dense", tf32=(256, 104.8e12), bf16=(512, 209.5e12))
    draft.tensor("published", RTX_BLACKWELL, "fp32 accumulation, dense", fp16=(512, 209.5e12), fp8=(1024, 419e12))
    draft.tensor("published", RTX_BLACKWELL, "dense", int8=(2048, 838e12), fp4=(4096, 1676e12))
    draft.tensor("published", f"{RTX_BLACKWELL}: fp6 at the rate of fp8", "dense", fp6=(1024, 419e12))
    draft.clusters("CREDIT, maximum active clusters of an RTX 5090", "for P = 1: 170", P2=85, P4=41, P8=19)
    draft.assume(
        "the same memory", "rtx_pro_6000_server", dram__bandwidth_read_bytes_per_s=CEILINGS["rtx_pro_6000_server"][1]
    )
    burst = rounded(209.5e12 * CEILINGS["rtx_pro_6000_server"][0] / 467.8e12)
    draft.assume("the same share of the peak", "rtx_pro_6000_server", tensor__bf16__rate_burst_flop_per_s=burst)
    return draft


def mi210(measured: Profile) -> Draft:
    """AMD Instinct MI210: one CDNA 2 die; a CU stands for an SM, a wave of 64 for a warp, LDS for shared memory."""
    draft = Draft("mi210", "AMD", "cdna2")
    draft.datasheet(MI210, sm_count=104, clock__boost_hz=1.7e9)
    waves = "ROCm Compute Profiler documentation, VALU of CDNA: 4 SIMDs of 8 waves, VGPR files of 512 KiB a CU"
    draft.published(waves, sm__threads_max=2048, sm__warp_size=64, sm__registers=131072)
    draft.assume(
        "no limit but the 32 waves of a CU is published; work-groups with barriers may be fewer", sm__ctas_max=32
    )
    isa = "AMD Instinct MI200 Instruction Set Architecture: 512 VGPRs a wave, allocated in groups of 8"
    draft.published(isa, "8 VGPRs * 64 lanes", sm__register_allocation_unit=512)
    draft.published(isa, "256 of them accumulation registers", sm__registers_per_thread_max=512)
    draft.published(
        f"{CDNA2}: LDS of 64 KB, 128 B a clock", sm__smem_bytes=64 * KIB, sm__smem_per_cta_max_bytes=64 * KIB
    )
    draft.published(f"{CDNA2}: LDS of 64 KB, 128 B a clock", sm__smem_bandwidth_bytes_per_cycle=128.0)
    draft.assume("LDS has no part that a work-group reserves", sm__smem_reserved_per_cta_bytes=0)
    draft.datasheet(MI210, dram__capacity_bytes=64e9, dram__bandwidth_peak_bytes_per_s=1.6384e12)
    draft.published(
        f"{BENCHES}: MI210, 100 to 400 MB", "1.25 TB/s beyond 1 GB", dram__bandwidth_read_bytes_per_s=1.35e12
    )
    draft.published(f"{CDNA2}: L2 of 8 MB, lines of 128 B", l2__capacity_bytes=8 * MIB, l2__line_bytes=128)
    draft.assume("requests of 64 B in the profiler's documentation", l2__sector_bytes=64)
    draft.assume("one die", l2__partitions=1)
    draft.published(
        f"{BENCHES}: MI210, 2 to 5 MB", "128 B a clock and channel are 7.0 TB/s", l2__lookup_bytes_per_s=5e12
    )
    draft.tensor("datasheet", MI210, fp64=(256, 45.3e12), fp32=(256, 45.3e12), fp16=(1024, 181e12))
    draft.tensor("datasheet", MI210, bf16=(1024, 181e12), int8=(1024, 181e12))
    return draft


GPUS = (h100_sxm, a100_sxm, b200_sxm, b300_sxm, gb200, gb300, l40s, rtx_pro_6000_server, rtx_5090, mi210)


def main() -> int:
    """Write or check the files; the exit status."""
    measured = load_profile(MEASURED)
    differ = []
    for gpu in GPUS:
        draft = gpu(measured)
        add_ceilings(draft, measured)
        add_copies(draft, measured)
        text = to_toml(draft.profile())
        path = ROOT / f"hardware_profiles/{draft.about['name']}.toml"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differ.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{len(GPUS)} profiles; {'differing' if '--check' in sys.argv else 'written'}: {', '.join(differ) or 'none'}")
    return 1 if differ and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
