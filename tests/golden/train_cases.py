"""What is trained: every optimizer on dense and sparse gradients, clipping, decay, schedules, averages; and models.

Runs on Python 3.7 too, because the oracle imports it.
"""

import numpy as np

from golden import (
    train_books,
    train_decoders,
    train_detectors,
    train_image_nets,
    train_models,
    train_rankers,
    train_transformer,
    train_translation,
)
from golden.case import f32, ints
from golden.training import TrainCase

SMALL = []
GROUPS = {
    "small": SMALL,
    "models": train_models.CASES,
    "books": train_books.CASES,
    "translation": train_translation.CASES,
    "decoders": train_decoders.CASES,
    "detectors": train_detectors.CASES,
    "rankers": train_rankers.CASES,
    "transformer": train_transformer.CASES,
    "image_nets": train_image_nets.CASES,
}


def dense_loss(fluid, **attrs):
    """Two layers on dense inputs."""
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh", **attrs)
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def dense_feed(step):
    return {"x": f32(6, 4, salt=("x", step)), "y": f32(6, 1, salt=("y", step))}


def sparse_loss(fluid, **attrs):
    """A sparse embedding beside a dense layer."""
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    found = fluid.layers.embedding(ids, [10, 3], is_sparse=True)
    hidden = fluid.layers.fc([found, x], 3, act="tanh", **attrs)
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def sparse_feed(step):
    """Ids of which some are seen only now and then.

    One always repeats: real 1.8.5 loses rows in momentum and rmsprop when rows are all different and not in order.
    """
    ids = ints(6, 1, high=4 + step % 7, salt=("ids", step))
    ids[-1] = ids[0]
    return dict(dense_feed(step), ids=ids)


def train(name, loss, optimizer, steps=10, **options):
    """Adds a case: ``optimizer(fluid)`` minimizes ``loss``."""

    def build(fluid):
        cost = loss(fluid)
        optimizer(fluid).minimize(cost)
        return [cost]

    feed = sparse_feed if loss is sparse_loss else dense_feed
    SMALL.append(TrainCase(name, build, feed, steps, **options))


# Optimizers

