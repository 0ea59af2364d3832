"""The model card: what a person should know before using a model, as Markdown with the hub's metadata.

Rendering is ours because every saved model has a card, also where `huggingface_hub` is not installed; a push checks it
with `huggingface_hub.ModelCard`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from sklearn.utils.validation import check_is_fitted

import hcep
from hcep._checks import escape_markdown, escape_terminal, markdown_code, markdown_table
from hcep.classify import HCEPClassifier
from hcep.classify.coarse_counts import concept_names
from hcep.embeddings.protocol import Encoder, EncoderRecord

#: Most levels and children in the excerpt of the tree, and rows in the table of classes.
MAX_DEPTH, MAX_CHILDREN, MAX_CLASSES = 3, 6, 50

_TAGS = ("hcep", "image-classification", "interpretability", "sparse-coding", "hierarchy", "concepts")
UNMEASURED = "None were recorded. Measure the model on your own images before you rely on it."
EncoderLike = Encoder | EncoderRecord | str | None
#: How the class follows from the path, by the type of the head.
_HEADS = {
    "NoneType": "The class is the leaf at the end of the path.",
    "AdamWHead": "The class is predicted by a linear classifier on the path's coefficients, trained with AdamW.",
    "LogisticRegression": "The class is predicted by logistic regression on the path's coefficients.",
}


def encoder_record(encoder: EncoderLike) -> EncoderRecord | None:
    """What a model records of an encoder."""
    if encoder is None or isinstance(encoder, EncoderRecord):
        return encoder
    if isinstance(encoder, str):
        return EncoderRecord(encoder)
    return EncoderRecord(encoder.name, encoder.fingerprint, getattr(encoder, "preprocessing", None))


def model_card(
    model: HCEPClassifier,
    *,
    name: str | None = None,
    data: str | None = None,
    images_per_class: Mapping[Any, int] | None = None,
    metrics: Mapping[str, float] | None = None,
    encoder: EncoderLike = None,
    license: str = "unknown",
    language: str | None = None,
    tags: Sequence[str] = (),
    repo_id: str | None = None,
) -> str:
    """Describe a fitted classifier in Markdown, with the hub's metadata.

    Parameters
    ----------
    model : a fitted classifier
    name : title of the card
    data : name of the training data
    images_per_class : mapping of label to int, optional
    metrics : mapping of str to float, optional
    encoder : the encoder of the embeddings
    license : licence of the model, as in the hub's list, such as "apache-2.0"; data and encoder may restrict it
    language : language of the class names, such as "en"
    tags : tags beside the card's own
    repo_id : the model's repository on the hub
    """
    check_is_fitted(model, "dictionary_")
    record, h, kind = encoder_record(encoder), model.hierarchy_, type(model.head_).__name__
    coder = markdown_code(record.name) if record else None
    vectors = f"{model.n_features_in_:,}-dimensional embeddings"
    shape = "a tree" if h.is_tree else "a DAG: some synsets have several parents"
    measured = [(escape_markdown(key), f"{value:.4g}") for key, value in (metrics or {}).items()]
    words = {
        "license": _quoted(license),
        "language": f"language: {_quoted(language)}" if language is not None else "",
        "tags": "\n".join(f"- {_quoted(tag)}" for tag in dict.fromkeys([*_TAGS, *tags])),
        "title": escape_markdown(name or repo_id or "HCEP classifier"),
        "source": f"{vectors} of {coder}" if coder else f"{vectors} (the encoder was not recorded)",
        "trail": " → ".join(escape_markdown(h.name(synset)) for synset in h.paths(h.ids[-1])[0]),
        "head": _HEADS.get(kind, f"The class is predicted by a `{kind}` on the path's coefficients."),
        "hierarchy": f"{len(h.leaves):,} classes, {len(h):,} synsets, {h.n_edges:,} edges (one atom each), depth "
        f"{h.depth}, at most {h.max_branching:,} children; {shape}.",
        "tree": _fenced(h.format_tree(MAX_DEPTH, MAX_CHILDREN)),
        "training": _training(model, data, images_per_class),
        "metrics": _table(("metric", "value"), measured) if measured else UNMEASURED,
        "verb": "from_pretrained" if repo_id else "load",
        "place": json.dumps(escape_terminal(repo_id or "path/to/this/folder")),
        "which": f"the encoder {coder}" if coder else "the same encoder",
        "seen": coder or "the encoder",
        "configuration": _configuration(model, record),
    }
    text = files("hcep.models").joinpath("card.md").read_text("utf-8")
    return Template(text if language is not None else text.replace("$language\n", "")).substitute(words)


def _training(model: HCEPClassifier, data: str | None, counts: Mapping[Any, int] | None) -> str:
    title = f"Trained on {escape_markdown(data)}." if data else "The training data was not recorded."
    coarse = _coarse(model)
    if not counts:
        return f"{title} Images per class were not recorded; there are {len(model.classes_):,} classes.{coarse}"
    hierarchy = model.hierarchy_
    by_label = {str(label): n for label, n in counts.items()}
    known = [(str(label), hierarchy.leaf_of(str(label))) for label in model.classes_.tolist()]
    rows = [
        (escape_markdown(label), escape_markdown(hierarchy.name(leaf)), f"{by_label.get(label, 0):,}")
        for label, leaf in known
    ]
    more = f"\n\n… and {len(rows) - MAX_CLASSES:,} more classes." if len(rows) > MAX_CLASSES else ""
    total = f"{title} {sum(by_label.values()):,} images of {len(rows):,} classes.\n\n"
    return total + _table(("class", "name", "images"), rows[:MAX_CLASSES]) + more + coarse


def _coarse(model: HCEPClassifier) -> str:
    """A table of the labels above the classes, if images have such labels."""
    counts = model.coarse_counts_
    if not counts:
        return ""
    names = concept_names(model.hierarchy_)
    rows = [
        (escape_markdown(label), escape_markdown(names.get(label, "")), escape_markdown(count.text(names)))
        for label, count in list(counts.items())[:MAX_CLASSES]
    ]
    n_images = sum(count.n_images for count in counts.values())
    more = f"\n\n… and {len(counts) - MAX_CLASSES:,} more labels." if len(counts) > MAX_CLASSES else ""
    used = any(count.classes for count in counts.values())
    effect = "each teaches the classes below its label" if used else "they were not used"
    about = f"{n_images:,} more images have labels above the classes; {effect}."
    return f"\n\n{about}\n\n{_table(('label', 'name', 'images'), rows)}{more}"


def _configuration(model: HCEPClassifier, encoder: EncoderRecord | None) -> str:
    rows: list[tuple[str, str]] = []
    for key, value in model.get_params(deep=False).items():
        flat = "flat" if value is None else "in `hierarchy.json`"
        rows.append((key, flat if key == "hierarchy" else escape_markdown(str(value))))
    rows.append(("anchor used", f"{model.anchor_:.4g}"))
    rows.append(("shrinkage used", "none" if model.shrinkage_ is None else f"{model.shrinkage_:.4g}"))
    rows.append(("power used", f"{model.power_:.4g}"))
    if model.leaf_moves_ is not None:
        moved = f"by {model.leaf_moves_.mean():.2g} on average, {model.leaf_moves_.max():.2g} at most"
        rows.append(("refined", f"class embeddings moved from their means {moved}, where images have norm 1"))
    if encoder is not None:
        fingerprint = escape_markdown(encoder.fingerprint or "not recorded")
        rows += [("encoder", markdown_code(encoder.name)), ("encoder fingerprint", fingerprint)]
    rows.append(("hcep", hcep.__version__))
    return _table(("parameter", "value"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown_table(head, rows).rstrip("\n")


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    text = escape_terminal(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _quoted(text: str) -> str:
    # YAML reads JSON's double-quoted strings.
    return json.dumps(text, ensure_ascii=False)
