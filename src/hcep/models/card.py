"""The model card: what a person needs to know before using a model, as Markdown with the hub's front matter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sklearn.utils.validation import check_is_fitted

import hcep
from hcep import _tables
from hcep._escape import markdown, markdown_code, terminal
from hcep.classify import HCEPClassifier
from hcep.embeddings.protocol import EncoderRecord as EncoderRecord
from hcep.hierarchy import Hierarchy

#: Levels and children of the tree excerpt, and rows of the table of classes.
MAX_DEPTH, MAX_CHILDREN, MAX_CLASSES = 3, 6, 50

_TAGS = ("hcep", "image-classification", "interpretability", "sparse-coding", "hierarchy", "concepts")

_CITATION = """\
@inproceedings{nguyen2026hcep,
  title     = {Hierarchical Concept Embedding \\& Pursuit for Interpretable Image Classification},
  author    = {Nguyen, Nghia and Ding, Tianjiao and Vidal, Ren{\\'e}},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)},
  year      = {2026}
}"""


class NamedEncoder(Protocol):
    """The part of an encoder that a saved model remembers."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str | None: ...


EncoderLike = NamedEncoder | str | None


def encoder_record(encoder: EncoderLike) -> EncoderRecord | None:
    """What a model keeps of an encoder; of a bare name there is no more."""
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
    """Describe a fitted classifier in Markdown, front matter included.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-3)
    >>> model = HCEPClassifier(data.hierarchy).fit(data.X, data.y)
    >>> card = model_card(model, name="simplices", metrics={"accuracy": 0.875})
    >>> card.splitlines()[1:3]
    ['license: "unknown"', 'library_name: hcep']
    >>> "| accuracy | 0.875 |" in card
    True

    Parameters
    ----------
    model : fitted
    name : title of the card
    data : name of the training data
    images_per_class : mapping of label to int, optional
    metrics : mapping of str to float, optional
    encoder : what makes the embeddings
    license : identifier in the hub's list, such as "apache-2.0". The model's, which its data and encoder may bind.
    language : of the class names, such as "en"
    tags : besides the card's own
    repo_id : where on the hub the model is
    """
    check_is_fitted(model, "dictionary_")
    record = encoder_record(encoder)
    sections = [
        f"# {markdown(name or repo_id or 'HCEP classifier')}\n\n{_introduction(model, record)}",
        f"## Hierarchy\n\n{_hierarchy(model.hierarchy_)}",
        f"## Training data\n\n{_training(model, data, images_per_class)}",
        f"## Metrics\n\n{_metrics(metrics)}",
        f"## Use\n\n{_use(record, repo_id)}",
        f"## Intended use\n\n{_INTENDED}",
        f"## Limits\n\n{_limits(record)}",
        f"## Configuration\n\n{_configuration(model, record)}",
        f"## Citation\n\n{_fenced(_CITATION, 'bibtex')}",
    ]
    return _front_matter(license, language, tags) + "\n\n".join(sections) + "\n"


def _front_matter(license: str, language: str | None, tags: Sequence[str]) -> str:
    lines = [f"license: {_quoted(license)}", "library_name: hcep", "pipeline_tag: image-classification"]
    if language is not None:
        lines.append(f"language: {_quoted(language)}")
    lines += ["tags:", *(f"- {_quoted(tag)}" for tag in dict.fromkeys([*_TAGS, *tags]))]
    return "---\n" + "\n".join(lines) + "\n---\n\n"


def _introduction(model: HCEPClassifier, encoder: EncoderRecord | None) -> str:
    vectors = f"{model.n_features_in_:,}-dimensional embeddings"
    source = f"{vectors} of {markdown_code(encoder.name)}" if encoder else f"{vectors} (the encoder was not recorded)"
    heads = {
        "NoneType": "The class is the leaf at the end of the path.",
        "AdamWHead": "The class is predicted by a linear classifier on the path's coefficients, trained with AdamW.",
        "LogisticRegression": "The class is predicted by logistic regression on the path's coefficients.",
    }
    kind = type(model.head_).__name__
    head = heads.get(kind, f"The class is predicted by a `{kind}` on the path's coefficients.")
    return (
        "An image classifier that explains itself, made with HCEP (Hierarchical Concept Embedding & Pursuit). It takes "
        f"{source} and finds, for each image, the rooted path of concepts in a hierarchy whose embeddings best add up "
        f"to the image's, {_trail_example(model.hierarchy_)}. {head}"
    )


def _trail_example(hierarchy: Hierarchy) -> str:
    deepest = hierarchy.paths(hierarchy.ids[-1])[0]
    return "such as *" + " → ".join(markdown(hierarchy.name(synset)) for synset in deepest) + "*"


def _hierarchy(hierarchy: Hierarchy) -> str:
    shape = "a tree" if hierarchy.is_tree else "a DAG: some synsets have several parents"
    return (
        f"{len(hierarchy.leaves):,} classes, {len(hierarchy):,} synsets, {hierarchy.n_edges:,} edges (one atom each), "
        f"depth {hierarchy.depth}, at most {hierarchy.max_branching:,} children; {shape}. Merged single-child "
        f"chains stand in brackets. The whole of it is in `hierarchy.json`.\n\n"
        + _fenced(hierarchy.format_tree(MAX_DEPTH, MAX_CHILDREN), "text")
    )


def _training(model: HCEPClassifier, data: str | None, counts: Mapping[Any, int] | None) -> str:
    title = f"Trained on {markdown(data)}." if data else "The training data was not recorded."
    if not counts:
        return f"{title} Images per class were not recorded; there are {len(model.classes_):,} classes."
    hierarchy = model.hierarchy_
    by_label = {str(label): n for label, n in counts.items()}
    known = [(str(label), hierarchy.leaf_of(str(label))) for label in model.classes_.tolist()]
    rows = [(markdown(label), markdown(hierarchy.name(leaf)), f"{by_label.get(label, 0):,}") for label, leaf in known]
    more = f"\n\n… and {len(rows) - MAX_CLASSES:,} more classes." if len(rows) > MAX_CLASSES else ""
    total = f"{title} {sum(by_label.values()):,} images of {len(rows):,} classes.\n\n"
    return total + _table(("class", "name", "images"), rows[:MAX_CLASSES]) + more


def _metrics(metrics: Mapping[str, float] | None) -> str:
    if not metrics:
        return "None were recorded. Measure on images of your own before relying on the model."
    return _table(("metric", "value"), [(markdown(name), f"{value:.4g}") for name, value in metrics.items()])


def _use(encoder: EncoderRecord | None, repo_id: str | None) -> str:
    verb, place = ("pull_model", repo_id) if repo_id else ("load_model", "path/to/this/folder")
    code = f"""\
from hcep.explain import explain
from hcep.models import {verb}

model = {verb}({json.dumps(place)})
labels = model.predict(X)                     # X: (n_images, n_dims) embeddings
found = model.pursue(X)                       # paths, codes and residuals
print(explain(X, found, [0])[0].trail())      # the path of the first image, in one line"""
    which = f"the encoder {markdown_code(encoder.name)}" if encoder else "the same encoder"
    code = _fenced(code, "python")
    return f"`pip install hcep`, then\n\n{code}\n\nX must come from {which}, with its own preprocessing."


_INTENDED = (
    "Classifying images of the classes above where the reason matters as much as the answer: looking at how an "
    "embedding organises concepts, finding where in the hierarchy a prediction goes wrong, teaching and research. It "
    "is not meant for decisions about people, nor for any decision in which a person does not look at the answer."
)


def _limits(encoder: EncoderRecord | None) -> str:
    seen = markdown_code(encoder.name) if encoder else "the encoder"
    points = [
        "A path explains the embedding, not the pixels: it says which concepts' embeddings add up to the image's, not "
        "where in the image they are seen, nor that the encoder saw them at all.",
        "Every image is taken to belong to one of the classes. One that does not gets a path all the same; a large "
        "residual is a hint, not a test.",
        "A path is as good as the hierarchy: a synset that groups classes which look nothing alike has an embedding "
        "that means little.",
        f"Whatever {seen} learnt from its own training data, its gaps and its biases, is in the embeddings. If that "
        "data had these classes or these images in it, the figures above are too good.",
        "Probabilities are calibrated on left-out training images (path head) and hold for images like those.",
    ]
    return "\n".join(f"- {point}" for point in points)


def _configuration(model: HCEPClassifier, encoder: EncoderRecord | None) -> str:
    rows: list[tuple[str, str]] = []
    for key, value in model.get_params(deep=False).items():
        flat = "flat" if value is None else "in `hierarchy.json`"
        rows.append((key, flat if key == "hierarchy" else markdown(str(value))))
    rows.append(("anchor used", f"{model.anchor_:.4g}"))
    rows.append(("shrinkage used", "none" if model.shrinkage_ is None else f"{model.shrinkage_:.4g}"))
    rows.append(("power used", f"{model.power_:.4g}"))
    if model.leaf_moves_ is not None:
        moved = f"by {model.leaf_moves_.mean():.2g} on average, {model.leaf_moves_.max():.2g} at most"
        rows.append(("refined", f"class embeddings moved from their means {moved}, where images have norm 1"))
    if encoder is not None:
        fingerprint = markdown(encoder.fingerprint or "not recorded")
        rows += [("encoder", markdown_code(encoder.name)), ("encoder fingerprint", fingerprint)]
    rows.append(("hcep", hcep.__version__))
    return _table(("parameter", "value"), rows)


# -- Markdown and YAML ---------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _tables.markdown(head, rows).rstrip("\n")


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    text = terminal(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _quoted(text: str) -> str:
    # YAML reads JSON's double-quoted strings.
    return json.dumps(text, ensure_ascii=False)
