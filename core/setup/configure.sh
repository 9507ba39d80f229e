#!/bin/bash
# Finds what this machine has, prints it on one screen (stderr) and writes it as make variables
# (stdout). Called by make with CXX NVCC CUDA CUDA_ARCH NCCL MPI SAN MARCH in the environment; an
# empty one means: look. What a program prints becomes part of a flag only after a pattern matched it.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '  %-10s %-58s %s\n' "$1" "$2" "$3" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
set_make() { printf '%s := %s\n' "$1" "$2"; }
has_command() { command -v "$1" > /dev/null; }
lines() { grep -xE -e "$1" || true; }  # those that match as a whole
first() { head -n 1; }

# links CODE FLAGS...: does this program compile and link?
links() {
  local code=$1
  shift
  $CXX -x c++ -std=c++20 - "$@" -o "$work/probe" <<< "$code" &> "$work/log"
}
# The program itself, where a variable says "ccache g++".
program() { tr ' ' '\n' <<< "$1" | grep -vE '^(ccache|sccache|distcc|)$' | first; }

cxx=$(program "$CXX")
nvcc=$(program "$NVCC")
includes=() libraries=()
echo "what this machine has, and the variable of make that changes it:" >&2

# ---- The compiler ----------------------------------------------------------------------------------
has_command "$cxx" || die "no compiler: '$cxx' is not found, set CXX="
gcc=$(echo '__clang_major__ __GNUC__' | $CXX -x c++ -E -P - | lines '__clang_major__ [0-9]+' | grep -oE '[0-9]+$')
[ "${gcc:-11}" -ge 11 ] ||
  die "the compiler '$cxx' is g++ $gcc; gradus needs g++ 11 or newer, for example: make CXX=g++-11"
links 'int main() {}' -fopenmp "-march=$MARCH" ||
  die "'$CXX -fopenmp -march=$MARCH' does not link a program: $(first < "$work/log")"
say compiler "$("$cxx" --version | first), -march=$MARCH" "CXX= MARCH="

eigen=
for path in "" /usr/include/eigen3 /usr/local/include/eigen3 $(pkg-config --variable=includedir eigen3 2> /dev/null); do
  links $'#include <Eigen/Core>\nint main() {}' ${path:+-isystem "$path"} && { eigen=${path:-of the compiler}; break; }
done
[ -n "$eigen" ] || die "Eigen is not found: install libeigen3-dev, or name its folder in CPATH"
[ -d "$eigen" ] && includes+=("$eigen")
say Eigen "$eigen" CPATH=

# ---- CUDA ------------------------------------------------------------------------------------------
gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
cuda=${CUDA:-auto} why= gencode=
if [ "${SAN:-0}" = 1 ]; then
  [ "$cuda" != 1 ] || die "SAN=1 instruments the CPU build: leave CUDA=1 out"
  cuda=0 why="off: SAN=1 instruments the CPU build"
elif [ "$cuda" = 0 ]; then
  why="off: CUDA=0"
elif ! has_command "$nvcc"; then
  [ "$cuda" = auto ] || die "CUDA=1, but '$nvcc' is not found: install the CUDA toolkit, or set NVCC="
  cuda=0 why="off: no $nvcc on the PATH"
elif [ "$cuda" = auto ] && [ "$gpus" = 0 ]; then
  cuda=0 why="off: $nvcc is here, but no GPU (CUDA=1 compiles anyway)"
fi

