"""Candidate phrases from files, definitions and several pools; their embeddings."""

import re

import numpy as np
import pytest

from hcep.embeddings.encoders import FunctionEncoder
from hcep.errors import HCEPError
from hcep.taxonomy.naming.phrases import embed_phrases, gloss_phrases, merge_pools, read_phrases
from tests.taxonomy.naming.bear_space import bear_encoder, counted_words


def test_comments_blanks_and_repetitions_are_left_out(tmp_path):
    file = tmp_path / "phrases.txt"
    file.write_text("﻿# furs\n\n  white \t fur \nWHITE FUR\nlong neck\r\nlöwenmähne\n", encoding="utf-8")
    assert read_phrases(file) == ("white fur", "long neck", "löwenmähne")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "phrases.txt has no phrases; expected one phrase per line"),
        (b"# only\n# comments\n", "has no phrases"),
        (b"fur\n\xff\xfe\n", r"phrases.txt is not UTF-8 text \(invalid start byte at byte 4\)"),
        (b"fur\n" + b"x" * 301, "phrases.txt, line 2: a phrase of 301 characters; the limit is 300"),
        (b"fur\nred\x1b[31m alert\n", "line 2: a control character, '.x1b'; remove it"),
        ("fur\nabc\u202egnp\n".encode(), "line 2: a control character, '.u202e'; remove it"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, content, match):
    (tmp_path / "phrases.txt").write_bytes(content)
    with pytest.raises(HCEPError, match=match):
        read_phrases(tmp_path / "phrases.txt")


def test_a_pool_is_bounded(tmp_path):
    (tmp_path / "p.txt").write_text("\n".join(f"phrase {i}" for i in range(12)), encoding="utf-8")
    assert len(read_phrases(tmp_path / "p.txt", max_phrases=12)) == 12
    with pytest.raises(HCEPError, match="more than 11 phrases; use fewer, or raise max_phrases"):
        read_phrases(tmp_path / "p.txt", max_phrases=11)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(HCEPError, match=r"cannot read phrases from .*none.txt': No such file"):
        read_phrases(tmp_path / "none.txt")


def test_definitions_become_phrases_up_to_the_semicolon():
    glosses = ["white bear of Arctic regions; also sea bear", "White bear of  arctic regions", ""]
    assert gloss_phrases(glosses) == ("white bear of Arctic regions",)
    assert gloss_phrases(["a fish", "a dog; 'x'"]) == ("a fish", "a dog")


def test_pools_are_merged_first_come_first_written():
    assert merge_pools(["White fur", "tail"], ["white  fur", "Neck"]) == ("White fur", "tail", "Neck")


def test_the_template_is_filled_and_nothing_in_a_phrase_is_a_field():
    seen = []
    encoder = FunctionEncoder(
        lambda batch: np.zeros((len(batch), 6)),
        name="words",
        preprocessing={"size": 8},
        texts=lambda texts: seen.extend(texts) or counted_words(texts),
    )
    vectors = embed_phrases(encoder, ["fur", "{0.__class__}"], template="a photo of {}, up close")
    assert seen == ["a photo of fur, up close", "a photo of {0.__class__}, up close"]
    np.testing.assert_array_equal(vectors, encoder.encode_texts(seen[:2]))


def test_many_phrases_are_embedded_in_batches_with_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal; elsewhere the bar stays silent
    phrases = [f"fur {i}" for i in range(600)]
    vectors = embed_phrases(bear_encoder(), phrases, progress=True)
    assert vectors.shape == (600, 6)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "600/600" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", captured.err)


@pytest.mark.parametrize("template", ["a photo", "{} and {}", "{0}"])
def test_a_template_needs_one_place(template):
    with pytest.raises(HCEPError, match=r"template must contain {} once"):
        embed_phrases(bear_encoder(), ["fur"], template=template)


def test_without_a_text_tower_images_are_suggested():
    mute = FunctionEncoder(lambda batch: np.zeros((len(batch), 6)), name="mute", preprocessing={"size": 8})
    with pytest.raises(HCEPError, match=r"'mute' has no text tower.*`hcep interpret MODEL DATA`"):
        embed_phrases(mute, ["fur"])
