"""A hierarchy with what its reader passed over."""

from hcep import read_hierarchy


def read_with_notes(place, format=None, **options):
    told = []
    return read_hierarchy(place, format, on_note=told.append, **options), tuple(told[1:])
