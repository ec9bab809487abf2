# Makes .venv and installs the given requirements files into it; sourced by run.sh and test.sh.
# Quick when nothing changed: the files' checksum is kept in .venv.

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in python3.12 python3.11 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

setup_venv() {
    local python stamp wanted
    stamp=.venv/installed-$(printf '%s' "$*" | tr -c 'a-z0-9\n' '-')
    wanted=$(cat "$@" pyproject.toml | cksum)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    if ! python=$(find_python); then
        say "No Python 3.11 or 3.12 was found: install one (Debian, Ubuntu: apt install python3 python3-venv)."
        return 2
    fi
    if [ ! -x .venv/bin/pip ]; then
        rm -rf .venv
        if ! "$python" -m venv .venv 2>/dev/null; then
            rm -rf .venv
            say "$python cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt install python3-venv)."
            return 2
        fi
    fi
    local file arguments=()
    for file in "$@"; do arguments+=(-r "$file"); done
    if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check "${arguments[@]}"; then
        say "The packages of $* could not be installed; pip's message is above. Is the network there? Run the same command again to go on."
        return 2
    fi
    printf '%s' "$wanted" >"$stamp"
}
