# Makes .venv and installs requirements.txt into it, and the given extras of pyproject.toml: setup_venv [EXTRA ...]
# Sourced by run.sh and test.sh.
# Quick when nothing changed: the files' checksum is kept in .venv.
# requirements.lock has the packages of requirements.txt with the hashes of their files, all but torch, and is
# installed first where it has wheels; CONTRIBUTING.md says how it is made.
# TORCH=cpu, cu126 or default (PyPI's, for CUDA 13) chooses the build of PyTorch; without it, the driver does.

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in python3.12 python3.11 python3.13 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

# The platform that requirements.lock was made for.
has_locked_wheels() {
    .venv/bin/python -c 'import platform, sys
here = sys.platform, platform.machine(), platform.libc_ver()[0], sys.version_info[:2]
sys.exit(here not in [("linux", "x86_64", "glibc", version) for version in ((3, 11), (3, 12), (3, 13))])'
}

# Prints the build of PyTorch for this machine's NVIDIA driver; CUDA 13 needs version 580 or newer.
torch_build() {
    local driver
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || driver=
    driver=${driver%%.*}
    case $driver in
        '' | *[!0-9]*) printf cpu ;;
        *) if [ "$driver" -lt 580 ]; then printf cu126; else printf default; fi ;;
    esac
}

# Installs PyTorch's build $1 of the pinned version; where its index is not reached, PyPI's follows later.
install_torch() {
    local torch
    torch=$(grep '^torch==' requirements.txt) || return 0
    case $1 in
        default) say "PyTorch: the build for CUDA 13 (about 3 GB)." ;;
        cpu | cu126)
            say "PyTorch: the build $1 ($([ "$1" = cpu ] && printf 'no NVIDIA driver, 0.2 GB' || printf 'for a driver older than CUDA 13, about 3 GB')); --torch chooses another."
            "${pip[@]}" --no-deps --retries 1 --timeout 15 "$torch" --index-url "https://download.pytorch.org/whl/$1" ||
                say "PyTorch's index was not reached: the default build is installed instead."
            ;;
        *)
            say "--torch $1: choose cpu, cu126 or default."
            return 2
            ;;
    esac
}

setup_venv() {
    local python stamp wanted build
    stamp=.venv/installed$(printf -- '-%s' "$@")
    wanted=$(cat requirements.txt requirements.lock pyproject.toml | cksum)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    if ! python=$(find_python); then
        say "No Python 3.11, 3.12 or 3.13 was found: install one (Debian, Ubuntu: apt install python3 python3-venv)."
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
    build=${TORCH:-$(torch_build)}
    local pip=(.venv/bin/python -m pip install --disable-pip-version-check)
    say "Installing the packages: pip shows what it downloads. This takes minutes, once."
    install_torch "$build" || return $?
    local arguments=(-r requirements.txt)
    [ $# -eq 0 ] || arguments+=(-e ".[$(IFS=,; printf '%s' "$*")]")
    if has_locked_wheels; then
        # docopt, of num2words, is published as source only.
        if ! "${pip[@]}" --require-hashes --only-binary :all: --no-binary docopt --no-deps -r requirements.lock; then
            say "The packages of requirements.lock could not be installed; pip's message is above. Check the network connection, then run the same command again to continue."
            return 2
        fi
    else
        say "requirements.lock has no wheels for this machine (it is for Python 3.11 to 3.13 on Linux x86-64): the packages are installed without a check of their hashes."
    fi
    if ! "${pip[@]}" "${arguments[@]}"; then
        say "The packages of ${arguments[*]} could not be installed; pip's message is above. Check the network connection, then run the same command again to continue."
        return 2
    fi
    printf '%s' "$wanted" >"$stamp"
}
