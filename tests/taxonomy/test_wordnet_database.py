"""WordNet's database files: a small one written here in the published layout, and the real one where it is there."""

import gzip
import os
import time

import msgspec
import pytest

from hcep import HierarchyError
from hcep.hierarchy.imagenet import imagenet_classes, imagenet_hierarchy, synset_gloss
from hcep.taxonomy import wordnet as wordnet_files
from hcep.taxonomy.wordnet import Sense, WordNet

LICENCE = "  1 This text stands for the licence.\n  2 WordNet {version} Copyright 2006 by Princeton University.\n"

# lemmas, hypernyms by lemma with their pointer, gloss
SYNSETS = [
    ("entity", [], "that which is perceived"),
    ("animal animate_being", ["@ entity"], "a living organism"),
    ("pet", ["@ animal"], 'kept at home; "she has a pet"'),
    ("feline felid", ["@ animal"], "lithe-bodied | roundheaded mammals"),
    ("cat true_cat", ["@ feline", "@ pet"], "feline mammal"),
    ("Garfield", ["@i cat"], "a cat of the comics"),
    ("machine", ["@ entity"], "a mechanical device"),
    ("Caterpillar cat", ["@ machine"], "a large tracked vehicle"),
    ("T-shirt", ["@ entity"], "a shirt"),
]


def write_database(folder, version="3.0", synsets=SYNSETS):
    """data.noun and index.noun, as the manual page wndb(5) lays them out; offsets are the bytes where lines start."""
    folder.mkdir(parents=True, exist_ok=True)
    head = LICENCE.format(version=version)

    def line(offset, lemmas, pointers, gloss):
        words = " ".join(f"{lemma} 0" for lemma in lemmas)
        links = "".join(f" {symbol} {offsets.get(target, 0):08d} n 0000" for symbol, target in pointers)
        # A pointer of another kind, which is no hypernym.
        links += " ~ 99999999 n 0000"
        return f"{offset:08d} 03 n {len(lemmas):02x} {words} {len(pointers) + 1:03d}{links} | {gloss}  \n"

    rows = [(lemmas.split(), [pointer.split() for pointer in above], gloss) for lemmas, above, gloss in synsets]
    offsets, at = {}, len(head)
    for row in rows:
        offsets[row[0][0]] = at
        at += len(line(at, *row).encode())
    (folder / "data.noun").write_text(head + "".join(line(offsets[row[0][0]], *row) for row in rows))
    senses = {}
    for lemmas, *_ in rows:
        for lemma in lemmas:
            senses.setdefault(lemma.lower(), []).append(offsets[lemmas[0]])
    index = [
        f"{lemma} n {len(found)} 2 @ ~ {len(found)} 0 {' '.join(f'{o:08d}' for o in found)}  \n"
        for lemma, found in sorted(senses.items())
    ]
    (folder / "index.noun").write_text(head + "".join(index))
    return {lemma: f"n{offset:08d}" for lemma, offset in offsets.items()}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hcep"


@pytest.fixture
def database(tmp_path):
    write_database(tmp_path / "dict")
    return tmp_path / "dict"


@pytest.fixture
def ids(tmp_path):
    return write_database(tmp_path / "dict")


@pytest.fixture
def wordnet(database):
    return WordNet(database)


def test_glosses_and_version(wordnet, ids):
    assert wordnet.tables.version == "3.0"
    assert wordnet.senses("pet")[0].gloss == "kept at home"
    assert wordnet.senses("feline")[0].gloss == "lithe-bodied | roundheaded mammals"
    h = wordnet.hierarchy()
    assert [h.name(ids[lemma]) for lemma in ("animal", "Caterpillar")] == ["animal", "Caterpillar"]


def test_hypernyms_and_all_above_them(wordnet, ids):
    h = wordnet.hierarchy(["cat.n.01"])
    assert h.parents(ids["cat"]) == (ids["feline"], ids["pet"])
    assert set(h) == {ids[s] for s in ("entity", "animal", "pet", "feline", "cat")}
    assert wordnet.hierarchy(["garfield"]).parents(ids["Garfield"]) == (ids["cat"],)


def test_senses(wordnet, ids):
    assert wordnet.senses("Cat") == (
        Sense("cat.n.01", ids["cat"], "feline mammal"),
        Sense("cat.n.02", ids["Caterpillar"], "a large tracked vehicle"),
    )


@pytest.mark.parametrize("word", ["true cat", "TRUE_CAT", "true-cat", " true  cat "])
def test_spaces_hyphens_and_case_of_a_word_do_not_matter(word, wordnet, ids):
    assert wordnet.id(word) == ids["cat"]
    assert wordnet.id("t shirt") == ids["T-shirt"]


def test_a_hierarchy_by_ids_names_and_words(database, ids):
    h = WordNet(database).hierarchy(["cat.n.01", ids["machine"], "t-shirt"])
    assert set(h.leaves) == {ids["cat"], ids["machine"], ids["T-shirt"]}
    assert h.parents(ids["cat"]) == (ids["feline"], ids["pet"])
    assert h.name(ids["T-shirt"]) == "T-shirt"


