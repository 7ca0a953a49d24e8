"""One step of a decoder, independent of the loop around it: inputs, states and their update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from paddle.fluid import layers
from refluid.ir import Variable, unique_name


class InitState:
    """The initial value of a state.

    Args:
      init: a variable with one row per sequence; otherwise ``value`` in rows of ``shape``, as many as ``init_boot``.
      need_reorder: whether the rows of ``init`` are in the order of the fed sequences and must be sorted like them.
    """

    def __init__(self, init=None, shape=None, value=0.0, init_boot=None, need_reorder=False, dtype="float32"):
        if init is None:
            if init_boot is None:
                raise ValueError("InitState requires init, or init_boot for the number of rows")
            init = layers.fill_constant_batch_size_like(init_boot, shape=shape, dtype=dtype, value=value)
        self._init = init
        self._need_reorder = need_reorder

    @property
    def value(self) -> Variable:
        """The initial value."""
        return self._init

    @property
    def need_reorder(self) -> bool:
        """Whether the rows must be sorted like the sequences."""
        return self._need_reorder


class Holder(Protocol):
    """Storage for a state from one step to the next."""

    def get(self) -> Variable:
        """Returns the state from the previous step."""
        ...

    def set(self, value: Variable) -> None:
        """Sets the state for the next step."""
        ...


class Decoder(Protocol):
    """The interface that a cell needs of its decoder."""

    def hold(self, init: InitState) -> Holder:
        """Returns storage for a state."""
        ...


class StateCell:
    """One step of a decoder: an updater computes the new states from inputs and old states::

        cell = StateCell(inputs={"word": None}, states={"hidden": InitState(init=encoded)}, out_state="hidden")

        @cell.state_updater
        def update(cell):
            cell.set_state("hidden", fluid.layers.fc([cell.get_input("word"), cell.get_state("hidden")], 8, act="tanh"))

    Args:
      inputs: names of the inputs; a value is a variable, or None if it is passed in each step.
      states: names of the states with their initial values.
      out_state: the state that is the output of a step.
    """

    def __init__(self, inputs: Mapping[str, Any], states: Mapping[str, InitState], out_state: str, name=None):
        self.name = unique_name.generate("state_cell") if name is None else name
        for state, init in states.items():
            if not isinstance(init, InitState):
                raise ValueError(f"StateCell: the state {state} must be an InitState, not {type(init).__name__}")
        if out_state not in states:
            raise ValueError(f"StateCell: out_state {out_state} is not one of the states {', '.join(states)}")
        self._inputs: dict[str, Any] = dict(inputs)
        self._inits = dict(states)
        self._out_state = out_state
        self._current: dict[str, Variable] = {}
        self._holders: dict[str, Holder] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], Any] | None = None

    def _enter_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not None:
            raise ValueError("a StateCell can be used by only one decoder at a time")
        self._decoder, self._holders = decoder, {}

    def _leave_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not decoder:
            raise ValueError("a StateCell can leave only the decoder that it is in")
        self._decoder = None

    def get_state(self, state_name) -> Variable:
        """Returns a state: its value from the previous step, or the one set by `set_state`."""
        self._check_state(state_name)
        self._begin_step()
        return self._current[state_name]

    def get_input(self, input_name) -> Variable:
        """Returns the value of an input in this step."""
        if self._inputs.get(input_name) is None:
            raise ValueError(f"StateCell: the input {input_name} has no value")
        return self._inputs[input_name]

    def set_state(self, state_name, state_value) -> None:
        """Sets the value of a state within the step."""
        self._check_state(state_name)
        self._begin_step()
        self._current[state_name] = state_value

    def _begin_step(self) -> None:
        """Gets the states from the decoder on first use."""
        if self._holders:
            return
        if self._decoder is None:
            raise ValueError("a StateCell has states only inside the block of a decoder")
        self._holders = {name: self._decoder.hold(init) for name, init in self._inits.items()}
        self._current = {name: holder.get() for name, holder in self._holders.items()}

    def _check_state(self, name: str) -> None:
        if name not in self._inits:
            raise ValueError(f"StateCell: {name} is not one of the states {', '.join(self._inits)}")

    def state_updater(self, updater):
        """Decorates the function that computes the new states; it is called with the cell."""
        self._updater = updater
        return updater

    def compute_state(self, inputs) -> None:
        """Sets inputs and calls the updater."""
        self._begin_step()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"StateCell: {name} is not one of the inputs {', '.join(self._inputs)}")
            self._inputs[name] = value
        if self._updater is None:
            raise ValueError("a StateCell requires an updater: decorate a function with cell.state_updater")
        self._updater(self)

    def update_states(self) -> None:
        """Passes all states to the next step."""
        self._begin_step()
        for name, holder in self._holders.items():
            holder.set(self._current[name])

    def out_state(self) -> Variable:
        """Returns the state that is the output of the step."""
        self._begin_step()
        return self._current[self._out_state]

    @property
    def state_names(self) -> list[str]:
        """Returns the names of the states."""
        return list(self._inits)

    @property
    def input_names(self) -> list[str]:
        """Returns the names of the inputs."""
        return list(self._inputs)
