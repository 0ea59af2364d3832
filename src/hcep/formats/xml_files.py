"""XML without surprises: a file with a DOCTYPE, and so with entities of any kind, is refused."""

from io import BytesIO
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from hcep.errors import HCEPError


def parse_xml(source: Path) -> ElementTree.Element:
    """The root of an XML file, with its comments; namespaces keep their prefixes when it is written again."""

    def refuse(*_: object) -> NoReturn:
        raise HCEPError(f"{str(source)!r} has an XML DOCTYPE, which is not read because it can define entities")

    content = source.read_bytes()
    checker = expat.ParserCreate()
    checker.StartDoctypeDeclHandler = refuse
    try:
        checker.Parse(content, True)
        builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
        root: ElementTree.Element = ElementTree.fromstring(content, ElementTree.XMLParser(target=builder))
    except (expat.ExpatError, ElementTree.ParseError, ValueError) as error:
        if isinstance(error, HCEPError):
            raise
        raise HCEPError(f"{str(source)!r} is not XML: {error}") from None
    for _, (prefix, address) in ElementTree.iterparse(BytesIO(content), ["start-ns"]):
        if prefix and not prefix.startswith("ns"):
            ElementTree.register_namespace(prefix, address)
    return root
