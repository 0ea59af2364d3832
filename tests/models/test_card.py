from __future__ import annotations

import copy
from pathlib import Path

import pytest
from sklearn.exceptions import NotFittedError

from hcep import HCEPClassifier, Hierarchy
from hcep.classify.heads import AdamWHead
from hcep.embeddings.protocol import EncoderRecord
from hcep.models import model_card
from hcep.models.saving import save_model
from tests.models.conftest import PETS, TANGLED, TANGLED_LABELS, fitted

ENCODER = EncoderRecord("open_clip:ViT-L-14/openai", "abc123")


def section(card: str, title: str) -> str:
    return card.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_it_has_every_section_in_order(auto_model: HCEPClassifier) -> None:
    titles = [line for line in model_card(auto_model).splitlines() if line.startswith("#")]
    assert titles == [
        "# HCEP classifier",
        "## Hierarchy",
        "## Training data",
        "## Metrics",
        "## Use",
        "## Intended use",
        "## Limits",
        "## Configuration",
        "## Citation",
    ]


def test_the_front_matter_is_what_the_hub_reads(auto_model: HCEPClassifier) -> None:
    repocard = pytest.importorskip("huggingface_hub.repocard")
    card = repocard.ModelCard(
        model_card(auto_model, license="cc-by-4.0", language="en", tags=["pets: and: more", "hcep"])
    )
    data = card.data.to_dict()
    assert data == {
        "license": "cc-by-4.0",
        "library_name": "hcep",
        "pipeline_tag": "image-classification",
        "language": "en",
        "tags": [
            "hcep", "image-classification", "interpretability", "sparse-coding", "hierarchy", "concepts",
            "pets: and: more",
        ],
    }  # fmt: skip
    assert card.text.lstrip().startswith("# HCEP classifier")


def test_it_says_what_the_hierarchy_is(auto_model: HCEPClassifier) -> None:
    text = section(model_card(auto_model), "Hierarchy")
    assert "6 classes, 9 synsets, 8 edges (one atom each), depth 2, at most 3 children; a tree." in text
    assert "├── animal" in text
    assert "Katze" in text


def test_the_card_says_that_the_hierarchy_is_a_dag() -> None:
    text = model_card(fitted(HCEPClassifier(TANGLED, coarse="own"), TANGLED_LABELS))
    assert "a DAG: some synsets have several parents" in text
    assert "itself" not in text


def test_a_large_tree_is_cut() -> None:
    labels = [f"class {i:03}" for i in range(60)]
    card = model_card(
        fitted(HCEPClassifier(shrinkage=None, anchor=0.1), labels), images_per_class=dict.fromkeys(labels, 1000)
    )
    assert "└── … 54 more" in section(card, "Hierarchy")
    assert "60,000 images of 60 classes." in card
    assert "… and 10 more classes." in section(card, "Training data")


def test_it_counts_the_training_images(auto_model: HCEPClassifier) -> None:
    text = section(model_card(auto_model, data="my *pets*", images_per_class={"cat": 3, "dog": 1200}), "Training data")
    assert r"Trained on my \*pets\*. 1,203 images of 6 classes." in text
    assert "| cat | Katze | 3 |" in text
    assert "| dog | dog | 1,200 |" in text
    assert "| fox | renard &#124; “rusé” | 0 |" in text


def test_it_admits_what_was_not_recorded(auto_model: HCEPClassifier) -> None:
    card = model_card(auto_model)
    assert "The training data was not recorded. Images per class were not recorded; there are 6 classes." in card
    assert "None were recorded. Measure the model on your own images" in section(card, "Metrics")
    assert "(the encoder was not recorded)" in card


def test_it_lists_metrics(auto_model: HCEPClassifier) -> None:
    text = section(model_card(auto_model, metrics={"accuracy": 0.98765, "path | precision": 1}), "Metrics")
    assert "| accuracy | 0.9877 |" in text
    assert "| path &#124; precision | 1 |" in text


def test_it_names_the_encoder_and_its_part_in_the_limits(auto_model: HCEPClassifier) -> None:
    card = model_card(auto_model, encoder=ENCODER)
    assert "12-dimensional embeddings of `open_clip:ViT-L-14/openai`" in card
    assert "whatever `open_clip:ViT-L-14/openai` learned from its own training data" in section(card, "Limits")
    assert "| encoder fingerprint | abc123 |" in section(card, "Configuration")


@pytest.mark.parametrize("limit", ["not the pixels", "belong to one of the classes", "only as good as the hierarchy"])
def test_it_has_the_limits(auto_model: HCEPClassifier, limit: str) -> None:
    assert limit in section(model_card(auto_model), "Limits")


def test_it_has_the_configuration(auto_model: HCEPClassifier, logistic_model: HCEPClassifier) -> None:
    text = section(model_card(auto_model), "Configuration")
    assert "| shrinkage | auto |" in text
    assert f"| anchor used | {auto_model.anchor_:.4g} |" in text
    text = section(model_card(logistic_model), "Configuration")
    assert "| head | logistic |" in text
    assert "| shrinkage used | none |" in text


def test_the_head_is_explained(auto_model: HCEPClassifier, logistic_model: HCEPClassifier) -> None:
    assert "The class is the leaf at the end of the path." in model_card(auto_model)
    assert "logistic regression on the path's coefficients" in model_card(logistic_model)


def test_its_example_runs(auto_model: HCEPClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_model(auto_model, tmp_path / "pets")
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    X = auto_model.dictionary_.leaf_embeddings
    exec(code.replace("path/to/this/folder", str(folder)), {"X": X})
    assert " → " in capsys.readouterr().out


def test_the_title_of_a_saved_card_is_the_folders_name(saved: Path) -> None:
    assert "\n# pets\n" in (saved / "README.md").read_text(encoding="utf-8")


def test_names_cannot_break_out_of_their_place() -> None:
    hierarchy = Hierarchy.from_edges([("top", "a"), ("top", "b")], names={"a": "x ```` y", "b": "new\nline | *star*"})
    model = fitted(HCEPClassifier(hierarchy), ["a", "b"])
    card = model_card(model, name="two\nlines", images_per_class={"a": 1, "b": 2})
    assert "\n# two lines\n" in card
    assert "`````text" in card
    assert r"| b | new line &#124; \*star\* | 2 |" in card


def test_an_unfitted_model_has_no_card() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        model_card(HCEPClassifier(PETS))


def test_the_paper_is_cited(auto_model: HCEPClassifier) -> None:
    citation = section(model_card(auto_model), "Citation")
    assert "Nguyen, Nghia and Ding, Tianjiao and Vidal" in citation


def test_a_head_that_adamw_trained_is_not_called_logistic(logistic_model: HCEPClassifier) -> None:
    model = copy.copy(logistic_model)
    model.head_ = AdamWHead(epochs=5, batch_size=64)
    introduction = model_card(model).partition("## Hierarchy")[0]
    assert "linear classifier on the path's coefficients, trained with AdamW" in introduction
    assert "logistic" not in introduction
