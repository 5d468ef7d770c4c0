"""A two-tower recommender: which article does a customer take next?

Run it:
    python examples/recommender.py                                       # two workers in threads of this process
    stratagem run --ps 2 --workers 2 examples/recommender.py

Customers and articles have ids out of large ranges, and a row of an embedding for each. The embeddings lie on the
parameter servers, divided by rows; a step reads and updates only the rows of its batch (docs/parameter_servers.md).

The data is made here. Every customer has one of 25 tastes, and takes articles of it; the model sees only ids.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

import stratagem
from stratagem import keras

TASTES, ARTICLES_OF_TASTE, CUSTOMERS, PURCHASES = 25, 20, 2000, 20
BATCH_SIZE, BEST = 256, 20


class Purchases(NamedTuple):
    """Who took what: ids, one entry for each purchase. The last one of every customer is kept for a test."""

    customers: np.ndarray
    articles: np.ndarray
    last_customers: np.ndarray
    last_articles: np.ndarray
    all_articles: np.ndarray


def make_purchases(rows: int) -> Purchases:
    random = np.random.default_rng(0)
    articles = random.choice(rows, TASTES * ARTICLES_OF_TASTE, replace=False).astype("int32")
    customers = random.choice(rows, CUSTOMERS, replace=False).astype("int32")
    taste = random.integers(0, TASTES, (CUSTOMERS, 1))
    own = taste * ARTICLES_OF_TASTE + random.integers(0, ARTICLES_OF_TASTE, (CUSTOMERS, PURCHASES))
    anything = random.integers(0, len(articles), own.shape)
    taken = articles[np.where(random.random(own.shape) < 0.9, own, anything)]
    before = np.repeat(customers, PURCHASES - 1), taken[:, :-1].ravel()
    order = random.permutation(len(before[0]))
    return Purchases(before[0][order], before[1][order], customers, taken[:, -1], articles)


def make_tower(rows: int, name: str) -> keras.Model:
    """Return what makes a point on a sphere of an id; what else is known would come in here."""
    layers = [keras.layers.Embedding(rows, 16), keras.layers.UnitNormalization()]
    return keras.Sequential([keras.Input((), dtype="int32"), *layers], name=name)


def make_model(rows: int) -> tuple[keras.Model, keras.Model, keras.Model]:
    """Return the model to train, which compares each customer of a batch with each article, and its towers."""
    customer, article = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    customers, articles = make_tower(rows, "customers"), make_tower(rows, "articles")
    alike = keras.ops.matmul(customers(customer), keras.ops.transpose(articles(article))) * 10.0
    model = keras.Model([customer, article], alike)
    model.compile(loss=in_batch_softmax, optimizer=keras.optimizers.Adagrad(0.2))
    return model, customers, articles


def in_batch_softmax(_: Any, alike: Any) -> Any:
    """Return the loss of each customer, who must find the own article among those of the batch."""
    own = keras.ops.arange(alike.shape[0])
    return keras.losses.sparse_categorical_crossentropy(own, alike, from_logits=True)


def recall(customers: keras.Model, articles: keras.Model, purchases: Purchases) -> float:
    """Return how many customers' last purchase is among the articles that suit them best."""
    towers = ((customers, purchases.last_customers), (articles, purchases.all_articles))
    of_customers, of_articles = (tower.predict(ids, batch_size=500, verbose=0) for tower, ids in towers)
    places = np.argsort(-of_customers @ of_articles.T, axis=1)[:, :BEST]
    return float((purchases.all_articles[places] == purchases.last_articles[:, None]).any(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500_000, help="of each of the two embeddings")
    options = parser.parse_args()

    partitioner = stratagem.experimental.partitioners.MinSizePartitioner(min_shard_bytes=1 << 20, max_shards=2)
    strategy = stratagem.ParameterServerStrategy(variable_partitioner=partitioner)
    purchases = make_purchases(options.rows)
    with strategy.scope():
        model, customers, articles = make_model(options.rows)
    untrained = recall(customers, articles, purchases)
    nothing = np.zeros(len(purchases.customers), "float32")  # the loss needs no target
    model.fit([purchases.customers, purchases.articles], nothing, batch_size=BATCH_SIZE, epochs=options.epochs)
    trained = recall(customers, articles, purchases)
    print(f"The next purchase is among {BEST} of {len(purchases.all_articles)} articles: {trained:.1%}", end="")
    print(f" of the time; before training {untrained:.1%}.")


if __name__ == "__main__":
    main()
