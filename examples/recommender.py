"""Predicts how a person rates a film, with two towers of embeddings that have sparse gradients.

The ratings are synthetic: people and films have hidden tastes, and a rating is how well they match.

    python examples/recommender.py
"""

import numpy as np

import paddle
import paddle.fluid as fluid

PEOPLE = 200
FILMS = 100
AGES = 7
GENRES = 10


def ratings(count, seed):
    """A reader of (person, age, film, genre, rating)."""
    tastes = np.random.RandomState(7)
    people, films = tastes.randn(PEOPLE, 2), tastes.randn(FILMS, 2)
    ages, genres = tastes.randint(0, AGES, PEOPLE), tastes.randint(0, GENRES, FILMS)

    def reader():
        random = np.random.RandomState(seed)
        for _ in range(count):
            person, film = random.randint(PEOPLE), random.randint(FILMS)
            liking = np.tanh(people[person].dot(films[film]) / 2)
            yield [person], [ages[person]], [film], [genres[film]], [3 + 2 * liking]

    return reader


def tower(ids, sizes, name):
    parts = [
        fluid.layers.embedding(
            input=column,
            size=[size, 16],
            is_sparse=True,
            param_attr=fluid.ParamAttr(
                name="%s_table_%d" % (name, index), initializer=fluid.initializer.Normal(scale=0.3)
            ),
        )
        for index, (column, size) in enumerate(zip(ids, sizes))
    ]
    return fluid.layers.fc(input=fluid.layers.concat(input=parts, axis=1), size=32, act="tanh")


def build():
    names = ["person", "age", "film", "genre"]
    person, age, film, genre = [fluid.layers.data(name=name, shape=[1], dtype="int64") for name in names]
    rating = fluid.layers.data(name="rating", shape=[1], dtype="float32")
    usr = tower([person, age], [PEOPLE, AGES], "person")
    mov = tower([film, genre], [FILMS, GENRES], "film")
    predicted = fluid.layers.scale(fluid.layers.cos_sim(X=usr, Y=mov), scale=5.0)
    cost = fluid.layers.mean(fluid.layers.square_error_cost(input=predicted, label=rating))
    return [person, age, film, genre, rating], cost


def main():
    fluid.default_startup_program().random_seed = 3
    feed_list, cost = build()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005, lazy_mode=True).minimize(cost)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(feed_list=feed_list, place=place)
    exe.run(fluid.default_startup_program())
    train_reader = paddle.batch(ratings(20000, seed=0), batch_size=256, drop_last=True)
    test_reader = paddle.batch(ratings(2048, seed=1), batch_size=256)

    for epoch in range(6):
        losses = [exe.run(feed=feeder.feed(data), fetch_list=[cost])[0][0] for data in train_reader()]
        tests = [exe.run(test_program, feed=feeder.feed(data), fetch_list=[cost])[0][0] for data in test_reader()]
        print("epoch %d  train cost %.3f  test cost %.3f" % (epoch, np.mean(losses), np.mean(tests)))


if __name__ == "__main__":
    main()
