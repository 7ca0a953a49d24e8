"""What a decoder does in one step, apart from the loop around it: states, inputs, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from paddle.fluid import layers
from refluid.ir import Variable, unique_name


class InitState:
    """The first value of a state.

    Args:
      init: a variable, a row for each sequence; else ``value`` in rows of ``shape``, as many as ``init_boot`` has.
      need_reorder: whether the rows of ``init`` are in the order of the sequences that were fed, and depend on it.
    """

    def __init__(self, init=None, shape=None, value=0.0, init_boot=None, need_reorder=False, dtype="float32"):
        if init is None:
            if init_boot is None:
                raise ValueError("InitState needs init, or init_boot to know how many rows it has")
            init = layers.fill_constant_batch_size_like(init_boot, shape=shape, dtype=dtype, value=value)
        self._init = init
        self._need_reorder = need_reorder

    @property
    def value(self) -> Variable:
        """The first value."""
        return self._init

    @property
    def need_reorder(self) -> bool:
        """Whether it must be sorted like the sequences."""
        return self._need_reorder


class Holder(Protocol):
    """Where a decoder keeps a state from one step to the next."""

    def get(self) -> Variable:
        """The state as the step before left it."""
        ...

    def set(self, value: Variable) -> None:
        """Leaves the state to the next step."""
        ...


class Decoder(Protocol):
    """What a cell needs of the decoder that it is in."""

    def hold(self, init: InitState) -> Holder:
        """A place for a state."""
        ...


class StateCell:
    """One step of a decoder: states that an updater computes from themselves and from inputs::

        cell = StateCell(inputs={"word": None}, states={"hidden": InitState(init=encoded)}, out_state="hidden")

        @cell.state_updater
        def update(cell):
            cell.set_state("hidden", fluid.layers.fc([cell.get_input("word"), cell.get_state("hidden")], 8, act="tanh"))

    Args:
      inputs: names of the inputs; a value may be a variable, or None if it is given in each step.
      states: names of the states, with their first values.
      out_state: the state that is the result of a step.
    """

    def __init__(self, inputs: Mapping[str, Any], states: Mapping[str, InitState], out_state: str, name=None):
        self.name = unique_name.generate("state_cell") if name is None else name
        for state, init in states.items():
            if not isinstance(init, InitState):
                raise ValueError(f"StateCell: the state {state} must be an InitState, not {type(init).__name__}")
        if out_state not in states:
            raise ValueError(f"StateCell: out_state is {out_state}, which is not among the states {', '.join(states)}")
        self._inputs: dict[str, Any] = dict(inputs)
        self._inits = dict(states)
        self._out_state = out_state
        self._current: dict[str, Variable] = {}
        self._holders: dict[str, Holder] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], Any] | None = None

    def _enter_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not None:
            raise ValueError("a StateCell can be in one decoder at a time")
        self._decoder, self._holders = decoder, {}

    def _leave_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not decoder:
            raise ValueError("a StateCell leaves the decoder that it is in")
        self._decoder = None

    def get_state(self, state_name) -> Variable:
        """The value of a state: as the step before left it, or as `set_state` has set it."""
        self._check_state(state_name)
        self._begin_step()
        return self._current[state_name]

    def get_input(self, input_name) -> Variable:
        """The value of an input in this step."""
        if self._inputs.get(input_name) is None:
            raise ValueError(f"StateCell: there is no value for the input {input_name}")
        return self._inputs[input_name]

    def set_state(self, state_name, state_value) -> None:
        """Gives a state another value within the step."""
        self._check_state(state_name)
        self._begin_step()
        self._current[state_name] = state_value

    def _begin_step(self) -> None:
        """Asks the decoder for the states, when they are needed for the first time."""
        if self._holders:
            return
        if self._decoder is None:
            raise ValueError("a StateCell has states inside the block of a decoder only")
        self._holders = {name: self._decoder.hold(init) for name, init in self._inits.items()}
        self._current = {name: holder.get() for name, holder in self._holders.items()}

    def _check_state(self, name: str) -> None:
        if name not in self._inits:
            raise ValueError(f"StateCell: {name} is not among the states {', '.join(self._inits)}")

    def state_updater(self, updater):
        """Decorator: the function that computes the next states; it is called with the cell."""
        self._updater = updater
        return updater

    def compute_state(self, inputs) -> None:
        """Sets inputs and calls the updater."""
        self._begin_step()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"StateCell: {name} is not among the inputs {', '.join(self._inputs)}")
            self._inputs[name] = value
        if self._updater is None:
            raise ValueError("a StateCell needs an updater: decorate a function with cell.state_updater")
        self._updater(self)

    def update_states(self) -> None:
        """Leaves all states to the next step."""
        self._begin_step()
        for name, holder in self._holders.items():
            holder.set(self._current[name])

    def out_state(self) -> Variable:
        """The state that is the result of the step."""
        self._begin_step()
        return self._current[self._out_state]

    @property
    def state_names(self) -> list[str]:
        """The names of the states."""
        return list(self._inits)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return list(self._inputs)