def test_all_of_wordnet(database):
    assert len(WordNet(database).hierarchy()) == 9


def test_a_class_above_another_class_gets_its_own_leaf(database, ids):
    h = WordNet(database).hierarchy(["animal", "cat.n.01"])
    assert h.class_of(h.leaf_of(ids["animal"])) == ids["animal"]


def test_an_ambiguous_word_lists_its_senses(wordnet, ids, database):
    with pytest.raises(
        HierarchyError,
        match=r"'cat' has 2 senses; give the name or id of one.*-P on_ambiguous=first.*cat\.n\.01 \(n\d{8}\): f",
    ):
        wordnet.id("cat")
    assert wordnet.id("cat", on_ambiguous="first") == ids["cat"]
    assert ids["cat"] in WordNet(database).hierarchy(["cat"], on_ambiguous="first").leaves
    with pytest.raises(HierarchyError, match="on_ambiguous must be 'raise' or 'first', got 'last'"):
        wordnet.id("cat", on_ambiguous="last")


def test_all_problems_are_reported_together(database):
    words = ["cat", "unicorn", "n00000001", "animl", "felin", "t-shirt"]
    with pytest.raises(HierarchyError) as caught:
        WordNet(database).hierarchy(words)
    told = str(caught.value).splitlines()
    assert len(told) == 4
    assert told[1] == "'unicorn' is not in WordNet 3.0 as a noun."
    assert told[3] == "... and 2 more"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("felin", r"'felin' is not in WordNet 3\.0 as a noun\. Near matches: 'feline'"),
        ("cat.n.03", r"'cat\.n\.03': 'cat' has senses 1 to 2 as a noun"),
        ("cat.n.00", r"'cat\.n\.00': 'cat' has senses 1 to 2"),
        ("cat.v.01", r"'cat\.v\.01' is not the name of a noun"),
        ("v00000001", r"'v00000001' is not the id of a noun, such as 'n00001740'; see pos="),
        ("n00000001", r"'n00000001' is not in WordNet 3\.0 in '.*dict'; ids of other versions differ"),
        ("", r"expected a WordNet id, a synset name or a word, got ''"),
        (3, r"expected a WordNet id, a synset name or a word, got 3"),
    ],
)
def test_unknown_words_and_ids(asked, message, wordnet):
    with pytest.raises(HierarchyError, match=message):
        wordnet.id(asked)


def test_another_version_is_named(tmp_path):
    write_database(tmp_path / "31", version="3.1")
    with pytest.raises(
        HierarchyError, match=r"not in WordNet 3\.1 .* ImageNet's ids are from WordNet 3\.0.*pass database="
    ):
        WordNet(tmp_path / "31").hierarchy(["n02121620"])


def test_arguments_without_a_hierarchy(database):
    with pytest.raises(HierarchyError, match=r"ids_or_words is empty \(on the command line: no word"):
        WordNet(database).hierarchy([])
    with pytest.raises(HierarchyError, match="must be a list of ids or words, got the string 'cat'"):
        WordNet(database).hierarchy("cat")
    with pytest.raises(HierarchyError, match=r"'n\d{8}' is the top of WordNet; give a synset below it"):
        WordNet(database).hierarchy(["entity"])
    with pytest.raises(HierarchyError, match="pos must be 'noun' or 'verb', which have hypernyms; got 'adj'"):
        WordNet(database, pos="adj").hierarchy(["cat"])


def test_several_tops_get_a_virtual_root(tmp_path):
    write_database(
        tmp_path / "verbs", synsets=[("run", [], "go"), ("sleep", [], "rest"), ("sprint", ["@ run"], "fast")]
    )
    h = WordNet(tmp_path / "verbs").hierarchy(["sleep", "sprint"])
    assert h.root == "(root)"
    assert sorted(h.name(s) for s in h.leaves) == ["sleep", "sprint"]


# -- finding it ----------------------------------------------------------------------------------------


def test_the_environment_names_the_folder(database, monkeypatch, tmp_path):
    monkeypatch.setenv("WNSEARCHDIR", str(database))
    assert WordNet().folder == database
    monkeypatch.delenv("WNSEARCHDIR")
    monkeypatch.setenv("WNHOME", str(database.parent))
    assert WordNet().folder == database
    assert WordNet(database.parent).folder == database


def test_nltk_has_it(database, monkeypatch, tmp_path):
    (tmp_path / "nltk" / "corpora").mkdir(parents=True)
    database.rename(tmp_path / "nltk" / "corpora" / "wordnet")
    monkeypatch.setenv("NLTK_DATA", f"{tmp_path / 'absent'}{os.pathsep}{tmp_path / 'nltk'}")
    assert tmp_path / "nltk" / "corpora" / "wordnet" in list(wordnet_files.usual_places())


