"""Darwin Core occurrence records, as GBIF and the Living Atlases read them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from hcep.errors import counted
from hcep.formats.answers import AnsweredImage, Writing, now, taken_at, write_rows
from hcep.formats.scores import RANKS

COLUMNS = (
    *("occurrenceID", "basisOfRecord", "occurrenceStatus", "eventDate", "scientificName", "taxonRank"),
    *(RANKS[:-1]),
    *("higherClassification", "identifiedBy", "dateIdentified"),
    *("identificationVerificationStatus", "identificationRemarks", "associatedMedia"),
)


def write(answers: Iterable[AnsweredImage], output: Path, writing: Writing) -> None:
    """Write one record per image or box with an answer that is an organism: neither blank nor a vehicle."""
    empty = lifeless = 0

    def rows() -> Iterator[dict[str, object]]:
        nonlocal empty, lifeless
        for one in answers:
            if one.answer is None:
                empty += 1
                continue
            if one.answer.kind in ("blank", "vehicle"):
                lifeless += 1
                continue
            time, answer = taken_at(one.path), one.answer
            taxa = {rank.lower(): name for rank, name in answer.lineage.items()}
            yield {
                **{rank: taxa.get(rank) for rank in RANKS[:-1]},
                "occurrenceID": one.region.id,
                "basisOfRecord": "MachineObservation",
                "occurrenceStatus": "present",
                "eventDate": time and "".join(time),
                "scientificName": answer.scientific_name,
                "taxonRank": answer.rank,
                "higherClassification": " | ".join(answer.names[:-1]),
                "identifiedBy": None if one.corrected else writing.classifier,
                "dateIdentified": None if one.corrected else now(),
                "identificationVerificationStatus": None if one.corrected else "unverified",
                "identificationRemarks": one.corrected
                or f"probability {answer.probability:.3f}; likeliest class {one.best.name}",
                "associatedMedia": one.region.file,
            }

    write_rows(output, COLUMNS, rows())
    if lifeless:
        writing.on_note(f"{output.name} has no record of {counted(lifeless, 'image')} without an organism")
    if empty:
        writing.on_note(f"{output.name} has no record of {counted(empty, 'image')} without a sure answer")
