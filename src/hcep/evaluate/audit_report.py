"""The audit: all checks, what they say together, as JSON and as one HTML file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from hcep._checks import escape_html as escape, html_table, rounded
from hcep.classify import HCEPClassifier
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError
from hcep.evaluate.audit_checks import Check, Subject, checks_of

WORDS = {True: "passed", False: "failed", None: "open"}
#: What may be done where all of some checks pass, and what may not where one fails.
MEANING = {
    ("leakage", "concepts removed", "deletion and insertion"): (
        "Its paths may be shown as the reason for its answers: the answers come from them, and go with their concepts.",
        "Its paths must not be shown as the reason for its answers",
    ),
    ("calibration and coverage",): (
        "Its probabilities, and answers with a promised coverage, may be acted on for images like these.",
        "Its probabilities and coverage must not be acted on",
    ),
    ("noise", "other training images"): (
        "Its answers may be compared from one photo, and from one training set, to another: they are stable.",
        "Single answers must not be relied on where small changes matter",
    ),
    ("shuffled labels", "random tree"): (
        "Its hierarchy may be read as knowledge: controls without it are worse.",
        "Its hierarchy must not be read as knowledge",
    ),
    ("thin classes",): ("All of its classes may be used.", "Its thin classes must not be used alone"),
    ("groups",): (
        "It may be used in all groups that were looked at.",
        "It must not be used in groups that fall behind",
    ),
}


@dataclass(frozen=True)
class Audit:
    """What the checks of a model found."""

    name: str  #: of the model
    n_images: int
    n_classes: int
    accuracy: float
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if check.passed is False)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the model may be used for and what not, in plain words."""
        found = {check.name: check for check in self.checks}
        said = [f"It is right on {self.accuracy:.1%} of {self.n_images:,} images of {self.n_classes:,} classes."]
        for names, (may, must_not) in MEANING.items():
            looked = [found[name] for name in names if name in found]
            bad = [check for check in looked if check.passed is False]
            if bad:
                said.append(f"{must_not}: " + "; ".join(f"{check.name}: {check.measured}" for check in bad) + ".")
            elif looked and all(check.passed for check in looked):
                said.append(may)
        undecided = [f"{check.name} ({check.measured})" for check in self.checks if check.passed is None]
        return (*said, *([f"Left open: {'; '.join(undecided)}."] if undecided else []))

    def to_json(self) -> str:
        """Everything, one object."""
        whole = {**asdict(self), "failed": self.failed, "sentences": self.sentences}
        return msgspec.json.format(msgspec.json.encode(whole, enc_hook=float), indent=2).decode()

    def to_html(self) -> str:
        """One HTML file that fetches nothing."""
        page = Template(Path(__file__).with_name("audit.html").read_text("utf-8"))
        said = "".join(f"<li>{escape(text)}</li>" for text in self.sentences)
        title, checks = f"Audit of {escape(self.name)}", "".join(map(_section, self.checks))
        return page.substitute(title=title, checks=checks, sentences=said)


def audit(
    model: HCEPClassifier,
    X: ArrayLike | EmbeddingStore,
    y: ArrayLike,
    *,
    train: tuple[ArrayLike | EmbeddingStore, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    coverage: float = 0.9,
    random_state: int = 0,
    name: str = "the model",
    progress: bool = False,
) -> Audit:
    """Run all checks.

    Parameters
    ----------
    model : fitted
    X, y : labelled images that it was not fitted on; a store is gone through in blocks
    train : (X, y); what it was fitted on: controls are fitted to it
    groups : (n_images,) array; a group of every image, such as its camera
    coverage : the promise that is looked at; on half of the images where the model is not calibrated, else on those
        that it was not calibrated on
    name : of the model, for the report
    progress : show a progress bar
    """
    labels, given = np.asarray(y), None if groups is None else np.asarray(groups)
    unknown = set(np.unique(labels).tolist()) - set(model.classes_.tolist())
    if unknown:
        raise HCEPError(f"{len(unknown):,} labels are no classes of the model, such as {min(map(str, unknown))!r}")
    if given is not None and len(given) != len(labels):
        raise HCEPError(f"groups must be one per image, {len(labels):,} of them; got {len(given):,}")
    arrays = None if train is None else (_images(train[0]), np.asarray(train[1]))
    subject = Subject(model, _images(X), labels, arrays, given, coverage, random_state, progress)
    checks = tuple(checks_of(subject))
    return Audit(name, len(labels), len(model.classes_), subject.sums.mean("correct"), checks)


def _images(X: ArrayLike | EmbeddingStore) -> Any:
    return X if isinstance(X, EmbeddingStore) else np.asarray(X)


def _section(check: Check) -> str:
    word = WORDS[check.passed]
    rows = ""
    if check.rows:
        head = list(check.rows[0])
        cells = [[row[key] for key in head] for row in check.rows]
        rows = html_table(head, [[rounded(v) if isinstance(v, float) else str(v) for v in r] for r in cells])
    return (
        f"<h2>{escape(check.name)}: <span class={word}>{word}</span></h2><p>{escape(check.question)} "
        f"{escape(check.measured)}.</p>{rows}"
    )
