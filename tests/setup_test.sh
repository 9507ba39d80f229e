#!/bin/bash
# What the set-up decides, on machines that are made up: programs in a folder that stands first on PATH
# pretend to be a compiler, an nvcc, a GPU or a package manager.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/shell/expect.sh

fake() { printf '#!/bin/bash\n%s\n' "$2" > "$dir/$1"; chmod +x "$dir/$1"; }
unfake() { rm -f "${@/#/$dir/}"; }
# run SCRIPT CHOICE=VALUE...: its output in $out, its exit status in $status.
run() {
  local script=$1
  shift
  out=$(env PATH="$dir:$PATH" CXX=g++ NVCC=nvcc MARCH=native CUDA= CUDA_ARCH= NCCL=0 MPI=0 EIGEN= SAN= TSAN= \
            SETUP=1 "$@" "core/setup/$script" 2>&1)
  status=$?
}

# B8: a compiler that is too old, before anything else.
fake g++ 'echo "gcc __clang__ 9"'
run configure.sh CUDA=0
expect 1 "g\+\+ 9, needed is g\+\+ 11"
unfake g++

# A CPU build has no flag of CUDA.
run configure.sh CUDA=0
expect 0 "CUDA .* off: CUDA=0" "^CUDA := 0$" "^GENCODE :=$" "Eigen .*EIGEN=" "MPI .*off.*MPI="
run configure.sh CUDA=maybe
expect 1 "CUDA=maybe: it can be 0 or 1"
run configure.sh CUDA=1 NVCC=no_such_nvcc
expect 1 "no 'no_such_nvcc'.*NVCC="
run configure.sh CUDA=0 NCCL=1
expect 1 "NCCL=1 needs .*CUDA=1"
run configure.sh CUDA=1 SAN=1
expect 1 "SAN=1"
run configure.sh SAN=1 TSAN=1
expect 1 "TSAN=1 exclude each other"

# B1: architectures. This nvcc knows two, and builds nothing: all is said before it is asked to.
fake nvcc 'case $* in
  --list-gpu-arch) printf "compute_80\ncompute_90\nwarning: noise -o /etc/passwd\n" ;;
  *) echo "would build: $*"; exit 1 ;;
esac'
run configure.sh CUDA=1 CUDA_ARCH="70 100"
expect 1 "none of CUDA_ARCH=70 100; it knows 80 90$"
run configure.sh CUDA=1 CUDA_ARCH="80 90 100"
expect 1 "left out: 100" "would build: .*compute_80,code=sm_80 .*compute_90a,code=sm_90a -ccbin"
run configure.sh CUDA=1 CUDA_ARCH='80;x'
expect 1 "CUDA_ARCH=80;x: an architecture looks like"
fake nvidia-smi 'case $* in
  -L) echo "GPU 0: Made Up (UUID: x)" ;;
  *) printf "8.0\n8.0\nNo devices -I/tmp\n" ;;
esac'
run configure.sh
expect 1 "would build: -std=c\+\+20 -gencode arch=compute_80,code=sm_80 -ccbin"
unfake nvidia-smi
run configure.sh CUDA=1
expect 1 "would build: -std=c\+\+20 -gencode arch=compute_90a,code=sm_90a -ccbin"
unfake nvcc

# Packages: installed by apt where allowed, named where not, nothing said when all is there.
fake apt-get 'echo "$*" >> "$(dirname "$0")/calls"'
fake sudo '"$@"'
fake compiler 'exit 1'  # finds no header
run packages.sh CXX="ccache compiler"
expect 0 "missing: libeigen3-dev +matrix products" "apt-get install libeigen3-dev .*libgtest-dev"
grep -q "install -y .*libeigen3-dev" "$dir/calls" || { echo "apt-get was not called"; bad=1; }
rm -f "$dir/calls"
run packages.sh CXX=compiler SETUP=0
expect 1 "not installed: libeigen3-dev" "the build needs libeigen3-dev"
[ ! -e "$dir/calls" ] || { echo "SETUP=0 called apt-get"; bad=1; }
fake compiler 'exit 0'  # finds all of them
fake pkg-config ''
fake bible ''
run packages.sh CXX=compiler
expect 0
[ -z "$out" ] || { echo "nothing is missing, but it says: $out"; bad=1; }
fake mpicxx ''
run packages.sh CXX=compiler MPI=
expect 0
[ -z "$out" ] || { echo "MPI is there, but it says: $out"; bad=1; }
exit $bad
