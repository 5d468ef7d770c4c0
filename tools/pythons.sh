#!/bin/sh
# Print `VERSION PATH` of each Python that Stratagem can be tried on, the oldest version first: tools/pythons.sh
# Print the same of one that is asked for by name or path, or nothing:                          tools/pythons.sh python3.13
# It looks on the PATH, in the order of versions, and where pyenv keeps its own: of those only the chosen ones run there.
set -eu
pyenv=${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}/versions

# Print `VERSION PATH` of a Python that runs and is new enough.
described() {
    path=$(command -v "$1" 2>/dev/null) || return 1
    version=$("$path" -c 'import sys
if sys.version_info >= (3, 11): print("%d.%d" % sys.version_info[:2])' 2>/dev/null) && [ -n "$version" ] || return 1
    echo "$version $path"
}

if [ $# -gt 0 ]; then
    described "$1" && exit
    for candidate in "$pyenv/${1#python}"/bin/python "$pyenv/${1#python}".*/bin/python; do
        described "$candidate" && exit
    done
    exit 1
fi

versions=" "
for candidate in python3.11 python3.12 python3.13 python3.14 python3 python "$pyenv"/*/bin/python; do
    found=$(described "$candidate") || continue
    case $versions in *" ${found%% *} "*) continue ;; esac
    versions="$versions${found%% *} "
    echo "$found"
done | sort -t . -k 2n