OPTIMIZERS = {
    "sgd": lambda o: o.SGD(0.1),
    "momentum": lambda o: o.Momentum(0.05, 0.9),
    "momentum-nesterov": lambda o: o.Momentum(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda o: o.Adagrad(0.1),
    "adagrad-initial-value": lambda o: o.Adagrad(0.1, initial_accumulator_value=0.3),
    "adam": lambda o: o.Adam(0.05),
    "adam-lazy": lambda o: o.Adam(0.05, beta1=0.8, beta2=0.9, epsilon=1e-3, lazy_mode=True),
    "rmsprop": lambda o: o.RMSProp(0.02),
    "rmsprop-centered": lambda o: o.RMSProp(0.02, rho=0.9, epsilon=1e-3, momentum=0.5, centered=True),
    "lamb": lambda o: o.Lamb(0.05, exclude_from_weight_decay_fn=lambda p: p.name.endswith(".b_0")),
}
DENSE_ONLY = {
    "adamax": lambda o: o.Adamax(0.05),
    "decayed-adagrad": lambda o: o.DecayedAdagrad(0.05),
    "adadelta": lambda o: o.Adadelta(0.05, epsilon=1e-3, rho=0.9),
    # Real Fluid's optimizer passes l1 in place of l2.
    "ftrl": lambda o: o.Ftrl(0.1, l1=0.01, l2=0.01),
    "lars": lambda o: o.LarsMomentum(0.5, 0.9, lars_coeff=0.1),
    "dpsgd": lambda o: o.Dpsgd(0.1, clip=0.3, batch_size=16.0, sigma=0.0),
    "named-adam": lambda o: o.Adam(0.05, name="mine"),
}
for key, make in sorted(OPTIMIZERS.items()):
    train(key + "-dense", dense_loss, lambda fluid, make=make: make(fluid.optimizer))
    train(key + "-sparse", sparse_loss, lambda fluid, make=make: make(fluid.optimizer))
for key, make in sorted(DENSE_ONLY.items()):
    train(key + "-dense", dense_loss, lambda fluid, make=make: make(fluid.optimizer))


def adam_with_beta_variables(fluid):
    betas = [
        fluid.layers.create_global_var([1], value, "float32", persistable=True, name=name)
        for name, value in (("first_beta", 0.8), ("second_beta", 0.95))
    ]
    return fluid.optimizer.Adam(0.05, beta1=betas[0], beta2=betas[1])


train("adam-beta-variables", dense_loss, adam_with_beta_variables)
train(
    "learning-rate-per-parameter",
    lambda fluid: dense_loss(
        fluid, param_attr=fluid.ParamAttr(learning_rate=0.5), bias_attr=fluid.ParamAttr(learning_rate=3.0)
    ),
    lambda fluid: fluid.optimizer.Momentum(0.05, 0.9),
)
train(
    "frozen-parameter",
    lambda fluid: dense_loss(fluid, param_attr=fluid.ParamAttr(trainable=False)),
    lambda fluid: fluid.optimizer.Adam(0.05),
)


def some_parameters(fluid):
    cost = dense_loss(fluid)
    fluid.optimizer.SGD(0.1).minimize(cost, parameter_list=["fc_1.w_0"], no_grad_set={"fc_0.w_0"})
    return [cost]


SMALL.append(TrainCase("some-parameters", some_parameters, dense_feed, 10))


def in_two_halves(fluid):
    cost = dense_loss(fluid)
    optimizer = fluid.optimizer.Adagrad(0.1)
    optimizer.apply_gradients(optimizer.backward(cost))
    return [cost]


SMALL.append(TrainCase("backward-then-apply-gradients", in_two_halves, dense_feed, 10))

# Clipping and decay

CLIPS = {
    "value": lambda fluid: fluid.clip.GradientClipByValue(0.02, -0.05),
    "norm": lambda fluid: fluid.clip.GradientClipByNorm(0.1),
    "global-norm": lambda fluid: fluid.clip.GradientClipByGlobalNorm(0.2),
}
DECAYS = {
    "l1": lambda fluid: fluid.regularizer.L1Decay(0.05),
    "l2": lambda fluid: fluid.regularizer.L2Decay(0.1),
}


def clipped_by_parameters(loss, clip):
    def build(fluid):
        cost = loss(fluid)
        fluid.clip.set_gradient_clip(clip(fluid))
        fluid.optimizer.SGD(0.3).minimize(cost)
        return [cost]

    return build


for kind, clip in sorted(CLIPS.items()):
    for loss, feed, which in ((dense_loss, dense_feed, "dense"), (sparse_loss, sparse_feed, "sparse")):
        train(f"clip-{kind}-{which}", loss, lambda fluid, clip=clip: fluid.optimizer.SGD(0.3, grad_clip=clip(fluid)))
        # Real 1.8.5 writes ops of this older form with role variables of gradients that are no longer read.
        build = clipped_by_parameters(loss, clip)
        SMALL.append(TrainCase(f"set-clip-{kind}-{which}", build, feed, 10, roles=False))
for kind, decay in sorted(DECAYS.items()):
    train(
        f"decay-{kind}-dense",
        dense_loss,
        lambda fluid, decay=decay: fluid.optimizer.SGD(0.1, regularization=decay(fluid)),
    )
    train(
        f"decay-{kind}-sparse",
        sparse_loss,
        lambda fluid, decay=decay: fluid.optimizer.Momentum(0.1, 0.9, regularization=decay(fluid)),
    )
train(
    "decay-of-one-parameter",
    lambda fluid: dense_loss(fluid, param_attr=fluid.ParamAttr(regularizer=fluid.regularizer.L1Decay(0.1))),
    lambda fluid: fluid.optimizer.Adam(0.05, regularization=fluid.regularizer.L2Decay(0.2)),
)
train(
    "clip-and-decay",
    sparse_loss,
    lambda fluid: fluid.optimizer.Adagrad(
        0.1, regularization=fluid.regularizer.L2Decay(0.1), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.2)
    ),
)
train(
    "clip-some-parameters",
    dense_loss,
    lambda fluid: fluid.optimizer.SGD(
        0.3, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1, need_clip=lambda p: p.name.startswith("fc_1"))
    ),
)


def clipped_error(fluid):
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh")
    hidden.error_clip = fluid.clip.ErrorClipByValue(max=0.01)
    cost = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.3).minimize(cost)
    return [cost]


SMALL.append(TrainCase("error-clip", clipped_error, dense_feed, 10))

# Schedules

