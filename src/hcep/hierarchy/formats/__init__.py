"""One small file per format of a hierarchy; `FORMATS` says what each of them reads, writes and keeps."""

from hcep.hierarchy.formats.all_formats import FORMATS, Format, find_format

__all__ = ["FORMATS", "Format", "find_format"]
