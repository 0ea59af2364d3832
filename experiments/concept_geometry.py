"""The paper's geometry on real embeddings: cones, orthogonality, simplices, and recovery under restriction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Verdict, by_data, outcome, threshold, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Axes, Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import Task
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.geometry import Geometry
from hcep.evaluate import paired_draws


@dataclass(frozen=True)
class Config:
    """Number of images per class to average (None: all), and number of random pairings."""

    shots: int | None = None
    seed: int = 0
    n_pairings: int = 100


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield the four parts of the figure, with and without subtracting the mean, because cones depend on the origin."""
    for center in (False, True):
        for part in PARTS:
            yield {"part": part, "center": center, "shots": config.shots, "seed": config.seed}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Yield one row per synset, atom, parent or level."""
    drawn = task.shots(config.shots, config.seed)
    dictionary = ConceptDictionary.from_images(drawn.hierarchy, drawn.X, drawn.y, center=cell["center"])
    for row in PARTS[cell["part"]](dictionary.geometry, config):
        yield {"part": cell["part"], "center": cell["center"], **row}


def _cones(geometry: Geometry, config: Config) -> Iterator[Row]:
    cones, hierarchy = geometry.disjointness(), geometry.dictionary.hierarchy
    for i, synset in enumerate(hierarchy.ids[1:], start=1):
        if not hierarchy.is_leaf(synset):
            shares = {"fraction": cones.fraction[i], "violation": cones.mean_violation[i]}
            yield {"synset": synset, "level": int(hierarchy.levels[i]), **shares}


def _orthogonality(geometry: Geometry, config: Config) -> Iterator[Row]:
    pairings = [geometry.orthogonality(random_state=config.seed + i) for i in range(config.n_pairings)]
    average = np.abs([one.random_cosine for one in pairings]).mean(axis=0)
    columns = (pairings[0].cosine, pairings[0].random_cosine, average)
    for cosine, control, size in zip(*(column.tolist() for column in columns), strict=True):
        yield {"cosine": cosine, "random_cosine": control, "random_size": size}


def _simplices(geometry: Geometry, config: Config) -> Iterator[Row]:
    simplex, hierarchy = geometry.simplex(), geometry.dictionary.hierarchy
    for i, deviation in zip(simplex.parent.tolist(), simplex.mean_deviation.tolist(), strict=True):
        yield {"n_children": len(hierarchy.children(hierarchy.ids[i])), "deviation": deviation}


def _recovery(geometry: Geometry, config: Config) -> Iterator[Row]:
    nested = geometry.recovery().nested
    for level, column in enumerate(nested.T):
        before = nested[:, max(level - 1, 0)]
        both = np.isfinite(before) & np.isfinite(column)
        rise = (column[both] - before[both]).max(initial=0.0)
        here, finite = column[~np.isnan(column)], column[np.isfinite(column)]
        if len(finite):
            low, middle, high = np.quantile(finite, [0.1, 0.5, 0.9])
            row = {"level": level, "erc_median": middle, "erc_low": low, "erc_high": high}
            yield {**row, "certified": np.mean(here < 1.0 - 1e-9), "largest_rise": rise, "n_leaves": len(here)}


PARTS = {"cones": _cones, "orthogonality": _orthogonality, "simplex": _simplices, "recovery": _recovery}


def draw(rows: list[Row]) -> Figure:
    """Draw a row of panels per data set: cones (two panels), orthogonality, simplices and recovery."""
    groups = by_data(rows)
    figure = canvas(17, 2.9 * len(groups))
    for (name, whole), axes in zip(groups.items(), figure.subplots(len(groups), 5, squeeze=False), strict=True):
        parts = {part: [r for r in whole if r["part"] == part and not r["center"]] for part in PARTS}
        _draw_clusters(axes[:3], parts, name)
        pairs = [(r["n_children"], r["deviation"]) for r in parts["simplex"]]
        axes[3].plot(*zip(*pairs, strict=True), ".", color="#2ca02c", alpha=0.6)
        axes[3].set(title="simplices", xlabel="children", ylabel="mean |cos + 1/(b-1)|", ylim=(-0.02, None))
        steps = parts["recovery"]
        levels, low, middle, high = ([r[k] for r in steps] for k in ("level", "erc_low", "erc_median", "erc_high"))
        axes[4].fill_between(levels, low, high, alpha=0.2, color="#9467bd")
        axes[4].plot(levels, middle, "o-", color="#9467bd", label="median and 10-90 %")
        axes[4].axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        axes[4].set(title="recovery coefficient", xlabel="restricted to the subtree at level", ylabel="ERC")
        axes[4].legend(frameon=False)
    return figure


def _draw_clusters(axes: Sequence[Axes], parts: dict[str, list[Row]], name: str) -> None:
    left, middle, right = axes
    cones, atoms = parts["cones"], parts["orthogonality"]
    left.hist([r["fraction"] for r in cones], bins=np.linspace(0, 1, 21).tolist(), color="#1f77b4")
    left.set(title=f"{name}: others in the cone", xlabel="share of non-descendants* inside", ylabel="inner synsets")
    middle.hist([r["violation"] for r in cones], bins=20, color="#1f77b4")
    middle.set(title="mean violation", xlabel="degrees (outside counted 0)", ylabel="inner synsets")
    left.annotate("* ancestors left out", (0.98, 0.9), xycoords="axes fraction", ha="right", fontsize=7)
    bins = np.linspace(-1, 1, 41).tolist()
    random = [r["random_cosine"] for r in atoms if r["random_cosine"] is not None]
    right.hist(random, bins=bins, alpha=0.6, color="#7f7f7f", label="random parent, one draw")
    right.hist([r["cosine"] for r in atoms], bins=bins, alpha=0.6, color="#d62728", label="own parent")
    right.set(title="orthogonality", xlabel="cosine of atom and parent", ylabel="atoms")
    right.legend(frameon=False)


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check the paper's two observations. The third one, that the coefficient falls, is a lemma and cannot fail."""
    mine = [r for r in rows if not r["center"]]
    median, clear = _intrusion(mine)
    claim = "the cones of half of the inner synsets contain less than a tenth of the non-descendants except ancestors"
    text = f"the median share is {number(median)}; for {number(clear)} of the inner synsets it is 0"
    yield threshold(f"{data}: {claim}", 0.1 - median, text, paper=True)
    own, random = _cosines(mine)
    if len(own):
        gap = paired_draws([random], [own])
        text = f"the mean |cosine| is {number(own.mean())}, and {number(random.mean())} over many random pairings "
        text += f"(difference {number(gap.difference)}, {number(gap.low)} to {number(gap.high)} over atoms)"
        claim = f"{data}: atoms are closer to orthogonal to their own parent than to random parents"
        yield Verdict(claim, outcome(gap, "cosine"), text, paper=True)


