"""How tree attention's work is shared out: plain arithmetic, no device."""

from __future__ import annotations

import pytest

from dominotree.gpu.attention import SHARED_LIMIT, clusters_at_once, cut

H200 = 132  # multiprocessors


@pytest.mark.parametrize("heads, groups, d", [(32, 8, 128), (9, 3, 64), (16, 8, 128), (32, 32, 128)])
@pytest.mark.parametrize("cluster", [True, False])
def test_every_row_and_key_has_a_place(heads: int, groups: int, d: int, cluster: bool) -> None:
    """All rows of a head lie in its shares, the bucket's units in its splits, and shared memory suffices."""
    per = heads // groups
    for n in (*range(1, 40), 65, 129, 136):
        for bucket in (640, 1024, 2304, 40960):
            shape = cut(n, heads, groups, d, bucket, H200, cluster)
            assert shape.fits(n, per, d, bucket)
            share = -(-n * per // shape.shares)
            assert share <= shape.mt * 16 and (shape.shares - 1) * share < n * per <= shape.shares * share
            units = -(-bucket // (16 * shape.splits))  # of one CTA, at most
            assert shape.room(bucket) == min(units * 16, shape.stages * shape.tile)
            assert shape.shared_bytes(n, per, d, bucket) <= SHARED_LIMIT


@pytest.mark.parametrize("n", [1, 2, 16, 17, 33, 65, 129, 136])
def test_qwen_runs_in_one_wave(n: int) -> None:
    """A second wave of clusters would double the time."""
    shape = cut(n, 32, 8, 128, 2304, H200, True)
    assert 8 * shape.shares <= clusters_at_once(shape.splits, H200)


def test_clusters_at_once_as_seen_on_an_h200() -> None:
    """15 clusters of 8; 16 of 6 ran together, 24 of 5 and 16 of 7 did not."""
    assert clusters_at_once(8, H200) == 15
    assert clusters_at_once(6, H200) >= 16
    assert clusters_at_once(5, H200) < 24
    assert clusters_at_once(7, H200) < 16
