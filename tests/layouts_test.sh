#!/bin/bash
# The program on many ranks: the same numbers in every layout, resumed at another one, ended by the failure
# of one rank, compared by gradus diff.
. tests/shell/gradus.sh "$1"

for i in {1..200}; do echo "$i: the cat sat on the mat, and dog $((i * 7 % 13)) ran away"; done > text.txt
tiny=(--text text.txt --model llama-tiny --layers 1 --width 16 --heads 4 --kv-heads 2 --ffn 24 --length 16
      --batch 8 --dropout 0.1 --device cpu --threads 1 --dtype f64 --steps 12 --save-every 6
      --eval-every 6)

# Two layouts: one log, one set of files, the same numbers.
run train "${tiny[@]}" --out one --sample 8
expect 0 "checkpoint one/step_00000012"
loss=$(sed -nE 's/^validation loss ([0-9.]+), .*/\1/p' <<< "$out")
sample=$(sed -n '/^sample/{n;p}' <<< "$out")
run train "${tiny[@]}" --out four --sample 8 --ranks 4 --tp 2 --sp --zero --micro-batch 2
expect 0 "ranks +4 = tp 2 × dp 2, sequence parallel, ZeRO-1; a micro-batch of a data rank has 2 windows" \
  "rank 3: tp 1, dp 1; cpu, .* parameters, .* with gradients" "^validation loss ${loss:-none}, checkpoint four"
[ "$(sed -n '/^sample/{n;p}' <<< "$out")" = "$sample" ] || { echo "another sample: $out"; bad=1; }
[ "$(grep -c '^data ' <<< "$out")" = 1 ] || { echo "more than one rank prints: $out"; bad=1; }
[ "$(wc -l < four/metrics.jsonl)" = 12 ] || { echo "more than one rank writes metrics"; bad=1; }
run diff one four --kind parameters --bound 1e-9 --only-failures
expect 0 "they agree: 0 of [0-9]+ tensors differ"
run info four --verify
expect 0 "all hashes" "optimizer.m.tokens.weight +f64 \(256, 16\)"

# Ctrl-C stops all ranks after the same step; the run goes on at another layout.
"$gradus" train "${tiny[@]}" --steps 100000 --warmup 0 --decay-steps 12 --out parts --dp 4 --zero --sample 0 > parts.txt 2>&1 < /dev/null &
pid=$!
for _ in {1..200}; do  # until it has taken a few steps, however slow the machine
  [ "$(cat parts/metrics.jsonl 2> /dev/null | wc -l)" -ge 3 ] && break
  sleep 0.02
done
kill -INT $pid
wait $pid
status=$? out=$(cat parts.txt)
expect 0 "stopped at step [0-9]+ of 100000, checkpoint parts/step_"
step=$(sed -nE 's/^stopped at step ([0-9]+) .*/\1/p' <<< "$out")
run train --resume --out parts --steps $((step + 2)) --dp 1 --tp 2 --zero=false --sample 0
expect 0 "ranks +2 = tp 2 × dp 1;" "checkpoint parts/step_"

# Gradients: those of one step, unclipped and without memory, do not depend on the layout.
gradients=("${tiny[@]}" --steps 1 --beta1 0 --beta2 0 --clip 0 --sample 0)
run train "${gradients[@]}" --out g1
run train "${gradients[@]}" --out g2 --ranks 2 --tp 2 --accumulate 4
run diff g1 g2
expect 0 "tokens.weight .* ok " "^loss .*ok" "^norm .*ok" "^targets .*must be equal  ok" "they agree"
grep -q warning: <<< "$(grep -v 'at most' <<< "$out")" && { echo "a warning: $out"; bad=1; }
run train "${gradients[@]}" --out g3 --seed 2
run diff g1 g3 --only-failures
expect 1 "DIFFERS" "moved by one place" "THEY DIFFER" "the checkpoints differ"
run diff one four
expect 0 "warning: .*--beta1 0 --beta2 0" "--clip 0"
run diff g1 one
expect 1 "step 1.*step 12"