def _intrusion(rows: list[Row]) -> tuple[float, float]:
    shares = np.array([r["fraction"] for r in rows if r["part"] == "cones"])
    return float(np.median(shares)), float(np.mean(shares == 0))


def _cosines(rows: list[Row]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the absolute cosines of atoms with their own parent, and their mean with random parents."""
    pairs = [r for r in rows if r["part"] == "orthogonality" and r["random_size"] is not None]
    return np.abs([r["cosine"] for r in pairs]), np.array([r["random_size"] for r in pairs])


def table(rows: list[Row]) -> str:
    lines = []
    for name, whole in by_data(rows).items():
        for center in (False, True):
            mine = [r for r in whole if r["center"] == center]
            own, random = _cosines(mine)
            simplex = [r["deviation"] for r in mine if r["part"] == "simplex" and r["n_children"] > 2]
            steps = [r for r in mine if r["part"] == "recovery"]
            shares = (*_intrusion(mine), own.mean(), random.mean(), float(np.median(simplex or [0.0])))
            # The last restriction leaves one atom, which has no competitor, so its certificate means nothing.
            recovery = (f"{steps[0]['erc_median']:.2f} → {steps[-2]['erc_median']:.2f}", number(steps[0]["certified"]))
            lines.append((name, "centred" if center else "raw", *map(number, shares), *recovery))
    heads = (
        *("data", "embeddings", "others in the cone, median share", "synsets without any", "|cos| own parent"),
        *("|cos| random parents", "simplex deviation of 3 or more children, median"),
        *("ERC, full → second-last restriction", "certified, full dictionary"),
    )
    note = "“Others” are non-descendants except ancestors, which are close to a synset by construction.\n\n"
    return note + markdown(heads, lines)


EXPERIMENT = described("geometry", cells, measure, draw, verdicts, table, Config(), Config(shots=5))
