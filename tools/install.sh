#!/bin/sh
# Put Stratagem with one extra into a virtual environment, unless it is there: tools/install.sh FOLDER EXTRA [--oldest]
# --oldest takes the lowest versions that pyproject.toml allows. PYTHON names the interpreter; without it the oldest
# that is found makes the environment, as what is written on it runs on the others. Called by the Makefile.
set -eu
folder=$1 extra=$2 oldest=${3:-}
stamp=$folder/installed-$extra
export PIP_DISABLE_PIP_VERSION_CHECK=1

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if command -v "$PYTHON" >/dev/null 2>&1 && is_new_enough "$PYTHON"; then
            command -v "$PYTHON"
            return
        fi
        echo "make: PYTHON=$PYTHON is no Python 3.11 or newer that runs." >&2
    else
        path=$(sh tools/pythons.sh | sed -n '1s/^[^ ]* //p')
        if [ -n "$path" ]; then
            echo "$path"
            return
        fi
        echo "make: no Python 3.11 or newer was found, on the PATH or among pyenv's versions." >&2
    fi
    echo "  Why it matters: Stratagem needs Python 3.11." >&2
    echo "  What to do: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2
    return 1
}

# Which interpreter stands behind a Python, through links, pyenv's shims and virtual environments.
behind() { "$1" -c 'import os, sys; print(os.path.realpath(sys._base_executable))' 2>/dev/null; }

is_usable() {
    [ -x "$folder/bin/python" ] && is_new_enough "$folder/bin/python" || return 1
    [ -z "${PYTHON:-}" ] || [ "$(behind "$folder/bin/python")" = "$(behind "$PYTHON")" ] || return 1
}

if [ -n "${PYTHON:-}" ]; then
    find_python >/dev/null
fi
if is_usable; then
    if [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt tools/install.sh ] && [ "$stamp" -nt tools/floor.py ]; then
        exit 0
    fi
fi
if ! { is_usable && "$folder/bin/python" -m pip --version >/dev/null 2>&1; }; then
    python=$(find_python)
    echo "Making $folder with $("$python" --version) ..."
    rm -rf "$folder"
    if ! message=$("$python" -m venv "$folder" 2>&1); then
        rm -rf "$folder"
        echo "make: $python cannot make a virtual environment: $message" >&2
        echo "  Why it matters: everything is installed there, nothing in your system." >&2
        echo "  What to do: install Python's venv module (Debian, Ubuntu: apt install python3-venv)." >&2
        exit 1
    fi
fi

echo "Installing stratagem[$extra] and what it needs into $folder (some minutes the first time) ..."
if [ -n "$oldest" ]; then
    "$folder/bin/python" tools/floor.py > "$folder/constraints.txt"
    "$folder/bin/python" -m pip install --quiet --constraint "$folder/constraints.txt" --editable ".[$extra]"
else
    "$folder/bin/python" -m pip install --quiet --editable ".[$extra]"
fi
touch "$stamp"
