#!/bin/bash
# Finds what this machine has, prints it on one screen (stderr) and writes it as make variables
# (stdout). make calls it with the choices CXX NVCC MARCH CUDA CUDA_ARCH NCCL MPI EIGEN SAN TSAN in the
# environment; an empty one means: look. What a program prints gets into a flag only where it
# matched a pattern as a whole.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() { printf 'error: %s\n' "$*" >&2; exit 1; }
say() { printf '  %-10s %-62s %s\n' "$1" "$2" "$3" >&2; }  # part, what was found, variable
has_command() { command -v "$1" > /dev/null; }
matching() { grep -xE -e "$1"; }
# The program in "ccache g++".
program() { tr ' ' '\n' <<< "$1" | grep -vxE 'ccache|sccache|distcc|' | head -n 1; }
# compiles CODE FLAGS...: does it compile and link? Errors go to $work/log.
compiles() {
  $CXX -x c++ -std=c++20 - "${@:2}" -o "$work/probe" <<< "$1" &> "$work/log"
}
# The file that #include <$1> finds, given FLAGS.
header() { $CXX -x c++ -std=c++20 -M "${@:2}" - <<< "#include <$1>" 2> /dev/null | grep -oE "/[^ ]*/$1" | head -n 1; }

includes=() libraries=()
cxx=$(program "$CXX") nvcc=$(program "$NVCC")
for choice in CUDA NCCL MPI SAN TSAN; do
  [[ ${!choice} =~ ^[01]?$ ]] || die "$choice=${!choice}: it can be 0 or 1"
done
echo "what this machine has, and the make variable that changes it:" >&2

# ---- Compiler ------------------------------------------------------------------------------------
has_command "$cxx" || die "there is no compiler '$cxx': install g++, or name another with CXX="
gcc=$($CXX -x c++ -E -P - <<< 'gcc __clang__ __GNUC__' | matching 'gcc __clang__ [0-9]+' | cut -d ' ' -f 3)
((${gcc:-11} >= 11)) ||
  die "the compiler '$cxx' is g++ $gcc, needed is g++ 11 or newer; if there is one: make CXX=g++-11"
compiles 'int main() {}' -fopenmp "-march=$MARCH" ||
  die "'$CXX -std=c++20 -fopenmp -march=$MARCH' builds no program: $(< "$work/log")"

# g++ 12 with AVX-512 takes the constant {1, 1, 0, 0}, copied in a loop, for {1, 1, 1, 1}: it looks at
# the numbers before the zeros at the end alone. Copies of 16 bytes do not take that path.
wrong_constants() {
  compiles '#include <vector>
    __attribute__((noinline)) double last(const std::vector<double>& v) { return v.back(); }
    int main(int n, char**) {
      double sum = 0;
      for (int i = 0; i < n + 1; ++i) sum += last({1, 1, 1, 1, 0, 0, 0, 0}) + last({1, 1, 0, 0});
      return sum != 0;
    }' -O3 "-march=$MARCH" "$@" && ! "$work/probe"
}
copies=
if wrong_constants; then
  copies="-mmove-max=128 -mstore-max=128"
  ! wrong_constants $copies ||
    die "the compiler '$cxx' miscompiles constants with -march=$MARCH; use another, or MARCH=x86-64-v3"
fi
say compiler "$($cxx --version | head -n 1), -march=$MARCH" "CXX= MARCH="

# ---- Headers -------------------------------------------------------------------------------------
for path in $EIGEN /usr/include/eigen3 /usr/local/include/eigen3; do
  [ -e "$path/Eigen/Core" ] && { includes+=("$path"); break; }
done
eigen=$(header Eigen/Core "${includes[@]/#/-I}")
[ -n "$eigen" ] || die "Eigen is missing: install libeigen3-dev, or name its folder with EIGEN="
say Eigen "$eigen" EIGEN=

train_libs="-lsentencepiece_train -lsentencepiece"
compiles '#include <sentencepiece_trainer.h>
  int main() { return sentencepiece::SentencePieceTrainer::Train("").ok(); }' $train_libs ||
  die "SentencePiece is missing, or does not link: install libsentencepiece-dev; $(< "$work/log")"
say tokenizers "$(header sentencepiece_trainer.h)" ""

bench_libs=
benchmark=$(header benchmark/benchmark.h)
if [ -n "$benchmark" ] && compiles 'int main() {}' -lbenchmark; then
  bench_libs=-lbenchmark
  say benchmark "$benchmark" ""
else
  say benchmark "not found: make bench needs Google Benchmark" ""
fi