# All layouts at once.
run train "${tiny[@]}" --check-layouts --ranks 4
expect 0 "tp 2 × dp 2, sp, zero, 2 micro-batches .* ok" "([0-9]+) of \1 layouts have the gradients"
run train "${tiny[@]}" --check-layouts --ranks 2 --accumulate 4
expect 0 "tp 2 × dp 1, sp, 4 micro-batches .* ok" "4 of 4 layouts have the gradients"
[ ! -e runs ] || { echo "--check-layouts left runs"; bad=1; }

# What does not fit is said before anything is made.
run train "${tiny[@]}" --ranks 3 --out never
expect 1 "--batch 8 .*--dp 3"
run train "${tiny[@]}" --tp 3 --out never
expect 1 "--heads 4 .*--tp 3"
run train "${tiny[@]}" --ranks 4 --tp 2 --dp 1 --out never
expect 1 "--tp 2 × --dp 1"
run train "${tiny[@]}" --micro-batch 3 --out never
expect 1 "--batch 8 .*--micro-batch 3"
run train "${tiny[@]}" --ranks 2 --optimizer muon --tp 2 --out never
expect 1 "muon .*--dp"
run train "${tiny[@]}" --ranks 2 --profile trace.json --out never
expect 1 "--profile .*one rank"
[ ! -e never ] || { echo "never should not exist"; bad=1; }

# A rank that cannot write its part ends the run, and what was saved stays.
out=$(trap '' XFSZ; ulimit -f 24; "$gradus" train --resume --out four --steps 14 --device cpu 2>&1 < /dev/null)
status=$?
expect 1 "rank [0-9].*File too large" "the newest is four/step_00000012"
run train --resume --out four --steps 14 --tp 1 --dp 1 --sp=false --zero=false --device cpu --sample 0
expect 0 "checkpoint four/step_00000014"

# Ranks as processes, where there is MPI: the same again, stopped by a signal to one of them, ended by the
# death of another.
if ldd "$gradus" | grep -q libmpi && command -v mpirun > /dev/null; then
  flags=(--oversubscribe)
  [ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
  # processes N ARGUMENT...: as run does.
  processes() {
    out=$(timeout 60 mpirun "${flags[@]}" -n "$1" "$gradus" "${@:2}" 2>&1 < /dev/null)
    status=$?
  }
  processes 4 train "${tiny[@]}" --out processes --tp 2 --sp --zero --micro-batch 2 --sample 0
  expect 0 "ranks +4 = tp 2 × dp 2" "^validation loss ${loss:-none}, checkpoint processes"
  run diff one processes --kind parameters --bound 1e-9 --only-failures
  expect 0 "they agree"
  processes 2 train "${tiny[@]}" --ranks 4 --out never
  expect 1 "--ranks 4, but 2 processes"

  # with_two SIGNAL DIRECTORY OPTION...: a run of two processes, one of which gets the signal.
  with_two() {
    timeout 60 mpirun "${flags[@]}" -n 2 "$gradus" train "${tiny[@]}" --steps 100000 --warmup 0 --out "$dir/$2" \
      --save-every 2 --sample 0 "${@:3}" > signal.txt 2>&1 < /dev/null &
    local launcher=$! one
    for _ in {1..500}; do ls "$2"/step_*2/index.json &> /dev/null && break; sleep 0.02; done
    one=$(pgrep -f -- "--out $dir/$2 " | tail -n 1)  # the launchers came first
    kill "-$1" "$one"
    wait $launcher
    status=$? out=$(cat signal.txt)
  }
  with_two TERM stopped
  expect 0 "stopped at step [0-9]+ of 100000, checkpoint $dir/stopped/step_"
  start=$SECONDS
  with_two KILL killed
  [ "$status" != 0 ] || { echo "a run of one rank goes on: $out"; bad=1; }
  ((SECONDS - start < 30)) || { echo "it took $((SECONDS - start)) s to end"; bad=1; }
  expect "$status" "rank [01] .*Killed"
  with_two STOP hanging --patience 2 --save-every 302 --eval-every 0  # within a step: a save is waited for longer
  [ "$status" != 0 ] || { echo "a run goes on with a rank that hangs: $out"; bad=1; }
  expect "$status" "rank [01]: has waited for [0-9.]+ s in .*; (not there: rank [01]|rank [01] has stopped)"
  run train --resume --out killed --steps 100000 --stop-at 4 --ranks 1 --sample 0
  expect 0 "checkpoint killed/step_"
fi
exit $bad
