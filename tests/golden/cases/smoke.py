"""The smallest cases of each kind: op, repeated slot, SelectedRows, layer."""

from golden.case import Case, Rows, f32, layer_case

CASES = [
    Case("elementwise_add", {"X": f32(2, 3, 4), "Y": f32(3)}, attrs={"axis": 1}, grads="X Y"),
    Case("sum", {"X": [f32(2, 3), f32(2, 3, salt=1)]}, grads="X"),
    Case(
        "sgd",
        {"Param": f32(5, 2), "Grad": Rows([1, 3, 1], f32(3, 2), 5), "LearningRate": f32(1)},
        outputs="ParamOut",
        inplace={"ParamOut": "Param"},
    ),
]


@layer_case(CASES, x=f32(4, 13))
def fc_with_relu(fluid, x):
    return fluid.layers.fc(x, 5, act="relu")