# ---- CUDA ----------------------------------------------------------------------------------------
# gencode WANTED...: as flags, the architectures that nvcc knows of those that are wanted.
gencode() {
  local known dropped=() arch flags=
  known=$($nvcc --list-gpu-arch | matching 'compute_[0-9]+' | cut -d _ -f 2 | paste -sd ' ')
  for arch in "$@"; do
    [[ $arch =~ ^[0-9]+[af]?$ ]] || die "CUDA_ARCH=$arch: an architecture looks like 80 or 90a"
    [ "$arch" != 90 ] || arch=90a  # wgmma and TMA are in 90a alone
    if [[ " $known " == *" ${arch%[af]} "* ]]; then
      flags+=" -gencode arch=compute_$arch,code=sm_$arch"
    else
      dropped+=("$arch")
    fi
  done
  [ -n "$flags" ] || die "nvcc compiles for none of CUDA_ARCH=$*; it knows $known"
  ((${#dropped[@]} == 0)) || say "" "left out: ${dropped[*]}, nvcc does not know it" CUDA_ARCH=
  echo "$flags"
}

gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
cuda=0 flags=
if [ "$SAN" = 1 ] || [ "$TSAN" = 1 ]; then
  [ "$SAN$TSAN" != 11 ] || die "SAN=1 and TSAN=1 exclude each other: they are two builds"
  [ "$CUDA" != 1 ] || die "SAN=1 and TSAN=1 instrument the CPU build: they go without CUDA=1"
  say CUDA "off: SAN=1 and TSAN=1 instrument the CPU build" "SAN= TSAN="
elif [ "$CUDA" = 0 ]; then
  say CUDA "off: CUDA=0" "CUDA=0|1"
elif ! has_command "$nvcc"; then
  [ "$CUDA" != 1 ] || die "CUDA=1, but there is no '$nvcc': install the CUDA toolkit, or name it with NVCC="
  say CUDA "off: there is no $nvcc" "CUDA=0|1 NVCC="
elif [ "$CUDA" != 1 ] && [ "$gpus" = 0 ]; then
  say CUDA "off: nvcc is here, but no GPU (CUDA=1 builds anyway)" "CUDA=0|1"
else
  cuda=1
  here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null |
    matching '[0-9]+\.[0-9]' | tr -d . | sort -u)
  flags=$(gencode ${CUDA_ARCH:-${here:-90a}}) || exit
  root=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
  for path in "$root" "$root/targets/x86_64-linux" /usr; do
    [ -e "$path/include/cuda_runtime.h" ] && { includes+=("$path/include"); break; }
  done
  for path in "$root/lib64" "$root/targets/x86_64-linux/lib"; do
    [ -e "$path/libcudart.so" ] && { libraries+=("-L$path" "-Wl,-rpath,$path"); break; }
  done
  libraries+=(-lcublasLt -lcudart)
  echo '__global__ void kernel() {}  int main() { kernel<<<1, 1>>>(); }' > "$work/probe.cu"
  { $nvcc -std=c++20 $flags -ccbin "$cxx" -c "$work/probe.cu" -o "$work/probe.o" &&
    $CXX "$work/probe.o" "${libraries[@]}" -o "$work/probe"; } &> "$work/log" ||
    die "$nvcc with $cxx builds no C++20 program (CUDA=0 goes without): $(< "$work/log")"
  say CUDA "$($nvcc --version | grep -oE 'V[0-9.]+'), $root, GPUs here: $gpus" "CUDA=0|1 NVCC="
  say "GPU code" "$(grep -oE 'sm_[0-9a-f]+' <<< "$flags" | paste -sd ' ')" CUDA_ARCH=
fi

# ---- Communication -------------------------------------------------------------------------------
# optional NAME HEADER CODE FLAGS...: looks for a library as its variable NAME says; sets $found.
optional() {
  local name=$1 choice=${!1}
  found=0
  if [ "$choice" = 0 ]; then
    say "$name" "off: $name=0" "$name=0|1"
  elif compiles "#include <$2>"$'\n'"$3" "${@:4}"; then
    found=1
    say "$name" "$(header "$2" "${@:4}")" "$name=0|1"
  elif [ "$choice" = 1 ]; then
    die "$name=1, but a program that uses $2 does not link: $(< "$work/log")"
  else
    say "$name" "not found" "$name=0|1"
  fi
}

nccl=0
if [ $cuda = 1 ]; then
  optional NCCL nccl.h 'int main() { int v; ncclGetVersion(&v); }' \
    "${includes[@]/#/-I}" "${libraries[@]}" -lnccl
  nccl=$found
  [ $nccl = 0 ] || libraries+=(-lnccl)
elif [ "$NCCL" = 1 ]; then
  die "NCCL=1 needs the CUDA build: CUDA=1"
else
  say NCCL "off: it comes with CUDA" "NCCL=0|1"
fi

mpi_flags=($({ mpicxx --showme:compile; mpicxx --showme:link; } 2> /dev/null | tr ' ' '\n' |
  matching '-(I|L|l)[A-Za-z0-9/._+-]+' | grep -vx -e -lmpi_cxx))
optional MPI mpi.h 'int main() { MPI_Finalize(); }' -DOMPI_SKIP_MPICXX "${mpi_flags[@]}"
mpi=$found
if [ $mpi = 1 ]; then
  for flag in "${mpi_flags[@]}"; do
    case $flag in -I*) includes+=("${flag#-I}") ;; *) libraries+=("$flag") ;; esac
  done
fi

cat << END
CUDA := $cuda
NCCL := $nccl
MPI := $mpi
GENCODE :=$flags
CXX_PROGRAM := $cxx
FOUND_INCLUDES := ${includes[*]}
FOUND_LIBS := -Wl,--as-needed ${libraries[*]}
TRAIN_LIBS := $train_libs
BENCH_LIBS := $bench_libs
COPIES := $copies
END
