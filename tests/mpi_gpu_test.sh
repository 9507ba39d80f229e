#!/bin/bash
# Ranks as processes with GPUs, which talk through NCCL: collectives, training at several layouts against one
# rank on the CPU, processes that die or hang, and what goes on from their last checkpoint. Where there are fewer
# GPUs than processes they share one (parallel/gpu_group.h).
program=$(realpath "$1/run_tests")
[ -x "$program" ] || program=$(realpath "$1/parallel_tests")
. tests/shell/gradus.sh "$1"
skip() { echo "$*"; exit 77; }
libraries=$(ldd "$gradus")
for library in libnccl libmpi; do [[ $libraries == *$library* ]] || skip "built without $library"; done
mpirun --version 2> /dev/null | grep -q 'Open MPI' || skip "there is no mpirun of Open MPI"
gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
((gpus > 0)) || skip "there is no GPU"

export OMPI_MCA_btl_vader_single_copy_mechanism=none  # a container may forbid to read another's memory
export NCCL_DEBUG=WARN
flags=(--oversubscribe)
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
place=()
if ((gpus < 2)); then
  export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
  place=(bash -c 'export NCCL_HOSTID=process_$OMPI_COMM_WORLD_RANK; exec "$@"' process)
fi
# two SECONDS [OPTION_OF_MPIRUN...] -- PROGRAM ARGUMENT...: on two processes, as run does.
two() {
  local seconds=$1 options=() start=$SECONDS
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  out=$(timeout -k 5 "$seconds" mpirun "${flags[@]}" "${options[@]}" -n 2 "${place[@]}" "${@:2}" 2>&1 < /dev/null)
  status=$?
  took=$((SECONDS - start))
}
# done_with TEXT: what this script has behind it, and when.
done_with() { echo "$SECONDS s: $*"; }
# ended PATTERN...: within 30 s, and it says why.
ended() {
  ((took < 30)) || { echo "it took $took s to end"; bad=1; }
  expect "$status" "$@"
}

# ---- Each collective and its transpose, bit by bit or to 1e-12; and how they end.
two 100 -- "$program" --gtest_color=no --gtest_filter='NcclGroup.*:Collectives.BackwardIsTheTranspose'
expect 0
((bad)) || [ "$(grep -c '^\[  PASSED  \] 7 tests' <<< "$out")" = 2 ] || { echo "not two times 7 tests: $out"; bad=1; }
done_with "collectives between two processes"
ends() { two 60 "${@:2}" -- "$program" --gtest_filter="MpiEnds.$1"; }
ends AGpuProcessThatIsKilled
ended "rank 1 .*Killed"
ends AGpuProcessThatIsKilled --enable-recovery  # mpirun looks on: the other process notices by itself
ended "rank 0: .*world of ranks 0, 1.*(NCCL says|another rank has died)"
ends AGpuProcessThatDoesNotCome
ended "rank 0: .*all_reduce of \(1000,\) f32, call 2, runs for 5 s on the device: another rank has died"
done_with "processes that die or hang are noticed"

# ---- Training. Gradients are those of one step, unclipped and without memory.
for i in {1..200}; do echo "$i: the cat sat on the mat, and dog $((i * 7 % 13)) ran away"; done > text.txt
tiny=(--text text.txt --model llama-tiny --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 48 --length 16
      --batch 8 --dropout 0.1 --threads 1 --eval-every 0 --save-every 0 --sample 0)
steps=("${tiny[@]}" --dtype f64 --steps 3)
gradients=("${tiny[@]}" --steps 1 --beta1 0 --beta2 0 --clip 0)
train() { two 60 -- "$gradus" train --device cuda "$@"; expect 0 "^validation loss .*, checkpoint"; }