# arches WANTED...: those that nvcc can compile for, as its -gencode flags in $gencode.
arches() {
  local listed kept=() dropped=() a base
  listed=$($nvcc --list-gpu-arch | lines 'compute_[0-9]+' | sed 's/compute_//' | tr '\n' ' ')
  for a in "$@"; do
    base=${a%[af]}
    [[ $base =~ ^[0-9]+$ ]] || die "CUDA_ARCH: '$a' is no architecture; they look like 80, 90 or 90a"
    if [[ " $listed" == *" $base "* ]]; then kept+=("${a/#90/90a}"); else dropped+=("$a"); fi
  done
  ((${#kept[@]})) || die "nvcc compiles for none of the wanted architectures: wanted $*; nvcc lists $listed"
  ((${#dropped[@]} == 0)) || say "" "left out: ${dropped[*]}, which this nvcc does not know" CUDA_ARCH=
  for a in "${kept[@]/aa/a}"; do gencode+="-gencode arch=compute_$a,code=sm_$a "; done
}

if [ "$cuda" != 0 ]; then
  root=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
  wanted=${CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null |
                        lines '[0-9]+\.[0-9]' | tr -d . | sort -u)}
  arches ${wanted:-90a}
  for path in "$root/include" "$root/targets/x86_64-linux/include"; do
    [ -e "$path/cuda_runtime.h" ] && { includes+=("$path"); break; }
  done
  for path in "$root/lib64" "$root/targets/x86_64-linux/lib"; do
    [ -e "$path/libcudart.so" ] && { libraries+=("-L$path" "-Wl,-rpath,$path"); break; }
  done
  libraries+=(-lcublasLt -lcudart)
  printf '__global__ void kernel() {}\nint main() { kernel<<<1, 1>>>(); }\n' > "$work/probe.cu"
  { $nvcc -std=c++20 $gencode -ccbin "$cxx" -c "$work/probe.cu" -o "$work/probe.o" &&
    $CXX "$work/probe.o" "${libraries[@]}" -o "$work/probe"; } &> "$work/log" ||
    die "nvcc does not compile and link a C++20 kernel (CUDA=0 builds without it): $(cat "$work/log")"
  cuda=1
  say CUDA "$("$nvcc" --version | lines 'Cuda compilation tools.*' | sed 's/.*, V/nvcc /'), $root, $gpus GPU(s)" "CUDA=0|1 NVCC="
  say "GPU code" "$(sed -E 's/-gencode arch=compute_[0-9a-f]+,code=//g' <<< "$gencode")" CUDA_ARCH=
else
  say CUDA "$why" "CUDA=0|1"
fi

# ---- Communication -----------------------------------------------------------------------------------
# optional NAME CHOICE CODE FLAGS...: sets $found to 0 or 1, by linking a program unless CHOICE is 0.
optional() {
  local name=$1 choice=$2 code=$3
  shift 3
  found=0
  [ "$choice" != 0 ] || { say "$name" "off: $name=0" "$name=0|1"; return; }
  if links "$code" "$@"; then
    found=1
    say "$name" "found" "$name=0|1"
  else
    [ "$choice" != 1 ] || die "$name=1, but a program that uses it does not link: $(first < "$work/log")"
    say "$name" "not found" "$name=0|1"
  fi
}
if [ "$cuda" = 1 ]; then
  optional NCCL "${NCCL:-}" $'#include <nccl.h>\nint main() { int v; ncclGetVersion(&v); }' \
    "${includes[@]/#/-I}" "${libraries[@]}" -lnccl
  nccl=$found
else
  [ "${NCCL:-}" != 1 ] || die "NCCL=1 needs the CUDA build: CUDA=1"
  nccl=0
  say NCCL "off: it needs CUDA" "NCCL=0|1"
fi
[ "$nccl" = 0 ] || libraries+=(-lnccl)
mpi_flags=($(mpicxx --showme:compile 2> /dev/null | tr ' ' '\n' | lines '-I[A-Za-z0-9/._+-]+' )
           $(mpicxx --showme:link 2> /dev/null | tr ' ' '\n' | lines '-[Ll][A-Za-z0-9/._+-]+'))
optional MPI "${MPI:-}" $'#include <mpi.h>\nint main() { MPI_Finalize(); }' "${mpi_flags[@]}"
mpi=$found
if [ "$mpi" = 1 ]; then
  for flag in "${mpi_flags[@]}"; do
    case $flag in -I*) includes+=("${flag#-I}") ;; *) libraries+=("$flag") ;; esac
  done
fi

set_make CUDA "$cuda"
set_make NCCL "$nccl"
set_make MPI "$mpi"
set_make GENCODE "$gencode"
set_make CXX_PROGRAM "$cxx"
set_make FOUND_INCLUDES "${includes[*]}"
set_make FOUND_LIBS "-Wl,--as-needed ${libraries[*]}"
