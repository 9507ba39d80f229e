#!/bin/bash
# Installs through apt what the build needs and this machine lacks; silent when all is there. What is
# there, the compiler and the shell are asked, not dpkg: so this is right on any distribution.
# make calls it with CXX, EIGEN, MPI and SETUP in the environment; SETUP=0 forbids installing.
set -u
missing=() required=()

has_command() { command -v "$1" > /dev/null; }
has_header() {
  local path flags=()
  for path in $EIGEN /usr/include/eigen3 /usr/local/include/eigen3; do flags+=(-isystem "$path"); done
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" |
    $CXX -x c++ "${flags[@]}" -fsyntax-only - 2> /dev/null
}
# want PACKAGE WHY TEST...: one target cannot do without it.    need ...: nothing can.
want() {
  "${@:3}" && return 1
  missing+=("$1")
  printf 'missing: %-20s %s\n' "$1" "$2"
}
need() { want "$@" && required+=("$1"); }

need g++                "compiles everything" has_command "${CXX##* }"  # of "ccache g++": g++
need libeigen3-dev      "matrix products on the CPU" has_header Eigen/Core
need nlohmann-json3-dev "checkpoints and metrics" has_header nlohmann/json.hpp
need libcli11-dev       "the command line of gradus" has_header CLI/CLI.hpp
need libxxhash-dev      "checksums in checkpoints" has_header xxhash.h
need libsentencepiece-dev "tokenizers" has_header sentencepiece_trainer.h
need libgtest-dev       "the tests" has_header gtest/gtest.h
want libbenchmark-dev   "make bench" has_header benchmark/benchmark.h
[ "${MPI:-}" = 0 ] ||
  want libopenmpi-dev   "ranks as processes, through MPI" has_command mpicxx
want pkg-config         "programs that use an installed gradus" has_command pkg-config
want bible-kjv          "the text that make train learns by default" has_command bible
((${#missing[@]})) || exit 0

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
if [ "$SETUP" != 0 ] && has_command apt-get && has_command ${sudo:-true}; then
  echo "installing them: ${sudo:+$sudo }apt-get install ${missing[*]}   (SETUP=0 forbids it)"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120"
  # A foreign package source that does not answer fails the update, but need not fail the installation.
  { $apt update; $apt install -y --no-install-recommends "${missing[@]}"; } &> "$log" && exit 0
  tail -n 20 "$log"
fi
echo "not installed: ${missing[*]}   (on Debian and Ubuntu: apt-get install ${missing[*]})"
((${#required[@]} == 0)) || { echo "error: the build needs ${required[*]}"; exit 1; }
