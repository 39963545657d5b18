#!/usr/bin/env bash
# Installs what greenscope needs on a Debian machine, and says so; does nothing where it is there.
#
#   deploy/host/setup.sh agent    .venv: greenscope and the tracer's needs (make demo)
#   deploy/host/setup.sh dev      .venv: the same, the collector, test and lint tools (make test)
#   deploy/host/setup.sh target   .venv-target: gevent, cffi (for its libuv loop) and packages with
#                                 other hubs: what demo and test targets run with
#
# What only tracing needs (bcc, kernel headers) may stay missing where we are not root: it is said
# here, and `greenscope doctor` says it again. Exit code 7 (docs/exit-codes.md): something without
# which not even that works is missing, and we may not install it.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly PYTHON=/usr/bin/python3
readonly EXIT_PERMISSION=7

say() { printf 'setup: %s\n' "$*"; }

have_headers() {
    compgen -G '/usr/src/linux-headers-6.*/include/generated/autoconf.h' >/dev/null ||
        compgen -G '/lib/modules/6.*/build/include/generated/autoconf.h' >/dev/null ||
        [[ -n ${BCC_KERNEL_SOURCE:-} ]]
}

# Debian packages that are missing, one a line. Asked of the file system, not of dpkg: quick
# enough for every call, and right where something was installed in another way.
missing_packages() {
    [[ -x $PYTHON ]] || echo python3
    compgen -G '/usr/lib/python3*/ensurepip/__init__.py' >/dev/null || echo python3-venv
    if [[ $1 != target ]]; then
        [[ -e /usr/lib/python3/dist-packages/bcc/table.py ]] || echo python3-bpfcc
        have_headers || echo "linux-headers-$(dpkg --print-architecture 2>/dev/null)"
    fi
    if [[ $1 == dev ]]; then # the probes' headers are also compiled and tested on the host
        command -v gcc >/dev/null || echo gcc
        [[ -e /usr/include/stdio.h ]] || echo libc6-dev
    fi
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages "$1")
    ((${#packages[@]})) || return 0
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        say "missing: ${packages[*]}" >&2
        say "install them as root: apt-get install ${packages[*]}" >&2
        case " ${packages[*]} " in
        *' python3 '* | *' python3-venv '*) exit "$EXIT_PERMISSION" ;;
        *) return 0 ;;
        esac
    fi
    say "apt-get install ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends "${packages[@]}" </dev/null >/dev/null
}

# make_venv DIRECTORY STAMP_TEXT VENV_OPTIONS -- PIP_ARGUMENTS
# The stamp holds what was asked for, so that a change of it (and nothing else) installs again.
make_venv() {
    local directory=$1 wanted=$2 options=()
    shift 2
    while [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    [[ -x $directory/bin/python && $(cat "$directory/.stamp" 2>/dev/null) == *"$wanted"* ]] && return
    say "$directory: pip install $*"
    [[ -x $directory/bin/python ]] || "$PYTHON" -m venv "${options[@]}" "$directory"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null
    printf '%s\n' "$wanted" >>"$directory/.stamp"
}

fingerprint() { sha256sum "$@" | sha256sum | cut -c1-16; }

main() {
    local what=${1:-agent}
    install_packages "$what"
    case $what in
    agent | dev)
        local extras=agent sums
        [[ $what == dev ]] && extras=agent,collector,dev
        sums=$(fingerprint pyproject.toml)
        # "dev" holds "agent": its stamp says both.
        local stamp="agent $sums"
        [[ $what == dev ]] && stamp="dev agent $sums"
        # bcc is Debian's python3-bpfcc: the environment has to see the system's packages.
        make_venv .venv "$stamp" --system-site-packages -- --editable ".[$extras]"
        ;;
    target)
        make_venv .venv-target "target 3" -- 'gevent>=24.2,<27' 'greenlet>=3.0,<4' \
            'cffi>=1.16,<3' 'eventlet>=0.36,<1' 'sqlalchemy>=2.0,<3'
        ;;
    *)
        say "usage: $0 agent|dev|target" >&2
        exit 2
        ;;
    esac
}

main "$@"
