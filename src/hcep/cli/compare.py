"""What `hcep evaluate --compare` compares with: baselines fitted on the same data, other models from their folders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hcep.errors import HCEPError, MissingExtraError, near_matches, quoted

if TYPE_CHECKING:
    from hcep.cli.inputs import Embeddings
    from hcep.evaluate import ImageScores

#: Stands for every baseline that can run here.
ALL = "all"


@dataclass(frozen=True)
class Skipped:
    """A baseline that could not run, and why."""

    method: str
    reason: str


@dataclass
class Rivals:
    """Scores of what a model is compared with, by label, what was skipped, and who warned of what."""

    scores: dict[str, ImageScores] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)


def check_names(names: Sequence[str]) -> None:
    """Refuse what is neither a method nor the folder of a model.

    Raises
    ------
    HCEPError
        With near matches, or the list of methods where nothing is near.
    """
    from hcep.classify.methods import METHODS
    from hcep.models import load_summary

    for name in names:
        if name == ALL or name in METHODS:
            continue
        if Path(name).is_dir():
            load_summary(Path(name))  # says what is missing before the other methods are fitted
            continue
        known = [ALL, *METHODS]
        close = near_matches(name, known) or f" The methods are {quoted(known, len(known))}."
        raise HCEPError(f"--compare: {name!r} is neither a method nor the folder of a model.{close}")


def fit_and_score(
    names: Sequence[str], model: Any, train: Embeddings | None, test: Embeddings, top_k: Sequence[int]
) -> Rivals:
    """Fit the named methods, load the named models, and score all of them on the test images.

    Parameters
    ----------
    names : sequence of str
        Methods, model folders, or "all".
    model : HCEPClassifier
        Its hierarchy is the baselines' too.
    train : Embeddings or None
        What baselines are fitted on; None where only folders are named.
    test : Embeddings
    top_k : sequence of int

    Raises
    ------
    HCEPError, MissingExtraError
        From a method asked for by name; under "all" it is skipped instead.
    """
    from hcep.classify.methods import METHODS

    rivals = Rivals()
    if not names:
        return rivals
    asked = [name for name in dict.fromkeys(names) if name != ALL]
    everything = [name for name in METHODS if name not in asked] if ALL in names else []
    with _progress(len(asked) + len(everything)) as (progress, task):
        for name in [*asked, *everything]:
            label = METHODS[name].label if name in METHODS else name
            progress.update(task, description=escape(label))
            try:
                # Several methods warn of the same atoms: each text is shown once, after the progress bar.
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    rivals.scores[label] = _score(name, model, train, test, top_k)
                for text in dict.fromkeys(str(warning.message) for warning in caught):
                    rivals.warnings.setdefault(text, []).append(label)
            except (HCEPError, MissingExtraError) as error:
                if name in asked:
                    raise
                rivals.skipped.append(Skipped(label, str(error)))
            progress.advance(task)
    return rivals


def needs_training(names: Sequence[str]) -> bool:
    """Whether any of the names is a method to fit."""
    from hcep.classify.methods import METHODS

    return any(name == ALL or name in METHODS for name in names)


def read_training(data: Path, split: str, classes: Sequence[object]) -> Embeddings:
    """The images baselines are fitted on.

    Raises
    ------
    HCEPError
        When the data has no such split, or it lacks a class of the model.
    """
    from hcep.cli.inputs import read_embeddings

    try:
        train = read_embeddings(data, split)
    except HCEPError as error:
        raise HCEPError(
            f"--compare fits methods on the training images of {str(data)!r} (--train-split {split}): {error}"
        ) from None
    absent = sorted({str(c) for c in classes} - set(train.y.tolist()))
    if absent:
        raise HCEPError(
            f"--train-split {split}: {len(absent):,} classes of the model have no image in {train.source}: "
            f"{quoted(absent, 3)}; compare on the data that the model was fitted on"
        )
    return train


def _score(name: str, model: Any, train: Embeddings | None, test: Embeddings, top_k: Sequence[int]) -> ImageScores:
    from hcep.classify.methods import METHODS, make_method
    from hcep.evaluate import evaluate_method

    if name in METHODS:
        assert train is not None
        estimator = make_method(name, model.hierarchy_).fit(train.X, train.y)
    else:
        estimator = _load(Path(name), test)
    return evaluate_method(estimator, test.X, test.y, top_k=top_k)


def _load(folder: Path, test: Embeddings) -> Any:
    from hcep.cli.predict import check_encoder, load

    estimator = load(folder)
    check_encoder(folder, test)
    check_classes(estimator, test, f"the model {str(folder)!r}")
    return estimator


def check_classes(estimator: Any, test: Embeddings, name: str = "the model") -> None:
    """Refuse images of classes that a model does not have."""
    unknown = sorted(set(test.y.tolist()) - {str(c) for c in estimator.classes_.tolist()})
    if unknown:
        raise HCEPError(
            f"{len(unknown):,} labels are not classes of {name}: {quoted(unknown)}; "
            "evaluate on data with the classes it was fitted on"
        )


@contextmanager
def _progress(total: int) -> Iterator[tuple[Progress, Any]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # Without a terminal, rich leaves an empty line where the bar would have been.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task("", total=total)