SCHEDULES = {
    "noam": lambda layers: layers.noam_decay(64, 5),
    "exponential": lambda layers: layers.exponential_decay(0.1, 4, 0.5),
    "exponential-staircase": lambda layers: layers.exponential_decay(0.1, 4, 0.5, staircase=True),
    "natural-exp": lambda layers: layers.natural_exp_decay(0.1, 4, 0.5),
    "natural-exp-staircase": lambda layers: layers.natural_exp_decay(0.1, 4, 0.5, staircase=True),
    "inverse-time": lambda layers: layers.inverse_time_decay(0.1, 4, 0.5),
    "inverse-time-staircase": lambda layers: layers.inverse_time_decay(0.1, 4, 0.5, staircase=True),
    "polynomial": lambda layers: layers.polynomial_decay(0.1, 7, 0.01, 2.0),
    "cosine": lambda layers: layers.cosine_decay(0.1, 3, 4),
}
# Real Fluid writes these with branches; refluid's ops differ, their values must not.
BRANCHING = {
    "polynomial-cycle": lambda layers: layers.polynomial_decay(0.1, 5, 0.01, 2.0, cycle=True),
    "piecewise": lambda layers: layers.piecewise_decay([3, 6, 7], [0.1, 0.05, 0.2, 0.01]),
    "warmup": lambda layers: layers.linear_lr_warmup(0.1, 5, 0.01, 0.2),
    "warmup-then-cosine": lambda layers: layers.linear_lr_warmup(layers.cosine_decay(0.1, 3, 4), 5, 0.01, 0.2),
    "warmup-then-piecewise": lambda layers: layers.linear_lr_warmup(
        layers.piecewise_decay([4, 8], [0.1, 0.05, 0.2]), 5, 0.01, 0.2
    ),
}


def scheduled(schedule):
    def build(fluid):
        cost = dense_loss(fluid)
        rate = schedule(fluid.layers)
        fluid.optimizer.SGD(rate).minimize(cost)
        return [cost, rate]

    return build


for key, schedule in sorted(SCHEDULES.items()):
    SMALL.append(TrainCase("schedule-" + key, scheduled(schedule), dense_feed, 12))
for key, schedule in sorted(BRANCHING.items()):
    SMALL.append(TrainCase("schedule-" + key, scheduled(schedule), dense_feed, 12, ops=False))

# Averages and slow weights


def parameters_under(average):
    """Yields the parameters inside apply, and after it."""

    def finish(fluid, exe, scope):
        names = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0"]
        with average.apply(exe):
            for name in names:
                yield "inside/" + name, np.array(scope.find_var(name).get_tensor())
        for name in names:
            yield "after/" + name, np.array(scope.find_var(name).get_tensor())

    return finish


def model_average(fluid):
    cost = dense_loss(fluid)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(cost)
    average = fluid.optimizer.ModelAverage(0.4, min_average_window=2, max_average_window=5)
    return {"fetch": [cost], "finish": parameters_under(average)}


def moving_average(fluid):
    cost = dense_loss(fluid)
    fluid.optimizer.SGD(0.1).minimize(cost)
    average = fluid.optimizer.ExponentialMovingAverage(0.9)
    average.update()
    return {"fetch": [cost], "finish": parameters_under(average)}


def moving_average_with_threshold(fluid):
    cost = dense_loss(fluid)
    fluid.optimizer.SGD(0.1).minimize(cost)
    steps = fluid.layers.learning_rate_scheduler._decay_step_counter()
    average = fluid.optimizer.ExponentialMovingAverage(0.5, thres_steps=steps, name="avg")
    average.update()
    return {"fetch": [cost], "finish": parameters_under(average)}


def lookahead(fluid):
    cost = dense_loss(fluid)
    fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.3), alpha=0.4, k=3).minimize(cost)
    return [cost]


def recompute(fluid):
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    first = fluid.layers.fc(x, 5, act="tanh")
    second = fluid.layers.fc(fluid.layers.fc(first, 6, act="sigmoid"), 4, act="tanh")
    cost = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(second, 1), y))
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.Adam(0.05))
    optimizer._set_checkpoints([first, second])
    optimizer.minimize(cost)
    return [cost]


SMALL += [
    TrainCase("model-average", model_average, dense_feed, 10),
    TrainCase("moving-average", moving_average, dense_feed, 10, ops=False),
    TrainCase("moving-average-threshold", moving_average_with_threshold, dense_feed, 10, ops=False),
    TrainCase("lookahead", lookahead, dense_feed, 10),
    TrainCase("recompute", recompute, dense_feed, 10),
]
