"""A batch script of Slurm, which starts itself again by the exit codes of its tasks."""

from __future__ import annotations

import shlex
from typing import Final

from stratagem.core import environment, exits
from stratagem.manifest import cluster
from stratagem.manifest.asked import Asked

_UNITS: Final = {"Mi": "M", "Gi": "G", "Ti": "T"}
"""Slurm's letters for the units of Kubernetes."""

_HEAD: Final = """\
#!/bin/bash
# A batch script of Slurm, written by
#     {written_by}
#
# Not run on a real cluster: its options were checked against a list of sbatch's, and the script trained in network
# namespaces, with a srun of the test's own. The folder of the program and the one below have to be the same on all
# nodes.
#
# Start the job, and follow its output:
#     sbatch FILE
#     tail -f {name}-JOB.log
"""

_BODY: Final = """\
set -u

# Files that all tasks share: the secret, compiled programs. Let BackupAndRestore write to a folder of all nodes too.
folder={storage}
mkdir -p "$folder"

# The secret keeps strangers out of the cluster. Each job has its own, and only you can read it.
export {secret_file}="$folder/secret-$SLURM_JOB_ID"
if [ ! -s "${secret_file}" ]; then
    (umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' > "${secret_file}")
fi

# The port of the first task on each node; the others use the next ports. Jobs on one node need different ports.
export {port_variable}={port}

{settings}

# A task of the job. It records an exception of the program ({failed}) or a wrong command line ({usage}): a restart
# would not help. srun itself returns the highest code of all tasks: that of the tasks that lost this one.
task() {{
    export {cache}="$folder/compiled/task-$SLURM_PROCID"
    export {own}="${cache}"
    trap : TERM  # Slurm signals this shell too; the program saves, and exits with {preempted}
    "$@"
    local code=$?
    case "$code" in {failed} | {usage}) touch "$raised" ;; esac
    return "$code"
}}
raised="$folder/raised-$SLURM_JOB_ID"
rm -f "$raised"
export -f task
export folder raised

# If one task fails, the others end by themselves, and their codes say which one failed. So srun must not kill them.
srun --kill-on-bad-exit=0 --wait=0{container} \\
    bash -c 'task "$@"' task {command}
code=$?
[ ! -e "$raised" ] || code={failed}

if [ "$code" -eq {preempted} ]; then  # preempted, and the state is saved
    scontrol requeue "$SLURM_JOB_ID"
elif [ "$code" -gt {usage} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ]; then
    scontrol requeue "$SLURM_JOB_ID"  # {peer_lost}: a task was lost, {hung}: no progress, 128 and more: killed
else
    rm -f "${secret_file}" "$raised"
fi
exit "$code"
"""


def write(asked: Asked) -> str:
    """Return the batch script of workers.

    Args:
        asked: The job. Its storage is a folder that all nodes share, its image one for Pyxis.

    Example:
        >>> "#SBATCH --nodes=2" in write(Asked(("train.py",), "train", workers=4, workers_per_node=2))
        True
    """
    storage = asked.storage or f"$HOME/.stratagem/{asked.name}"
    quoted = f'"{storage}"' if storage.startswith("$HOME/") else shlex.quote(storage)
    settings = cluster.settings(None, "", on_cpus=not asked.gpus) | {
        environment.CACHE_MIN_SECONDS: "0",
        environment.CACHE_OF_XLA: "none",
    }
    body = _BODY.format(
        storage=quoted,
        secret_file=environment.SECRET_FILE,
        port_variable=environment.PORT,
        port=asked.port or "$((20000 + SLURM_JOB_ID % 10000))",
        settings="\n".join(f"export {name}={value}" for name, value in settings.items()),
        cache=environment.COMPILATION_CACHE_DIR,
        own=environment.OWN_PROGRAMS,
        container=f' --container-image={shlex.quote(asked.image)} --container-mounts="$folder"' if asked.image else "",
        command=shlex.join(asked.command),
        restarts=asked.max_restarts,
        failed=exits.FAILED,
        usage=exits.USAGE,
        preempted=exits.PREEMPTED,
        peer_lost=exits.PEER_LOST,
        hung=exits.HUNG,
    )
    head = _HEAD.format(written_by=asked.written_by, name=asked.name)
    return f"{head}{_options(asked)}{body}"


def _options(asked: Asked) -> str:
    """Return the lines for sbatch."""
    options = [
        f"--job-name={asked.name}",
        f"--nodes={asked.workers // asked.workers_per_node}",
        f"--ntasks-per-node={asked.workers_per_node}",
        f"--output={asked.name}-%j.log",
    ]
    if asked.gpus:
        options.append(f"--gpus-per-node={asked.gpus * asked.workers_per_node}")
    if asked.cpus:
        options.append(f"--cpus-per-task={asked.cpus}")
    if asked.memory:
        number, unit = asked.memory[:-2], asked.memory[-2:]
        options.append(f"--mem={int(number) * asked.workers_per_node}{_UNITS[unit]}")
    lines = [f"#SBATCH {option}\n" for option in options]
    again = [
        "# The job may restart, by itself (below) or by Slurm. It appends to the same log.\n",
        "#SBATCH --requeue\n#SBATCH --open-mode=append\n",
        f"# Before the time limit, all tasks stop after the same step, save, and exit with {exits.PREEMPTED}.\n",
        f"#SBATCH --signal=TERM@{cluster.SAVING_SECONDS}\n",
    ]
    return "".join([*lines, *again, "\n"])
