"""Estimate the time of many images on many machines: measured rates, a formula, and a simulation that checks it.

    python benchmarks/scale.py --measure          measures one core of this machine (needs ray, the photos extra and the
                                                  data of HCEP_SHARED), writes experiments/results/scale.json
    python benchmarks/scale.py                    the tables of docs/scale.md from that file

The simulation hands out shards as `hcep.ray` does, kills machines and workers at random,
redoes what was in flight, and starts the dead again after a while.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

RESULTS = Path(__file__).parents[1] / "experiments" / "results" / "scale.json"
SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2] / "shared"))
CORES = 64
#: Failures of a machine and of a worker process per hour, and the seconds until a machine is replaced.
NODE_DEATHS, WORKER_DEATHS, REPAIR_SECONDS = 1 / 720, 1 / 200, 600.0


# -- measured ------------------------------------------------------------------------------------------


def rate(n_images: int, work) -> float:
    """Return images per second of processor time, which does not depend on other work of the machine."""
    work()
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return n_images / float(np.median(times))


def work_nothing(task):
    return {"n_images": 1}


def measure() -> dict[str, float]:
    """Measure images per second of one core, bytes per image, and seconds per actor and per task."""
    from areas import call, encoder, model

    from hcep import ray as distributed
    from hcep.datasets import read_images
    from hcep.dictionary.moments import ClassMoments
    from hcep.embeddings import EmbeddingStore, encode_to_store

    items = list(read_images(SHARED / "data/imagenette_images/train"))[:64]
    folder = mkdtemp(prefix="hcep-scale-")
    options = {"batch_size": 32, "n_workers": 1, "resume": False}
    found = {"encode": rate(64, lambda: encode_to_store(items, encoder(), folder, **options))}
    store = EmbeddingStore(folder)
    found["bytes_per_image"] = sum(shard.n_bytes for shard in store.shards) / len(store)
    found["dims"] = store.n_dims
    found["predict"] = rate(4096, call(model, "infer", 1000, 4096))
    X, y = np.zeros((8192, 1280), np.float32), np.arange(8192) % 1000
    found["sum_up"] = rate(8192, lambda: ClassMoments(True).update(X, [str(c) for c in range(1000)], y))
    machines = distributed.Cluster("local", n_workers=1)
    start = time.perf_counter()
    machines.connect()
    found["seconds_to_start_ray"] = time.perf_counter() - start
    start = time.perf_counter()
    list(machines.run([{"number": 0}], lambda: work_nothing, "", 0))
    found["seconds_to_start_actor"] = time.perf_counter() - start
    ends = [time.perf_counter() for _ in machines.run([{"number": n} for n in range(200)], lambda: work_nothing, "", 0)]
    found["seconds_per_task"] = (ends[-1] - ends[0]) / (len(ends) - 1)
    rows = [(f"class{n % 100:03}/image{n:08}.jpg", f"class{n % 100:03}") for n in range(100_000)]
    found["driver_bytes_per_image"] = listed_bytes(rows)
    return found


def listed_bytes(rows: list[tuple[str, str]]) -> float:
    """Return the memory of the driver's list of images, per image."""
    import tracemalloc

    from hcep.ray.encoding import _Image

    tracemalloc.start()
    listed = [_Image("/data/images/" + path, label, path + "", None) for path, label in rows]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(listed)


# -- on paper ------------------------------------------------------------------------------------------


def on_paper(n_images: float, n_nodes: int, speed: float, shard: int, start: float, per_task: float) -> float:
    """Estimate the seconds: the work divided by workers or the driver's tasks, the start, a last round, and failures.

    A failure loses half a shard and its worker until it is replaced; a failed node loses all of its workers.
    """
    workers, seconds = n_nodes * CORES, shard / speed
    busy = max(n_images / shard * seconds / workers, n_images / shard * per_task)
    lost = (NODE_DEATHS + WORKER_DEATHS) / 3600 * (seconds / 2 + start) + NODE_DEATHS / 3600 * REPAIR_SECONDS
    return start + busy * (1 + lost) + seconds


def simulated(
    n_images: float, n_nodes: int, speed: float, shard: int, start: float, per_task: float, seed: int = 0
) -> tuple[float, float]:
    """Simulate every worker; return the seconds until all shards are done, and the share that was done twice."""
    rng = np.random.default_rng(seed)
    todo, n_shards = int(np.ceil(n_images / shard)), int(np.ceil(n_images / shard))
    usual, redone, end, free = shard / speed, 0, 0.0, 0.0
    node_death = rng.exponential(3600 / NODE_DEATHS, n_nodes)
    events = [(start, node, worker) for node in range(n_nodes) for worker in range(CORES)]
    heapq.heapify(events)
    while todo > 0 and events:
        now, node, worker = heapq.heappop(events)
        while now > node_death[node] + REPAIR_SECONDS:
            node_death[node] += REPAIR_SECONDS + rng.exponential(3600 / NODE_DEATHS)
        if now >= node_death[node]:
            heapq.heappush(events, (node_death[node] + REPAIR_SECONDS + start, node, worker))
            continue
        now = max(now, free)
        free = now + per_task  # the driver hands out one task after the other
        takes = usual * rng.lognormal(0.0, 0.1) / np.exp(0.005)
        dies = rng.exponential(3600 / WORKER_DEATHS)
        if now + takes > node_death[node]:
            redone += 1
            heapq.heappush(events, (node_death[node] + REPAIR_SECONDS + start, node, worker))
        elif dies < takes:
            redone += 1
            heapq.heappush(events, (now + dies + start, node, worker))
        else:
            todo -= 1
            end = max(end, now + takes)
            heapq.heappush(events, (now + takes, node, worker))
    return end, redone / n_shards


def spoken(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:,.1f} min"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--images", type=float, default=1e8)
    options = parser.parse_args()
    if options.measure:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    found = json.loads(RESULTS.read_text("utf-8"))
    for name, value in found.items():
        print(f"{name:26} {value:12,.4g}")
    print(f"\n{options.images:,.0f} images take {options.images * found['bytes_per_image'] / 1e9:,.0f} GB;", end=" ")
    print(f"the driver holds {options.images * found['driver_bytes_per_image'] / 1e9:,.0f} GB of names\n")
    print(f"| {'work':8} | nodes of {CORES} cores | on paper | simulated | done twice |\n|---|---|---|---|---|")
    worst = 0.0
    for work, shard in (("encode", 16_384), ("predict", 16_384)):
        for n_nodes in (1, 4, 16, 64):
            case = (
                options.images,
                n_nodes,
                found[work],
                shard,
                found["seconds_to_start_actor"],
                found["seconds_per_task"],
            )
            paper, (hours, twice) = on_paper(*case) / 3600, simulated(*case)
            worst = max(worst, abs(paper / (hours / 3600) - 1))
            print(f"| {work} | {n_nodes} | {spoken(paper)} | {spoken(hours / 3600)} | {twice:.2%} |")
    print(f"\nlargest difference between formula and simulation: {worst:.1%}")
    return int(worst > 0.1)


if __name__ == "__main__":
    sys.exit(main())
