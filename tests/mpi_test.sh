#!/bin/bash
# Ranks as processes: the tests of the communicator, the end of a training step and the parity of steps under
# mpirun, and how a run ends when one of them fails.
program=$1/run_tests
skip() { echo "$*"; exit 77; }
command -v mpirun > /dev/null || skip "there is no mpirun: install openmpi-bin"
mpirun --version | grep -q 'Open MPI' || skip "the options below are those of Open MPI"
ldd "$program" | grep -q libmpi || skip "built without MPI"

bad=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
flags=(--oversubscribe)
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
export OMPI_MCA_btl_vader_single_copy_mechanism=none  # a container may forbid to read another's memory
# run SECONDS PROCESSES FILTER: what it prints in $log, its exit status in $status.
run() {
  timeout "$1" mpirun "${flags[@]}" -n "$2" "$program" --gtest_color=no --gtest_filter="$3" &> "$log"
  status=$?
}
fail() { echo "$*, exit status $status:"; cat "$log"; bad=1; }

# The layouts of the parity matrix that have so many ranks, with two micro-batches.
parity=([2]='ParityMatrix.*dp2_tp1*_m2*:ParityMatrix.*dp1_tp2*_m2*'
        [4]='ParityMatrix.*dp4_tp1*_m2*:ParityMatrix.*dp2_tp2*_m2*:ParityMatrix.*dp1_tp4*_m2*')
for n in 2 4; do
  filter="Communicator.*:Collectives.BackwardIsTheTranspose:Finalize.A1*:${parity[$n]}"
  run 120 $n "$filter"
  ((status == 0)) || fail "mpirun -n $n $filter"
  passed=$(grep -c '^\[  PASSED  \] [1-9]' "$log")
  ((passed == n)) || fail "$passed of $n processes say that they passed"
  echo "$n processes: $(grep -m 1 '^\[  PASSED  \]' "$log")"
done

# ends TEST PATTERN...: it fails soon, and says why.
ends() {
  run 30 2 "MpiEnds.$1"
  ((status != 0 && status != 124)) || fail "MpiEnds.$1 did not fail within 30 s"
  local pattern
  for pattern in "${@:2}"; do
    grep -qE -e "$pattern" "$log" || fail "MpiEnds.$1: no '$pattern' in its output"
  done
}
ends AnException "rank 1: no more"
ends AKilledProcess "rank 1 .*Killed"
ends OneThatDoesNotCome "rank 0: has waited for 1 s in all_reduce of \(3,\) f32, call 1 of world of ranks 0, 1; not there: rank 1"
ends BothSendFirstAndStrictly "rank [01]: has waited for 1 s in send of \(5,\) f32, the other end being rank [01] \(tag 0\)"
exit $bad