def test_no_database_found(tmp_path, monkeypatch):
    monkeypatch.setattr(wordnet_files, "usual_places", lambda: [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(HierarchyError, match=r"no WordNet database found; .*pass database=.* Looked in .*a, .*b"):
        WordNet()
    with pytest.raises(HierarchyError, match=r"database '.*c' does not have WordNet's data\.noun and index\.noun"):
        WordNet(tmp_path / "c")


# -- damaged files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("data.noun", lambda text: text.replace(" | feline mammal", ""), r"data\.noun', line 7: expected offset, file"),
        ("data.noun", lambda text: text + "prose\n", r"data\.noun', line 12: expected offset, file, type, lemmas"),
        ("data.noun", lambda text: text.splitlines()[0], r"data\.noun' has no synsets"),
        ("data.noun", lambda text: text + text.splitlines(True)[-1], r"data\.noun': synsets are not in the order"),
        (
            "data.noun",
            lambda text: "\n".join(text.splitlines()[:-1]),
            r"offset \d{8} is not a synset of data",
        ),
        ("index.noun", lambda text: text.replace("pet n 1 2", "pet n 7 2"), r"index\.noun', line \d+: expected lemma"),
        ("index.noun", lambda text: text + "word\n", r"index\.noun', line \d+: expected lemma, type, counts"),
    ],
)
def test_damage(file, change, message, database):
    (database / file).write_text(change((database / file).read_text()))
    with pytest.raises(HierarchyError, match=message):
        WordNet(database)


# -- the cache -----------------------------------------------------------------------------------------


def test_it_is_parsed_once(database, cache, monkeypatch):
    first = WordNet(database)
    (stored,) = cache.iterdir()
    assert set(msgspec.msgpack.decode(gzip.decompress(stored.read_bytes()))) == {"version", "synsets", "senses"}
    monkeypatch.setattr(wordnet_files, "parse", None)
    again = WordNet(database)
    assert again.hierarchy() == first.hierarchy()
    assert again.senses("cat") == first.senses("cat")
    assert again.tables.version == "3.0"


def test_a_changed_database_is_parsed_again(database, cache):
    WordNet(database)
    write_database(database, synsets=SYNSETS[:-1])
    assert len(WordNet(database).hierarchy()) == 8
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: b"",
        lambda stored: stored[: len(stored) // 2],
        lambda stored: b"not an archive",
        lambda stored: stored[:200] + bytes(50) + stored[250:],
    ],
)
def test_a_damaged_cache_is_replaced(damage, database, cache):
    WordNet(database)
    (stored,) = cache.iterdir()
    whole = stored.read_bytes()
    stored.write_bytes(damage(whole))
    assert len(WordNet(database).hierarchy()) == 9
    assert len(stored.read_bytes()) == len(whole)


def test_a_cache_with_another_layout_is_replaced(database, cache):
    wordnet = WordNet(database)
    (stored,) = cache.iterdir()
    kept = msgspec.msgpack.decode(gzip.decompress(stored.read_bytes()), strict=False)
    stored.write_bytes(gzip.compress(msgspec.msgpack.encode(kept | {"synsets": {1740: ["entity"]}})))
    assert WordNet(database).hierarchy() == wordnet.hierarchy()


def test_an_unwritable_cache_is_ignored(database, tmp_path, monkeypatch):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert len(WordNet(database).hierarchy()) == 9


# -- the real one --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The folder of the database, and a cache for all tests of it."""
    found = [p for p in wordnet_files.usual_places() if (p / "data.noun").is_file() and (p / "index.noun").is_file()]
    known = [p for p in found if b"WordNet 3.0 Copyright" in (p / "data.noun").read_bytes()[:2_000]]
    if not known:
        pytest.skip("needs the database of WordNet 3.0 in a usual place (Debian: apt install wordnet)")
    return known[0], tmp_path_factory.mktemp("cache")


@pytest.fixture
def installed(real, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(real[1]))
    return real[0]


@pytest.mark.slow
def test_imagenet(installed):
    WordNet(installed)
    start = time.process_time()
    h = WordNet(installed).hierarchy(imagenet_classes())
    assert time.process_time() - start < 2.0
    assert (len(h), h.n_edges) == (1_860, 1_937)
    assert h == imagenet_hierarchy()


@pytest.mark.slow
def test_the_shared_dag(installed, wordnet_dag):
    assert WordNet(installed).hierarchy(wordnet_dag.leaves) == wordnet_dag


@pytest.mark.slow
def test_words_of_the_real_one(installed):
    wordnet = WordNet(installed)
    assert len(wordnet.tables.synsets) == 82_115
    assert wordnet.id("cat.n.01") == "n02121620"
    assert [wordnet.id(word) for word in ("tench", "golden retriever")] == ["n01440764", "n02099601"]
    assert [s.name for s in wordnet.senses("crane")] == [f"crane.n.{i:02d}" for i in range(1, 6)]
    assert wordnet.tables.synsets[3445777].gloss == synset_gloss("n03445777")
    with pytest.raises(HierarchyError, match="Near matches: 'golden_retriever'"):
        wordnet.id("golden retreiver")


def test_verbs_of_the_real_one(installed):
    h = WordNet(installed, pos="verb").hierarchy(["sprint.v.01", "sleep.v.01"])
    assert h.name(h.leaves[0]) in ("sprint", "sleep")
