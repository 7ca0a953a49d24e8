"""How a golden case is written. Runs on Python 3.7 too, because the oracle imports it.

A case says what to run; what real Fluid 1.8.5 answered is in data/. See README.md.
"""

import zlib

import numpy as np


class Rows(object):
    """A SelectedRows input: ``values[i]`` is row ``rows[i]`` of a tensor with ``height`` rows."""

    def __init__(self, rows, values, height):
        self.rows = np.asarray(rows, "int64").reshape(-1, 1)
        self.values, self.height = values, height


class Lod(object):
    """A packed sequence input: rows and the recursive sequence lengths that cut them."""

    def __init__(self, array, lengths):
        self.array, self.lengths = array, lengths


class Case(object):
    """One op with inputs and attributes.

    op: the op type. inputs: slot -> array, Rows, Lod, or a list of them. outputs: the output slots to connect, as a
    string; ``Out*3`` connects three variables to a repeated slot. attrs: as Fluid takes them. grads: input slots to
    differentiate, as a string. inplace: output slot -> input slot that shares its variable. check: "values" compares
    everything, "shapes" only shapes and dtypes (random ops). rtol: with a reason, where 1e-5 is not attainable.
    skip: output slots that are not compared (scratch outputs), with the reason in ``reason``.
    """

    def __init__(
        self,
        op,
        inputs,
        outputs="Out",
        attrs=None,
        grads="",
        inplace=None,
        name="",
        check="values",
        rtol=1e-5,
        reason="",
        skip="",
    ):
        assert rtol == 1e-5 or reason, "a tolerance of its own needs a reason"
        self.op, self.inputs, self.attrs = op, inputs, attrs or {}
        self.outputs = [_slot_count(text) for text in outputs.split()]
        self.grads, self.inplace, self.name = grads.split(), inplace or {}, name
        self.check, self.rtol, self.reason, self.skip = check, rtol, reason, skip.split()


class LayerCase(object):
    """A piece of a Fluid script: ``build(fluid, **feed_variables)`` returns a variable or a list of them.

    feeds: name -> array or Lod; each becomes a data variable of exactly that shape (batch dim included; for a Lod it is
    -1) and dtype.
    Parameters get fixed values from their names. With ``grads`` the gradients of all parameters and of all floating
    feeds are compared too. ``ops`` also compares the list of op types the layer appended. skip: gradients that are
    not compared, by name, with the reason in ``reason``.
    """

    op = None

    def __init__(self, name, build, feeds, grads=True, ops=True, check="values", rtol=1e-5, reason="", skip=""):
        assert (rtol == 1e-5 and not skip) or reason, "a tolerance of its own and a gap need a reason"
        self.name, self.build, self.feeds = name, build, feeds
        self.grads, self.ops, self.check, self.rtol, self.reason = grads, ops, check, rtol, reason
        self.skip = skip.split()


def layer_case(cases, grads=True, ops=True, check="values", rtol=1e-5, reason="", skip="", **feeds):
    """Decorator: adds the function as a LayerCase, named after it, to the list ``cases``."""

    def add(build):
        cases.append(LayerCase(build.__name__, build, feeds, grads, ops, check, rtol, reason, skip))
        return build

    return add


def _slot_count(text):
    slot, _, count = text.partition("*")
    return slot, int(count or 1)


def _rng(shape, salt):
    return np.random.RandomState(zlib.crc32(repr((tuple(shape), salt)).encode()) & 0x7FFFFFFF)


def f32(*shape, **options):
    """float32 noise in [low, high) = [-1, 1), fixed by shape and ``salt``."""
    low, high = options.get("low", -1.0), options.get("high", 1.0)
    return _rng(shape, options.get("salt", 0)).uniform(low, high, shape).astype("float32")


def f64(*shape, **options):
    """The float64 noise of the same kind."""
    low, high = options.get("low", -1.0), options.get("high", 1.0)
    return _rng(shape, options.get("salt", 0)).uniform(low, high, shape)


def ints(*shape, **options):
    """Integers in [low, high), int64 unless dtype= says otherwise."""
    low, high = options.get("low", 0), options["high"]
    return _rng(shape, options.get("salt", 0)).randint(low, high, shape).astype(options.get("dtype", "int64"))


def bools(*shape, **options):
    """Random booleans."""
    return _rng(shape, options.get("salt", 0)).rand(*shape) < 0.5


def distinct(*shape, **options):
    """float32 values that are all different and well apart, for max, sort and pooling."""
    size = int(np.prod(shape))
    values = (np.arange(size) - size / 2.0) * options.get("step", 0.1)
    return _rng(shape, options.get("salt", 0)).permutation(values).reshape(shape).astype("float32")


def parameter_value(name, shape):
    """The value every run gives to the parameter of this name."""
    return (f32(*shape, salt=name) * 0.5).astype("float32")


def case_ids(cases):
    """A stable, unique name for each case of a family."""
    seen, ids = {}, []
    for case in cases:
        base = case.name or case.op
        if case.op and case.name:
            base = case.op + "-" + case.name
        seen[base] = seen.get(base, 0) + 1
        ids.append(base if seen[base] == 1 else "%s-%d" % (base, seen[base]))
    return ids
