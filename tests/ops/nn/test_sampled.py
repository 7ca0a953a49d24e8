"""Sampled classes have the distributions that Fluid's samplers have, and gradients reuse the samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paddle.fluid.layers._topics.nn.sampled_losses import _alias_table
from refluid.ops.core.registry import lookup

CLASSES = 6


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def nce(key, samples, **more):
    arguments = {
        "Input": [jnp.ones((50, 2), jnp.float32)],
        "Label": [jnp.zeros((50, 1), jnp.int64)],
        "Weight": [jnp.ones((CLASSES, 2), jnp.float32)],
        **more.pop("arguments", {}),
    }
    attrs = {"num_total_classes": CLASSES, "num_neg_samples": samples, **more}
    return arguments, attrs, lookup("nce").call(arguments, attrs, key=key)


def shares(outputs):
    drawn = np.asarray(outputs["SampleLabels"][0])[:, 1:]
    return np.bincount(drawn.reshape(-1), minlength=CLASSES) / drawn.size


def test_uniform_samples_are_even():
    *_, outputs = nce(jax.random.key(0), 400)
    np.testing.assert_allclose(shares(outputs), np.full(CLASSES, 1 / CLASSES), atol=0.01)


def test_log_uniform_samples_prefer_small_classes():
    *_, outputs = nce(jax.random.key(0), 400, sampler=1)
    classes = np.arange(CLASSES - 1)
    expected = np.log((classes + 2) / (classes + 1)) / np.log(CLASSES)
    np.testing.assert_allclose(shares(outputs), [*expected, 0], atol=0.01)


def test_samples_of_a_custom_distribution_follow_it():
    distribution = np.array([0.05, 0.1, 0.5, 0.05, 0.1, 0.2])
    alias, stay = _alias_table(distribution)
    tables = {"CustomDistProbs": distribution.astype("float32"), "CustomDistAlias": alias, "CustomDistAliasProbs": stay}
    tables = {slot: [jnp.asarray(value)] for slot, value in tables.items()}
    *_, outputs = nce(jax.random.key(0), 400, sampler=2, arguments=tables)
    np.testing.assert_allclose(shares(outputs), distribution, atol=0.01)


def test_alias_table_holds_the_distribution():
    distribution = np.array([0.4, 0.1, 0.3, 0.2])
    alias, stay = _alias_table(distribution)
    found = stay / 4.0
    for place, other in enumerate(alias):
        if other >= 0:
            found[other] += (1 - stay[place]) / 4
    np.testing.assert_allclose(found, distribution, rtol=1e-6)


def test_the_gradient_of_nce_is_that_of_its_samples():
    arguments, attrs, outputs = nce(jax.random.key(3), 4, sampler=1)
    weight = jnp.asarray(np.random.RandomState(0).randn(CLASSES, 2).astype("float32"))
    arguments["Weight"] = [weight]
    outputs = lookup("nce").call(arguments, attrs, key=jax.random.key(3))
    cost_grad = {"Cost@GRAD": [jnp.ones((50, 1), jnp.float32)]}
    found = lookup("nce_grad").call({**arguments, **outputs, **cost_grad}, attrs)["Weight@GRAD"][0]

    def cost(weight):
        given = {**arguments, "Weight": [weight]}
        return lookup("nce").call(given, attrs, key=jax.random.key(3))["Cost"][0].sum()

    np.testing.assert_allclose(found, jax.grad(cost)(weight), rtol=1e-4, atol=1e-5)


def test_sampled_classes_differ_and_come_with_their_chance():
    """Fluid draws until it has enough different classes; the same is simulated here, many times."""
    classes, count, rounds = 7, 3, 4000
    logits, labels = jnp.zeros((1, classes), jnp.float32), jnp.zeros((1, 1), jnp.int64)
    draw = jax.vmap(
        lambda key: lookup("sample_logits").call(
            {"Logits": [logits], "Labels": [labels]}, {"num_samples": count}, key=key
        )
    )
    outputs = draw(jax.random.split(jax.random.key(1), rounds))
    samples = np.asarray(outputs["Samples"][0])[:, 0, 1:]
    assert all(len(set(row)) == count for row in samples[:100].tolist())

    probability = np.log1p(1 / (np.arange(classes) + 1)) / np.log(classes + 1)
    rng = np.random.RandomState(0)
    met, chances = np.zeros(classes), []
    for _ in range(rounds):
        seen, tries = set(), 0
        while len(seen) < count:
            seen.add(rng.choice(classes, p=probability))
            tries += 1
        met[list(seen)] += 1
        chances.append(count * probability[0] if tries == count else 1 - (1 - probability[0]) ** tries)
    np.testing.assert_allclose(np.bincount(samples.reshape(-1), minlength=classes), met, rtol=0.1, atol=0.03 * rounds)
    np.testing.assert_allclose(np.asarray(outputs["Probabilities"][0])[:, 0, 0].mean(), np.mean(chances), rtol=0.03)


def test_sampling_id_follows_the_rows():
    rows = jnp.broadcast_to(jnp.asarray([0.2, 0.0, 0.5, 0.3], jnp.float32), (4000, 4))
    drawn = lookup("sampling_id").call({"X": [rows]}, {}, key=jax.random.key(0))["Out"][0]
    assert drawn.dtype == jnp.int64
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, [0.2, 0, 0.5, 0.3], atol=0.03)
