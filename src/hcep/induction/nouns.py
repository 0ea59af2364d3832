"""English plurals to singulars, by rule and a short list: enough to compare names, no dictionary needed."""

from __future__ import annotations

IRREGULAR = {
    "children": "child",
    "feet": "foot",
    "geese": "goose",
    "men": "man",
    "mice": "mouse",
    "oxen": "ox",
    "people": "person",
    "teeth": "tooth",
    "women": "woman",
    "calves": "calf",
    "halves": "half",
    "hooves": "hoof",
    "knives": "knife",
    "leaves": "leaf",
    "lives": "life",
    "loaves": "loaf",
    "scarves": "scarf",
    "shelves": "shelf",
    "thieves": "thief",
    "wives": "wife",
    "wolves": "wolf",
    "buses": "bus",
    "gases": "gas",
    "lenses": "lens",
    "viruses": "virus",
    "walruses": "walrus",
    "octopuses": "octopus",
    "fungi": "fungus",
    "cacti": "cactus",
    "cookies": "cookie",
    "movies": "movie",
    "shoes": "shoe",
    "canoes": "canoe",
    "axes": "axe",
    "dice": "die",
}
UNCHANGED = {"series", "species", "gas", "lens", "news", "chess", "bus", "this", "mathematics", "physics", "sheep"}


def singular(word: str) -> str:
    """The singular of a lower-case English noun; a word that is none already stays as it is.

    Examples
    --------
    >>> from hcep.induction.nouns import singular
    >>> [singular(word) for word in ("cats", "boxes", "cherries", "wolves", "glass", "bus")]
    ['cat', 'box', 'cherry', 'wolf', 'glass', 'bus']
    """
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in UNCHANGED or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        return word[:-2]
    return word[:-1]


def is_plural(word: str) -> bool:
    return singular(word) != word
