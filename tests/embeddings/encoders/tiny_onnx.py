"""The smallest ONNX files that make a point, written byte by byte: Protocol Buffers need no package for that."""

FLOAT, FLOAT16, UINT8 = 1, 10, 2


def varint(n):
    low, rest = n & 0x7F, n >> 7
    return bytes([low]) if rest == 0 else bytes([low | 0x80]) + varint(rest)


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *parts):
    content = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field, value):
    return message(field, value.encode())


def value_info(field, name, shape, kind):
    sizes = {int: lambda n: number(1, n), str: lambda n: text(2, n)}
    axes = b"".join(message(1, sizes[type(n)](n)) for n in shape)
    return message(field, text(1, name), message(2, message(1, number(1, kind), message(2, axes))))


def node(kind, sources, targets):
    """A node; several inputs or outputs are separated by spaces."""
    return message(1, *(text(1, s) for s in sources.split()), *(text(2, t) for t in targets.split()), text(4, kind))


def mean_colour(
    inputs=(("x", ("n", 3, 8, 8)),), outputs=(("mean", ("n", 3, 1, 1)), ("vector", ("n", 3))), kind=FLOAT, result=FLOAT
):
    """A file whose ``vector`` is the mean of each channel of ``x``, and whose ``mean`` is that with two more axes."""
    graph = [
        node("GlobalAveragePool", "x", "mean"),
        node("Flatten", "mean", "vector"),
        text(2, "mean colour"),
        *(value_info(11, name, shape, kind) for name, shape in inputs),
        *(value_info(12, name, shape, result) for name, shape in outputs),
    ]
    return _file(graph)


def dynamically_quantised():
    """The mean colour of images that are rounded to bytes first, with one scale for the whole batch."""
    graph = [
        node("DynamicQuantizeLinear", "x", "bytes scale zero"),
        node("DequantizeLinear", "bytes scale zero", "rounded"),
        node("GlobalAveragePool", "rounded", "mean"),
        node("Flatten", "mean", "vector"),
        text(2, "rounded mean colour"),
        value_info(11, "x", ("n", 3, 8, 8), FLOAT),
        value_info(12, "vector", ("n", 3), FLOAT),
    ]
    return _file(graph)


def _file(graph):
    return number(1, 8) + message(7, *graph) + message(8, number(2, 13))
