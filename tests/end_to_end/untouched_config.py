"""A process of a job whose script says ``sync_mode=False`` and nothing else: untouched_config.py ROLE ID ENDPOINTS"""

import sys

import numpy as np

import paddle.fluid as fluid

role, number, endpoints = sys.argv[1], int(sys.argv[2]), sys.argv[3]
x = fluid.layers.data("x", [100])
word = fluid.layers.data("word", [1], dtype="int64")
y = fluid.layers.data("y", [1])
table = fluid.layers.embedding(word, [30, 4], is_sparse=True, param_attr="table")
hidden = fluid.layers.fc([x, table], 200, act="tanh")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
fluid.optimizer.SGD(0.1).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
t = fluid.DistributeTranspiler()
t.transpile(number, pservers=endpoints, trainers=2, sync_mode=False)
if role == "server":
    here = endpoints.split(",")[number]
    program = t.get_pserver_program(here)
    exe.run(t.get_startup_program(here, program))
    exe.run(program)
    sys.exit()

exe.run(fluid.default_startup_program())
random, weight = np.random.RandomState(number), np.random.RandomState(9).randn(100, 1) / 10
losses = []
for _ in range(150):
    values = random.randn(32, 100).astype("float32")
    feed = {"x": values, "word": random.randint(0, 30, (32, 1)), "y": np.tanh(values @ weight).astype("float32")}
    losses.append(float(exe.run(t.get_trainer_program(), feed=feed, fetch_list=[loss])[0][0]))
read = {
    p.name: np.array(fluid.global_scope().find_var(p.name).get_tensor())
    for p in fluid.default_main_program().all_parameters()
}
assert read["table"].shape == (30, 4)
assert all(np.isfinite(value).all() and np.abs(value).sum() > 0 for value in read.values()), read
assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:3]), losses
print("trained", len(losses), "steps")
