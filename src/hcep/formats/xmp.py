"""XMP sidecars beside photos: keywords for Lightroom, digiKam and darktable. Photos themselves are never opened."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hcep._files import write_bytes
from hcep.errors import HCEPError
from hcep.formats.answers import AnsweredImage, Writing, by_file, path_below
from hcep.formats.xml_files import parse_xml

NAMESPACES = {
    "x": "adobe:ns:meta/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "lr": "http://ns.adobe.com/lightroom/1.0/",
    "hcep": "https://hcep.invalid/xmp/1.0/",
}
#: The keywords that an earlier run wrote, which the next one replaces.
OWN = "hcep:subject"
FLAT, HIERARCHICAL = "dc:subject", "lr:hierarchicalSubject"


def write(answers: Iterable[AnsweredImage], output: Path, writing: Writing) -> None:
    """Write the sure answers of each photo into its sidecar below a folder, merged with a sidecar that is there."""
    for prefix, address in NAMESPACES.items():
        ElementTree.register_namespace(prefix, address)
    paths: dict[Path, list[tuple[str, ...]]] = {}
    for _, own in by_file(answers):  # a JPEG and the raw file beside it may share a sidecar
        place = _sidecar(output / path_below(output, own[0], writing.data))
        paths.setdefault(place, []).extend(one.answer.names for one in own if one.answer)
    contents = {place: _merged(place, own) for place, own in paths.items() if own or place.exists()}
    for place, content in contents.items():  # only after every sidecar could be read
        write_bytes(place, content)


def _sidecar(photo: Path) -> Path:
    """The sidecar that is there, as ``a.jpg.xmp`` (darktable, digiKam) or ``a.xmp`` (Lightroom), or the former."""
    lightroom = photo.with_suffix(".xmp")
    full = photo.with_name(photo.name + ".xmp")
    return lightroom if lightroom.exists() and not full.exists() else full


def _merged(place: Path, paths: list[tuple[str, ...]]) -> bytes:
    """The content of a sidecar with the keywords on these paths instead of those that we wrote before."""
    if place.exists():
        root = parse_xml(place)
    else:
        root = Element(_tag("x:xmpmeta"))
        SubElement(SubElement(root, _tag("rdf:RDF")), _tag("rdf:Description")).set(_tag("rdf:about"), "")
    description = root.find(f".//{_tag('rdf:Description')}")
    if description is None:
        raise HCEPError(f"{str(place)!r} is not an XMP sidecar: it has no rdf:Description")
    words = list(dict.fromkeys(name for path in paths for name in path))
    trails = ["|".join(name.replace("|", "/") for name in path) for path in dict.fromkeys(paths)]
    keywords = {FLAT: words, HIERARCHICAL: trails}
    ours = _bag(root, description, OWN)
    before = {item.text for item in ours}
    for kind, names in keywords.items():
        bag = _bag(root, description, kind)
        for item in [item for item in bag if item.text in before]:
            bag.remove(item)
        present = {item.text for item in bag}
        added = [name for name in names if name not in present]
        _extend(bag, added)
        keywords[kind] = added
    ours[:] = []
    _extend(ours, [name for names in keywords.values() for name in names])
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _bag(root: Element, description: Element, kind: str) -> Element:
    """The list of keywords of a kind, which may be a sequence, too; a new one if there is none."""
    known = root.find(f".//{_tag(kind)}")
    element = SubElement(description, _tag(kind)) if known is None else known
    return element[0] if len(element) else SubElement(element, _tag("rdf:Bag"))


def _extend(bag: Element, names: list[str]) -> None:
    for name in names:
        SubElement(bag, _tag("rdf:li")).text = name


def _tag(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{NAMESPACES[prefix]}}}{local}"
