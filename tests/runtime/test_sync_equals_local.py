"""Two trainers with half batches each follow the local run on whole batches.

Every combination of model and layout is covered without a network in tests/transpiler; these go through real processes.
"""

import numpy as np

JOBS = [
    ({"optimizer": "SGD"}, [{"servers": 1}, {"servers": 3, "sliced": False}]),
    ({"optimizer": "Momentum", "embedding": True, "frozen": True}, [{"servers": 2}]),
    ({"optimizer": "Adam", "decay": True, "l2": True, "embedding": True}, [{"servers": 3}]),
    ({"optimizer": "Adam", "embedding": True, "table": ["is_sparse", "is_distributed"]}, [{"servers": 2}]),
    ({"optimizer": "SGD", "clip": "GradientClipByGlobalNorm"}, [{"servers": 2}, {"servers": 2, "sliced": False}]),
]


def test_two_trainers_with_half_batches_follow_the_local_run(jobs):
    local = jobs.train_locally([{**model, "steps": 100} for model, _ in JOBS])
    spread = [(i, {**model, **layout, "steps": 100}) for i, (model, layouts) in enumerate(JOBS) for layout in layouts]
    distributed = jobs.train([case for _, case in spread])
    for (i, case), trainers in zip(spread, distributed, strict=True):
        losses = np.mean([trainer["losses"] for trainer in trainers], axis=0)
        np.testing.assert_allclose(losses, local[i]["losses"], rtol=1e-5, err_msg=str(case))
        for trainer in trainers:
            assert trainer.keys() == local[i].keys(), "a trainer can read what servers hold"
            for name in trainer.keys() - {"losses"}:
                np.testing.assert_allclose(
                    trainer[name], local[i][name], rtol=1e-4, atol=1e-6, err_msg=f"{name} {case}"
                )
