"""The CSV of ``bioclip predict``: a row per photo and taxon, with a column per rank."""

from pathlib import Path

from hcep._files import read_csv
from hcep.errors import HCEPError, quote
from hcep.formats import MARKS
from hcep.formats.scores import RANKS, ClassScores, Lineage, Scores, scores_of


def read_scores(source: Path) -> Scores:
    """The scores of the taxa at the lowest rank that the file has."""
    header, *lines = read_csv(source, marks=MARKS) or [[]]
    rows = [dict(zip(header, cells, strict=True)) for cells in lines]
    images, lineages = dict[str, list[tuple[str, float]]](), dict[str, Lineage]()
    for row in rows:
        steps = tuple((rank, row[rank]) for rank in RANKS if row.get(rank))
        label = ";".join(taxon for _, taxon in steps)
        lineages[label] = Lineage(steps, row.get("common_name") or "")
        images.setdefault(row["file_name"], []).append((label, _number(source, row)))
    return scores_of(source, [ClassScores(name, name, scores) for name, scores in images.items()], lineages)


def _number(source: Path, row: dict[str, str]) -> float:
    try:
        return float(row["score"])
    except (TypeError, ValueError):
        problem = f"the score of {quote(row['file_name'])} must be a number, got {quote(row['score'])}"
        raise HCEPError(f"{source.name}: {problem}") from None
