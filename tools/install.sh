#!/bin/sh
# Put Stratagem with one extra into a virtual environment: tools/install.sh FOLDER EXTRA [--oldest]
# --oldest takes the lowest versions that pyproject.toml allows. Called by the Makefile.
set -eu
folder=$1 extra=$2 oldest=${3:-}
export PIP_DISABLE_PIP_VERSION_CHECK=1

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        if command -v "$candidate" >/dev/null 2>&1 && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "make: no Python 3.11 or newer was found (tried: ${PYTHON:-python3.11 python3.12 python3.13 python3 python})." >&2
    echo "  Why it matters: Stratagem needs Python 3.11." >&2
    echo "  What to do: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2
    return 1
}

if ! { [ -x "$folder/bin/python" ] && is_new_enough "$folder/bin/python" \
       && "$folder/bin/python" -m pip --version >/dev/null 2>&1; }; then
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
touch "$folder/installed-$extra"
