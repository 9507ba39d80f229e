#!/bin/bash
# Installs through apt what the build needs and this machine lacks; does nothing when all is there.
# What is there is found by asking the compiler and the shell, so any distribution will do.
# Called by make with CXX and SETUP in the environment; SETUP=0 forbids installing.
set -u
packages=() required=()

has_command() { command -v "$1" > /dev/null; }
has_header() {
  printf '#if !__has_include(%s)\n#error\n#endif\n' "$1" |
    $CXX -x c++ -isystem /usr/include/eigen3 -fsyntax-only - 2> /dev/null
}
# need PACKAGE WHY TEST...: the build cannot do without it.   want ...: one target cannot.
want() {
  local package=$1 why=$2
  shift 2
  "$@" && return 1
  packages+=("$package")
  printf 'missing: %-20s %s\n' "$package" "$why"
}
need() { want "$@" && required+=("$1"); }

compiler=${CXX##* }  # the last word: CXX may be "ccache g++"
need g++                "compiles everything" has_command "$compiler"
need libeigen3-dev      "matrix products on the CPU" has_header '<Eigen/Core>'
need nlohmann-json3-dev "checkpoints, metrics" has_header '<nlohmann/json.hpp>'
need libcli11-dev       "the command line of gradus" has_header '<CLI/CLI.hpp>'
need libxxhash-dev      "checksums of checkpoints" has_header '<xxhash.h>'
need libgtest-dev       "the tests" has_header '<gtest/gtest.h>'
want libbenchmark-dev   "make bench" has_header '<benchmark/benchmark.h>'
want pkg-config         "programs that use an installed gradus" has_command pkg-config
want bible-kjv          "the default corpus of make train" has_command bible

((${#packages[@]})) || exit 0
if [ "${SETUP:-1}" != 0 ] && has_command apt-get; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  if [ -z "$sudo" ] || has_command sudo; then
    echo "installing: ${packages[*]}   (SETUP=0 forbids it)"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get"
    if { $apt update && $apt install -y --no-install-recommends "${packages[@]}"; } &> "$log"; then
      exit 0
    fi
    tail -n 20 "$log"
  fi
fi
echo "not installed: ${packages[*]}"
echo "  on Debian and Ubuntu: apt-get install ${packages[*]}"
((${#required[@]} == 0)) || { echo "the build needs ${required[*]}"; exit 1; }
