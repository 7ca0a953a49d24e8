"""Variables: named and typed, but without values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from refluid.ir import unique_name
from refluid.ir.vartype import VarType, as_dtype

if TYPE_CHECKING:
    from refluid.ir.block import Block
    from refluid.ir.desc import VarView

_TENSORS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)


class ReadTensor(NamedTuple):
    """One of the tensors that the batches of a reader consist of."""

    shape: tuple[int, ...]
    dtype: VarType
    lod_level: int = 0


class Variable:
    """A variable of a block. Layers return variables; operators read and write them by name."""

    def __init__(
        self,
        block: Block,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **_: Any,
    ):
        self.block = block
        self.name = unique_name.generate("_generated_var") if name is None else name
        self._type = VarType(type)
        self._shape: tuple[int, ...] = () if shape is None else _as_shape(shape)
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._lod_level = lod_level or 0
        self._persistable = bool(persistable)
        self.capacity = capacity
        self.error_clip = error_clip
        self.stop_gradient = stop_gradient
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.belong_to_optimizer = belong_to_optimizer
        self.read_tensors: tuple[ReadTensor, ...] = ()  # of a reader's batches, where the type is READER
        self.op: Any = None  # the last operator that writes this variable

    if TYPE_CHECKING:  # `paddle.fluid` adds these operators when it is imported

        def _operate(self, other: Variable | float) -> Variable: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operate
        __pow__ = __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _operate
        __lt__ = __le__ = __gt__ = __ge__ = _operate

        def __neg__(self) -> Variable: ...

        def __getitem__(self, item: Any) -> Variable: ...

        def astype(self, dtype: Any) -> Variable: ...

    @property
    def type(self) -> VarType:
        return self._type

    @type.setter
    def type(self, value: VarType) -> None:
        self._set("_type", VarType(value))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @shape.setter
    def shape(self, value: Sequence[int]) -> None:
        self._set("_shape", _as_shape(value))

    @property
    def dtype(self) -> VarType:
        return VarType.FP32 if self._dtype is None else self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._set("_dtype", as_dtype(value))

    @property
    def lod_level(self) -> int:
        return self._lod_level

    @lod_level.setter
    def lod_level(self, value: int) -> None:
        self._set("_lod_level", int(value))

    @property
    def persistable(self) -> bool:
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._set("_persistable", bool(value))

    def _set(self, field: str, value: Any) -> None:
        if getattr(self, field) != value:
            setattr(self, field, value)
            self.block.program.changed()

    @property
    def desc(self) -> VarView:
        from refluid.ir.desc import VarView

        return VarView(self)

    @property
    def grad_name(self) -> str:
        """Returns the name of this variable's gradient."""
        return self.name + "@GRAD"

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Returns readable text, or with ``throw_on_error`` the text of the protobuf message, as Fluid does."""
        from refluid.ir.text import message_text, variable_text

        return message_text(self, with_details) if throw_on_error else variable_text(self, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from refluid.ir.html import variable_html

        return variable_html(self)

    def set_error_clip(self, error_clip: Any) -> None:
        """Sets how this variable's gradient is clipped where it is computed."""
        self.error_clip = error_clip

    def set_desc(self, view: VarView) -> None:
        """Copies another variable's description."""
        self.shape, self.dtype, self.lod_level = view.shape(), view.dtype(), view.lod_level()

    def copy_to(self, block: Block) -> Variable:
        """Copies this variable to another block."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.block, copy.op = block, None
        block.vars[copy.name] = copy
        return copy

    def _clone(self, new_name: str) -> Variable:
        clone = self.block.create_var(name=new_name)
        clone._type, clone._shape, clone._dtype, clone._lod_level = (
            self._type,
            self._shape,
            self._dtype,
            self._lod_level,
        )
        return clone


class Parameter(Variable):
    """A persistable variable that training updates."""

    def __init__(self, block: Block, shape: Sequence[int], dtype: Any, **options: Any):
        if not shape or any(dim <= 0 for dim in shape):
            raise ValueError(f"a parameter requires positive dims, but {options.get('name')} has shape {list(shape)}")
        self.trainable = options.pop("trainable", True)
        self.optimize_attr = options.pop("optimize_attr", None) or {"learning_rate": 1.0}
        self.regularizer = options.pop("regularizer", None)
        self.gradient_clip_attr = options.pop("gradient_clip_attr", None)
        self.do_model_average = options.pop("do_model_average", None)
        self.is_distributed = options.pop("is_distributed", False)
        options.setdefault("stop_gradient", not self.trainable)
        options["persistable"] = True
        super().__init__(block, shape=shape, dtype=dtype, **options)


def _as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(-1 if dim is None else int(dim) for dim in shape)


def name_of(variable: Any) -> str:
    """Returns a variable's name, or a string unchanged."""
    if isinstance(variable, bytes):
        return variable.decode()
    return variable if isinstance(variable, str) else variable.name
