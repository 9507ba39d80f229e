#!/bin/bash
# How training scales over the GPUs of this machine: builds, checks, measures, prints a table.
#
#   bench/scaling.sh                              all GPUs that are here
#   bench/scaling.sh --gpus 2 --torch bench.py    with PyTorch's DDP, by a program with the options and JSON
#                                                 keys of bench/gpt_step_torch.py that torchrun can start
#   bench/scaling.sh --device cpu --gpus 4        small models on rank threads of this CPU: a check of itself
#   bench/scaling.sh --part parity|data|tensor    one part; --out FILE: where the JSON lines go
#   bench/scaling.sh --sizes gpt2-124m:64         models of part 2 and sequences a GPU
#
# 1  parity   one step of a small GPT and a small BERT in f32 and bf16, in all layouts that fit the GPUs: tensor
#             × data parallel, with and without sequence parallelism and ZeRO-1. The gradients are within the
#             bounds of train/consistency.h of those of one GPU, or this fails.
# 2  data     GPT-2 124M, 64 sequences a GPU, and 350M, 16, on 1, 2, 4 … GPUs, without and with ZeRO-1
# 3  tensor   Llama 1.1B, 8 sequences of 2048, cut over 2 (and 4) GPUs with sequence parallelism
#
# Efficiency is tokens/s over those of one GPU times the GPUs, both of this run. A GPU that is warm, or has its
# neighbours at work, is slower than a cold one alone, so each model is measured on one GPU twice: alone, and
# with the same training, by itself, on every other GPU meanwhile ("beside").
# "exposed" is how long a step's stream waits for other ranks; what is hidden behind kernels is not in it.
set -u -o pipefail
cd "$(dirname "$0")/.."
gpus= torch= device=cuda part=all out=build/scaling.jsonl make=make sizes=(gpt2-124m:64 gpt2-350m:16)
while (($#)); do
  case $1 in
    --gpus) gpus=$2 ;; --torch) torch=$2 ;; --device) device=$2 ;; --part) part=$2 ;; --out) out=$2 ;;
    --sizes) sizes=($2) ;;
    --build) make=$2 ;;  # what builds: "make", or ":" where it is built
    *) echo "scaling: no option $1; see the top of $0" >&2; exit 2 ;;
  esac
  shift 2
done
[ "$device" = cpu ] && b=build/cpu device_is_cpu=1 || b=build/cuda device_is_cpu=0
[ -n "$gpus" ] || { ((device_is_cpu)) && gpus=2 || gpus=$(nvidia-smi -L | grep -c '^GPU '); }
((gpus >= 1)) || { echo "scaling: no GPU here; --device cpu checks on rank threads" >&2; exit 1; }
begun=$SECONDS failed=0
mkdir -p "$(dirname "$out")"; : > "$out"
log=$(mktemp -d); trap 'rm -rf "$log"' EXIT

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - begun)); }
# value KEY: of a JSON line on stdin, a number or a text.
value() { grep -oE "\"$1\":(\"[^\"]*\"|[-0-9.e+]+|true|false)" | head -n 1 | cut -d : -f 2- | tr -d '"'; }
counts() { for ((n = 1; n < gpus; n *= 2)); do echo $n; done; echo "$gpus"; }
counts_from() { for n in $(counts); do ((n < $1)) || echo "$n"; done | sort -nu; }

# row NAME GPUS BASE LINE: a line of the table, and of the file. BASE: tokens/s of one GPU.
row() {
  local rate ms peak exposed efficiency=
  rate=$(value tokens_per_s <<< "$4") ms=$(value ms <<< "$4") peak=$(value peak_gib <<< "$4")
  exposed=$(value communication <<< "$4")
  [ -z "$3" ] || efficiency=$(awk "BEGIN { printf \"%.3f\", $rate / $3 / $2 }")
  printf '%-38s %4s %10s %12s %10s %10s %9s\n' "$1" "$2" "$ms" "$rate" "${efficiency:--}" "${exposed:--}" "$peak"
  echo "${4%\}},\"row\":\"$1\"${efficiency:+,\"efficiency\":$efficiency}}" >> "$out"
}
header() { printf '%-38s %4s %10s %12s %10s %10s %9s\n' "" GPUs ms tokens/s efficiency exposed GiB; }

# measure NAME GPUS BASE ARGS...: leaves tokens/s in $rate.
measure() {
  local name=$1 n=$2 base=$3 line
  shift 3
  rate=
  if line=$(timeout 120 "$b/bench/gpt_step" --device "$device" "${common[@]}" "$@" 2> "$log/err" | tail -n 1) && [ -n "$line" ]; then
    rate=$(value tokens_per_s <<< "$line")
    row "$name" "$n" "$base" "$line"
  else
    failed=1
    printf '%-38s %4s FAILED: %s\n' "$name" "$n" "$(tail -n 1 "$log/err")"
  fi
}
# beside NAME ARGS...: the same on every GPU by itself; the slowest counts.
beside() {
  local name=$1 i jobs=() line
  shift
  ((gpus > 1)) && ((!device_is_cpu)) || return 0
  for ((i = 0; i < gpus; ++i)); do
    timeout 120 "$b/bench/gpt_step" --device "$device:$i" "${common[@]}" "$@" > "$log/beside$i" 2> /dev/null &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  line=$(for ((i = 0; i < gpus; ++i)); do tail -n 1 "$log/beside$i"; done |
    while read -r l; do echo "$(value tokens_per_s <<< "$l") $l"; done | sort -g | head -n 1 | cut -d ' ' -f 2-)
  row "$name" 1 "" "$line"
}

