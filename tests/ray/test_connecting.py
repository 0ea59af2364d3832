"""What is said where there is no cluster, or no Ray; and --ray with and without an address."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hcep.cli.options import with_ray_address
from hcep.errors import HCEPError, MissingExtraError
from hcep.ray.cluster import Cluster


@pytest.mark.slow
def test_there_is_no_cluster() -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    code = "from hcep.ray.cluster import Cluster; Cluster(address='127.0.0.1:1').connect()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert "no Ray cluster at '127.0.0.1:1': [Errno 111] Connection refused" in done.stderr


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingExtraError, match=r'work on a cluster needs ray, which is not installed: .*"hcep\[ray\]"'
    ):
        Cluster().connect()


def test_workers_are_counted() -> None:
    with pytest.raises(HCEPError, match="n_workers must be a positive integer, or None for one per CPU; got 0"):
        Cluster(n_workers=0)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["encode", "x", "--ray"], ["encode", "x", "--ray", ""]),
        (["encode", "--ray", "-o", "store"], ["encode", "--ray", "", "-o", "store"]),
        (["encode", "--ray", "photos/"], ["encode", "--ray", "", "photos/"]),
        (["encode", "--ray", "10.0.0.1:6379", "x"], ["encode", "--ray", "10.0.0.1:6379", "x"]),
        (["encode", "--ray", "auto"], ["encode", "--ray", "auto"]),
        (["encode", "--ray", "ray://head:10001"], ["encode", "--ray", "ray://head:10001"]),
        (["info"], ["info"]),
        ([], []),
    ],
)
def test_an_address_may_follow_ray(given: list[str], read: list[str]) -> None:
    assert with_ray_address(given) == read