# losses DIRECTORY: a line "step loss" for each of its steps. both LEFT RIGHT: "step left right".
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([^,]+),.*/\1 \2/p' "$1/metrics.jsonl" | sort; }
both() { join <(losses "$1") <(losses "$2"); }
# same_losses LEFT RIGHT BOUND: in the steps that both have taken, at least one, to that relative difference.
same_losses() {
  both "$1" "$2" | awk -v bound="$3" '
    { d = $2 > $3 ? $2 - $3 : $3 - $2; n += 1; bad += !(d <= bound * $2) }
    END { exit !(n > 0 && bad == 0) }' && return
  echo "$1 and $2 have other losses:"; both "$1" "$2"; bad=1
}
agree() { run diff "$1" "$2" "${@:3}" --only-failures; expect 0 "they agree"; }

run train "${steps[@]}" --device cpu --out one
expect 0
i=0
for layout in "--dp 2" "--dp 2 --zero" "--tp 2" "--tp 2 --sp"; do
  train "${steps[@]}" --out two$((++i)) $layout
  same_losses one two$i 1e-12
  agree one two$i --kind parameters --bound 1e-9
  done_with "f64, $layout: the losses and parameters of one rank on the CPU after three steps"
done
for dtype in f32 bf16; do
  run train "${gradients[@]}" --dtype $dtype --device cpu --out $dtype
  expect 0
  for layout in "--dp 2 --zero" "--tp 2 --sp"; do
    train "${gradients[@]}" --dtype $dtype --out $dtype$((++i)) $layout
    agree $dtype $dtype$i
    done_with "$dtype, $layout: the gradients of one rank on the CPU within the bound of the type"
  done
done

# ---- A process is killed; the run goes on from its last checkpoint at another layout, as one that was not.
long=("${tiny[@]}" --dtype f32 --steps 100000 --warmup 0 --decay-steps 12 --save-every 2)
# signalled SIGNAL DIRECTORY OPTION...: a run of two processes, one of which gets the signal after a save.
signalled() {
  timeout 60 mpirun "${flags[@]}" -n 2 "${place[@]}" "$gradus" train "${long[@]}" --out "$dir/$2" --dp 2 --zero \
    --device cuda "${@:3}" > "$2.txt" 2>&1 < /dev/null &
  local launcher=$! start
  for _ in {1..2000}; do
    ls "$2"/step_*2/index.json &> /dev/null && break
    kill -0 $launcher 2> /dev/null || break
    sleep 0.02
  done
  start=$SECONDS
  kill "-$1" "$(pgrep -f -- "--out $dir/$2 " | tail -n 1)"  # the launchers came first
  wait $launcher
  status=$? out=$(cat "$2.txt") took=$((SECONDS - start))
}
signalled STOP stopped --patience 3 --save-every 32  # within a step: a save is waited for longer
ended "rank [01]: .*(has waited for|runs for) [0-9.]+ s"
done_with "a training process was stopped: the other one ended the run $took s later"
signalled KILL killed
ended "rank [01] .*Killed"
[ "$status" != 0 ] || { echo "a run of one rank goes on: $out"; bad=1; }
grep -E '^rank [01]: ' killed.txt || echo "the other process was ended before it said anything"
done_with "a training process was killed: mpirun ended the run $took s later"
saved=$(ls killed | sed -nE 's/^step_0*([0-9]+)$/\1/p' | sort -n | tail -n 1)
last=$((saved + 2))
cp -r killed killed_one
two 60 -- "$gradus" train --resume --out killed --dp 1 --tp 2 --sp --zero=false --stop-at $last --device cuda
expect 0 "stopped at step $last "
run train --resume --out killed_one --dp 1 --zero=false --stop-at $last --device cuda
expect 0 "stopped at step $last "
run train "${long[@]}" --device cpu --out whole --stop-at $last
expect 0
# Of f32: 1e-5 is 84 ε, where one gradient has up to 64 ε.
same_losses whole killed 1e-5
same_losses whole killed_one 1e-5
done_with "resumed from step $saved at other layouts: the losses of a run that was not interrupted"
exit $bad
