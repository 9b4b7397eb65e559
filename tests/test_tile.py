import numpy as np
import pytest

from tilesight.errors import PlanError
from tilesight.plan.tile import Tile, tiles_to_cover

ONE = np.ones(1)


def test_bytes_by_hand():
    # 128 rows x 64 bf16 are 128 * 64 * 2 B = 16 KiB; 64 x 32 fp4 are 64 * 32 / 2 B = 1 KiB
    tile = Tile(np.array([128.0, 64.0]), np.array([64.0, 32.0]), np.array([2.0, 0.5]))
    assert tile.bytes.tolist() == [16384, 1024]


def test_tiles_to_cover_by_hand():
    # 1000 / 128 = 7.8: eight tiles; 1024 is eight exactly, 1025 starts the ninth; a tile larger than all is one
    assert tiles_to_cover(np.array([1000.0, 1024, 1025, 1]), np.array([128.0])).tolist() == [8, 8, 9, 1]


@pytest.mark.parametrize("name", ["rows", "cols", "element_bytes"])
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_sizes_are_positive(name, bad):
    sizes = {"rows": ONE, "cols": ONE, "element_bytes": ONE, name: np.array([1.0, bad])}
    with pytest.raises(PlanError, match=f"tile {name} must be positive"):
        Tile(**sizes)
