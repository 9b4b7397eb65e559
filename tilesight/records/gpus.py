"""Names that measured tables and drivers give to GPUs, and the profile each one means.

Sources: ``torch.cuda.get_device_name`` and ``nvidia-smi --query-gpu=name`` print the long names; the public tables
use the short ones.
"""

from __future__ import annotations

import re

_ALIASES = {
    "a100_sxm": ("a100", "a100_sxm4_80gb"),
    "h100_sxm": ("h100", "h100_80gb_hbm3", "h100_sxm5"),
    "h200_sxm": ("h200", "h200_sxm5", "h200_141gb_hbm3e"),
    "b200_sxm": ("b200",),
    "b300_sxm": ("b300", "b300_sxm6_ac"),
    "gb200": (),
    "gb300": (),
    "l40s": (),
    "rtx_pro_6000_server": ("rtx_pro_6000_blackwell_server_edition",),
    "rtx_5090": ("geforce_rtx_5090",),
    "mi210": ("instinct_mi210",),
    "b60": ("arc_pro_b60",),
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases)}
_VENDOR = re.compile(r"^(nvidia|amd|intel)_")


def is_known(name: str) -> bool:
    """Whether a profile name is one of those that names of GPUs stand for.

    Examples
    --------
    >>> is_known("h200_sxm"), is_known("mine")
    (True, False)
    """
    return name in _ALIASES


def canonical_gpu(name: str) -> str:
    """The profile name that ``name`` stands for; a name without an entry comes back as it is.

    Examples
    --------
    >>> canonical_gpu("NVIDIA H200"), canonical_gpu("h200-sxm"), canonical_gpu("tpu_v5")
    ('h200_sxm', 'h200_sxm', 'tpu_v5')
    """
    key = re.sub(r"[\s\-]+", "_", name.strip().lower())
    return _CANONICAL.get(_VENDOR.sub("", key), name)