# ---- 1

targets="$b/bench/gpt_step $b/gradus"
if [ "$make" != : ]; then
  say "build"
  $make $( ((device_is_cpu)) || echo CUDA=1) $targets > "$log/build" 2>&1 || { tail -n 20 "$log/build"; exit 1; }
fi

parity() {
  local model=$1 dtype=$2
  timeout 120 "$b/gradus" train --model "$model" --dtype "$dtype" --text README.md --check-layouts \
    --ranks "$gpus" --device "$device" --batch $((device_is_cpu ? 16 : 128)) --length 64 > "$log/parity" 2>&1
  local code=$?
  echo; echo "$model, $dtype"; grep -E 'rel|tp |layouts' "$log/parity" || tail -n 3 "$log/parity"
  ((code == 0)) || failed=1
  echo "{\"row\":\"parity $model $dtype\",\"gpus\":$gpus,\"agrees\":$([ $code = 0 ] && echo true || echo false)}" >> "$out"
}
if [ "$part" = all ] || [ "$part" = parity ]; then
  say "parity with one GPU"
  for model in gpt-tiny bert-tiny; do
    for dtype in f32 bf16; do parity $model $dtype; done
  done
fi

# ---- 2, 3

common=(--breakdown --steps 20 --warmup 8)
llama=(--model llama-1.1b --batch 8)
if ((device_is_cpu)); then
  common=(--breakdown --steps 3 --warmup 1 --layers 2 --dim 64 --heads 4 --vocab 256 --seq 32)
  sizes=(gpt2-124m:4) llama=(--model llama-1.1b --ffn 96 --kv-heads 2 --batch 4)
fi

# The GPUs at the temperature of a long run.
warm_up() { local out=/dev/null; beside "warming up" --model gpt2-124m --batch 64 --steps 50 > /dev/null; }

torch_row() {
  local n=$1 model=(${2//:/ }) args=() line
  [ -n "$torch" ] || return
  [ "${model[0]}" = gpt2-350m ] && args=(--layers 24 --heads 16 --dim 1024)
  line=$(timeout 200 python3 -m torch.distributed.run --standalone --nproc-per-node "$n" "$torch" --batch "${model[1]}" \
    "${args[@]}" --precision bf16_master --compile default --sdpa cudnn --steps 20 --warmup 8 2> "$log/err" |
    grep '^JSON ' | cut -c 6- | tr -d ' ')
  [ -n "$line" ] || { printf '%-38s %4s FAILED: %s\n' "PyTorch ${model[0]}" "$n" "$(tail -n 1 "$log/err")"; return; }
  [ "$n" = 1 ] && torch_base=$(value tokens_per_s <<< "$line")
  row "PyTorch DDP, compiled, ${model[0]}" "$n" "${torch_base:-}" "$line"
}

if [ "$part" = all ] || [ "$part" = data ]; then
  say "data parallel"; header
  warm_up
  for size in "${sizes[@]}"; do
    model=${size%:*} args=(--model "${size%:*}" --batch "${size#*:}") torch_base=
    measure "$model" 1 "" "${args[@]}"; base=$rate
    beside "$model, beside" "${args[@]}"
    for n in $(counts_from 2); do
      measure "$model, dp $n" "$n" "$base" "${args[@]}" --dp "$n"
      measure "$model, dp $n, ZeRO-1" "$n" "$base" "${args[@]}" --dp "$n" --zero
    done
    for n in $(counts_from 1); do torch_row "$n" "$size"; done
  done
fi
if [ "$part" = all ] || [ "$part" = tensor ]; then
  say "tensor parallel"; header
  measure "llama-1.1b" 1 "" "${llama[@]}"; base=$rate
  for n in 2 4; do
    ((n <= gpus)) || continue
    measure "llama-1.1b, tp $n, sp" "$n" "$base" "${llama[@]}" --tp "$n" --sp
    measure "llama-1.1b, tp $n" "$n" "$base" "${llama[@]}" --tp "$n"
    ((n * 2 <= gpus)) && measure "llama-1.1b, tp $n, sp, dp $((gpus / n)), ZeRO-1" "$gpus" "$base" "${llama[@]}" \
      --tp "$n" --sp --dp $((gpus / n)) --zero
  done
fi
say "JSON lines in $out"
exit $failed
