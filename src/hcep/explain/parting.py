"""Where the paths that two searches found for the same image part."""

import numpy as np

from hcep.explain.evidence import n_shared
from hcep.pursuit import PathResult


def parting_sentence(
    first: PathResult, second: PathResult, image: int, names: tuple[str, str] = ("the first", "the second")
) -> str:
    """Say where two searches part on one image, and why the first went wrong if the second is right.

    Parameters
    ----------
    image : the image's row in both results
    names : what to call the two searches
    """
    dictionary, h = first.dictionary, first.dictionary.hierarchy
    path, other = first.paths[image], second.paths[image]
    n = n_shared(path, other)
    if n == len(path) or n == len(other):
        return "Both take the same concepts; one path goes on where the other ends."
    a, name, sibling = float(first.coefficients(image)[n]), repr(h.name(path[n])), repr(h.name(other[n]))
    where = f"Below {h.name(path[n - 1])!r}" if n else "At the first step"
    text = f"{where} {names[0]} takes {name} and {names[1]} takes {sibling}. "
    origin, *ends = map(dictionary.synset_embedding, (path[n - 1] if n else h.root, path[n], other[n]))
    u, v = (end - origin for end in ends)
    cosine = float(u @ v) / (float(np.linalg.norm(u) * np.linalg.norm(v)) or np.nan)
    if cosine < -0.999:
        text += f"The two are the only children, so their atoms are exactly opposite (cosine {cosine:.2f}): "
        text += "by |cosine| and free-sign least squares they tie"
        if a >= 0:
            return text + "."
        return f"{text}, and {names[0]} reports {name} with coefficient {a:.2f}: the image points to its sibling."
    if a < 0:
        text += f"The coefficient of {name} is {a:.2f}: its atom lowers the residual by pointing away from the "
        return text + "concept it names, which |cosine| does not see."
    text += f"With free coefficients ({a:.2f} here, where an image of the concept has 1) the wrong path "
    return text + "reconstructs the image a little better; a prior at 1 charges for that."
