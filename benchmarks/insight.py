"""How surely a slow worker is named, how soon, and what it costs that each process counts its seconds.

Run `python benchmarks/insight.py [--episodes 20] [--write]`. Two workers train with steps of about 20 ms. In each
episode of some hundred steps one of them takes 20 ms longer, in its input, its step, its part of the exchange or
between steps, or a process that does nothing else takes half of its core; as many episodes are quiet. The launcher's
samples of an episode are then given to the rule, as a run of its own. The cost is the time of all that a step of `fit`
calls to count its seconds, beside the time of a step; the launcher's and worker 0's look, once a second, is left out.
The same file is the program of the workers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from pages import page, save

EXTRA_SECONDS: Final = {"input": 0.045, "computing": 0.02, "exchanging": 0.02, "between": 0.02}
"""Seconds that a slow worker takes longer. Input is read while a step runs: what is longer than a step shows."""

SLOW_STEPS: Final = 350
QUIET_STEPS: Final = 400
WARM_STEPS: Final = 100
KINDS: Final = ("input", "computing", "exchanging", "between", "core")


class Episode(NamedTuple):
    """A part of the run.

    Args:
        first: Its first step.
        last: Its last one.
        worker: Who is slow; None where nobody is.
        kind: What it is slow in.
    """

    first: int
    last: int
    worker: int | None
    kind: str


def episodes_of(count: int, seed: int = 0) -> list[Episode]:
    """Return so many slow episodes and as many quiet ones, in turns."""
    rng, start, found = random.Random(seed), WARM_STEPS, []
    for number in range(2 * count):
        is_slow = number % 2 == 0
        steps = SLOW_STEPS if is_slow else QUIET_STEPS
        who, kind = (rng.randrange(2), KINDS[number // 2 % len(KINDS)]) if is_slow else (None, "quiet")
        found.append(Episode(start, start + steps, who, kind))
        start += steps
    return found


def work(count: int) -> None:
    """Train through all episodes."""
    import jax
    import keras
    import numpy as np

    import stratagem
    from stratagem.host_memory.lanes import Lanes

    strategy = stratagem.MultiWorkerMirroredStrategy()
    own, now = strategy.cluster_resolver.task_id, {"step": 0}
    episodes = episodes_of(count)

    def seconds(kind: str) -> float:
        here = next((each for each in episodes if each.first <= now["step"] < each.last), None)
        is_slow = here is not None and (here.worker, here.kind) == (own, kind)
        return EXTRA_SECONDS.get(kind, 1.0) if is_slow else 0.0

    def wait(kind: str, value: Any) -> Any:
        if seconds(kind):
            time.sleep(seconds(kind))
        return value

    lay, laid = Lanes.lay, {"step": -1}

    def lay_slowly(*arguments: Any) -> None:
        if laid["step"] != now["step"]:  # once a step, however many exchanges it has
            laid["step"] = now["step"]
            wait("exchanging", None)
        lay(*arguments)

    Lanes.lay = lay_slowly

    class Computes(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            first = jax.lax.stop_gradient(inputs.ravel()[0])
            shape = jax.ShapeDtypeStruct((), "float32")
            waited = jax.pure_callback(lambda value: wait("computing", value), shape, first)
            return inputs + 0 * jax.lax.stop_gradient(waited)

    class Steps(keras.callbacks.Callback):
        thief: subprocess.Popen[bytes] | None = None

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            now["step"] = batch + 1
            wait("between", batch)
            self.take_core(seconds("core") > 0)

        def take_core(self, wanted: bool) -> None:
            if wanted and self.thief is None:
                self.thief = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            elif not wanted and self.thief is not None:
                self.thief.kill()
                self.thief.wait()
                self.thief = None

    generator = np.random.default_rng(0)
    x = generator.normal(size=(4096, 256)).astype("float32")
    rows = stratagem.data.Dataset.from_tensor_slices((x, x[:, :1])).repeat().batch(256)
    rows = rows.map(lambda x, y: wait("input", (x, y)))
    with strategy.scope():
        layers = [Computes(), *(keras.layers.Dense(768, "relu") for _ in range(4)), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((256,)), *layers])
        model.compile("sgd", "mse")
    began = time.perf_counter()
    model.fit(rows, steps_per_epoch=episodes[-1].last, verbose=0, callbacks=[Steps()])
    if strategy.is_chief:
        print(json.dumps({"step": (time.perf_counter() - began) / episodes[-1].last, "counting": seconds_to_count()}))


def seconds_to_count(steps: int = 20_000) -> float:
    """Return how long the calls take that count the seconds of one step of `fit`."""
    from stratagem.core.counters import CountersFile
    from stratagem.core.progress import Phase, Progress

    with tempfile.TemporaryDirectory() as folder:
        progress = Progress(file=CountersFile(Path(folder) / "counters"))
        began = time.perf_counter()
        for _ in range(steps):
            with progress.during(Phase.INPUT), progress.during(Phase.COPYING):
                pass
            with progress.during(Phase.STEP, 1, "train_step", is_joint=True):
                progress.exchanged(1e-4, 5e-5)
        return (time.perf_counter() - began) / steps


def judged(lines: list[dict[str, Any]], episodes: list[Episode]) -> list[tuple[Episode, str, float]]:
    """Return what the rule says of each episode: whom it names, and after how many seconds."""
    from stratagem.cluster.stragglers import Stragglers
    from stratagem.insight.samples import Sample

    looks: dict[float, dict[str, Sample]] = defaultdict(dict)
    for line in lines:
        sample = Sample.from_dict({name: value for name, value in line.items() if name != "task"})
        looks[round(sample.clock)][line["task"]] = sample
    found = []
    for episode in episodes:
        rule, said, after = Stragglers(), "nobody", float("nan")
        within = [look for look in looks.values() if len(look) == 2 and _is_within(look, episode)]
        for look in within:
            named = rule.look([look[name].reading for name in sorted(look)])
            if named is not None and said == "nobody":
                said, after = f"worker {named.task} {named.part}", look["worker 0"].clock - within[0]["worker 0"].clock
        found.append((episode, said, after))
    return found


def _is_within(look: dict[str, Any], episode: Episode) -> bool:
    return all(episode.first <= sample.steps < episode.last for sample in look.values())


def expected(episode: Episode) -> str:
    """Return what the rule should say."""
    part = "computing" if episode.kind == "core" else episode.kind
    return "nobody" if episode.worker is None else f"worker {episode.worker} {part}"


def main() -> None:
    """Run the workers, judge each episode, and print both figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.work:
        return work(asked.episodes)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--log-json", str(log), __file__]
        command += ["--work", "--episodes", str(asked.episodes)]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        try:
            output, _ = run.communicate()
        except KeyboardInterrupt:
            run.send_signal(signal.SIGINT)
            raise
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    times = json.loads(output[output.rindex("{") :])
    rows = judged(lines, episodes_of(asked.episodes))
    slow = [(episode, said, after) for episode, said, after in rows if episode.worker is not None]
    right = [after for episode, said, after in slow if said == expected(episode)]
    alarms = [said for episode, said, _ in rows if episode.worker is None and said != "nobody"]
    step, counting = times["step"], times["counting"]
    for episode, said, _ in rows:
        if said != expected(episode):
            print(f"steps {episode.first} to {episode.last}: {expected(episode)} was to be named, it said {said}")
    table = "\n".join(
        [
            "| | |",
            "| --- | --- |",
            f"| slow workers named with what they are slow in | {len(right)} of {len(slow)} |",
            f"| after | {statistics.median(right):.0f} s in the median, {max(right):.0f} s at most |",
            f"| false alarms in quiet episodes | {len(alarms)} of {len(rows) - len(slow)} |",
            f"| counting in a step | {counting * 1e6:.0f} us of {step * 1e3:.0f} ms, {counting / step:.2%} |",
        ]
    )
    print(table)
    if asked.write:
        facts = [f"two workers, {asked.episodes} slow episodes of {SLOW_STEPS} steps, 20 ms more a step (input: 45 ms)"]
        save("insight", page("Slow workers by name", facts, table))


if __name__ == "__main__":
    main()
