#!/bin/bash
# How training scales over the GPUs of this machine: builds, checks, measures, prints a table.
#
#   bench/scaling.sh                              all GPUs that are here
#   bench/scaling.sh --gpus 2 --torch bench.py    with PyTorch's DDP, by a program with the options and JSON
#                                                 keys of bench/gpt_step_torch.py that torchrun can start
#   bench/scaling.sh --device cpu --gpus 8        small models on rank threads of this CPU: a check of itself,
#                                                 half a minute on two cores once it is built; its
#                                                 efficiency means nothing
#   bench/scaling.sh --part parity                one part: parity, data, tensor or torch
#   bench/scaling.sh --sizes "gpt2-124m:64"       models of parts 2 and 4, and sequences a GPU
#   bench/scaling.sh --out FILE                   where the JSON lines go, one a row of the tables
#   bench/scaling.sh --build :                    what builds instead of make: here nothing, it is built
#
# Paths are from the root of the project. Exit code 1 if a row fails or gradients differ.
#
# 1  parity   one step of a small GPT and a small BERT in f32 and bf16, in all layouts of 2, 4, 8 … ranks: tensor
#             × data parallel, with and without sequence parallelism and ZeRO-1. The gradients are within the
#             bounds of train/consistency.h of those of one GPU, or this fails.
# 2  data     GPT-2 124M, 64 sequences a GPU, and 350M, 16, on 1, 2, 4 … GPUs with ZeRO-1; on all without, too
# 3  tensor   Llama 1.1B, 8 sequences of 2048, cut over 2 (and 4) GPUs with sequence parallelism
# 4  torch    the models of part 2 in PyTorch, on one GPU, on all, then on the counts between
#
# Efficiency is tokens/s over those of one GPU times the GPUs, both of this run: of the first GPU alone, and "of
# beside". A GPU that is warm, or has its neighbours at work, is slower than a cold one alone, and GPUs are not
# alike, so each model is also trained on every GPU at once, on each by itself ("beside"); its slowest counts.
# "exposed" is how long, in ms, a step's stream waits for other ranks; what is hidden behind kernels is not in it.
# It is that of the rank that waits least: the others wait for slower GPUs, too. The file has it of all ranks.
#
# Time: on 8 GPUs, part 1 has 96 layouts, parts 2 and 3 have 19 rows, part 4 has 8; allow 15 s for a row. PyTorch
# compiles each model for a minute or more, for one GPU and for several: that is begun first of all and goes on
# beside the build and part 1. Where the time is limited, run part by part: what is built and compiled stays.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
gpus='' torch='' device=cuda part=all out=build/scaling.jsonl make=make sizes=()
while (($#)); do
  case $1 in
    --gpus) gpus=$2 ;; --torch) torch=$2 ;; --device) device=$2 ;; --part) part=$2 ;; --out) out=$2 ;;
    --sizes) read -ra sizes <<< "$2" ;; --build) make=$2 ;;
    *) echo "scaling: no option $1; see the top of $0" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $part =~ ^(all|parity|data|tensor|torch)$ ]] || { echo "scaling: no part $part; see the top of $0" >&2; exit 2; }
if [ "$device" = cpu ]; then
  b=build/cpu cuda='' batch=16 gpus=${gpus:-2}
  common=(--breakdown --steps 5 --warmup 1 --layers 2 --dim 128 --heads 8 --vocab 512 --seq 128 --threads 1)
  ((${#sizes[@]})) || sizes=(gpt2-124m:8 gpt2-350m:4)
  llama=(--model llama-1.1b --ffn 256 --kv-heads 4 --batch 8)
  small="; on the CPU, all models are of 2 layers and width 128, and GiB are those of all ranks"
else
  b=build/cuda cuda=CUDA=1 batch=128 gpus=${gpus:-$(nvidia-smi -L | grep -c '^GPU ')}
  common=(--breakdown --steps 20 --warmup 8)
  ((${#sizes[@]})) || sizes=(gpt2-124m:64 gpt2-350m:16)
  llama=(--model llama-1.1b --batch 8)
  small=''
fi
((gpus >= 1)) || { echo "scaling: no GPU here; --device cpu checks on rank threads" >&2; exit 1; }
begun=$SECONDS failed=0
mkdir -p "$(dirname "$out")"; : > "$out"
log=$(mktemp -d); trap 'rm -rf "$log"' EXIT

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - begun)); }
wanted() { [ "$part" = all ] || [ "$part" = "$1" ]; }
# counts FROM: the numbers of GPUs to measure on, from FROM = 1 or 2.
counts() { for ((n = $1; n < gpus; n *= 2)); do echo "$n"; done; ((gpus < $1)) || echo "$gpus"; }
# value KEY: of a JSON line on stdin, a number or a text.
value() { grep -oE "\"$1\":(\"[^\"]*\"|[-0-9.e+]+|true|false)" | head -n 1 | cut -d : -f 2- | tr -d '"'; }

# efficiency RATE GPUS BASE: nothing without a base.
efficiency() { [ -z "$3" ] || awk "BEGIN { printf \"%.3f\", $1 / $3 / $2 }"; }
# least KEY: of a JSON line on stdin, the smallest of a list of numbers.
least() { grep -oE "\"$1\":\[[^]]*\]" | cut -d : -f 2 | tr -d '[]' | tr , '\n' | sort -g | head -n 1; }

# row NAME GPUS BASES LINE: a line of the table, and of the file. BASES: tokens/s of one GPU, alone:beside others.
row() {
  local rate ms peak exposed alone beside
  rate=$(value tokens_per_s <<< "$4") ms=$(value ms <<< "$4") peak=$(value peak_gib <<< "$4")
  exposed=$(least exposed_ms_by_rank <<< "$4")
  IFS=: read -r alone beside <<< "$3"
  alone=$(efficiency "$rate" "$2" "$alone") beside=$(efficiency "$rate" "$2" "$beside")
  columns "$1" "$2" "$ms" "$(printf %.0f "$rate")" "${alone:--}" "${beside:--}" "${exposed:--}" "$peak"
  echo "${4%\}},\"row\":\"$1\"${exposed:+,\"exposed_ms\":$exposed}${alone:+,\"efficiency\":$alone}\
${beside:+,\"efficiency_of_beside\":$beside}}" >> "$out"
}
# fail NAME GPUS FILE: a row that is not there, and why: torchrun says much after the first Error.
fail() {
  local why
  why=$(grep -m 1 'Error: ' "$3" || tail -n 1 "$3")
  failed=1
  printf '%-38s %4s FAILED: %s\n' "$1" "$2" "${why:-no figures in time}"
}
columns() { printf '%-38s %4s %10s %12s %10s %10s %10s %9s\n' "$@"; }
header() { columns "" GPUs ms tokens/s efficiency "of beside" exposed GiB; }

# step ARGS...: prints a JSON line.
step() { timeout -k 10 120 "$b/bench/gpt_step" "${common[@]}" "$@" | tail -n 1 | grep tokens_per_s; }
# measure NAME GPUS BASES ARGS...: leaves tokens/s in $rate.
measure() {
  local name=$1 n=$2 bases=$3 line
  shift 3
  rate=''
  line=$(step --device "$device" "$@" 2> "$log/err") || { fail "$name" "$n" "$log/err"; return; }
  rate=$(value tokens_per_s <<< "$line")
  row "$name" "$n" "$bases" "$line"
}
# beside NAME ARGS...: the same on every GPU by itself; leaves tokens/s of the slowest in $rate.
beside() {
  local name=$1 i jobs=() line='' rates=()
  shift
  rate=''
  [ "$device" = cuda ] || return
  for ((i = 0; i < gpus; ++i)); do
    step --device "cuda:$i" "$@" > "$log/beside$i" 2> "$log/err$i" &
    jobs[i]=$!
  done
  for ((i = 0; i < gpus; ++i)); do
    wait "${jobs[i]}" || { fail "$name" 1 "$log/err$i"; continue; }
    rates+=("$(value tokens_per_s < "$log/beside$i") $i")
  done
  ((${#rates[@]} == gpus)) || return
  read -r rate line < <(printf '%s\n' "${rates[@]}" | sort -g)
  row "$name" 1 "" "$(cat "$log/beside$line")"
}

# torch_step GPUS MODEL:BATCH ARGS...: prints a JSON line.
torch_step() {
  local n=$1 size=$2 args=()
  shift 2
  [ "${size%:*}" = gpt2-350m ] && args=(--layers 24 --heads 16 --dim 1024)
  TORCHINDUCTOR_COMPILE_THREADS=8 timeout -k 10 300 python3 -m torch.distributed.run --standalone \
    --nproc-per-node "$n" "$torch" --batch "${size#*:}" "${args[@]}" --precision bf16_master --compile default \
    --sdpa cudnn "$@" | sed -n 's/^JSON //; T; s/": /":/g; s/, "/,"/g; p' | grep tokens_per_s
}
torch_row() {
  local n=$1 name="PyTorch DDP, compiled, ${2%:*}" line
  line=$(torch_step "$n" "$2" --steps 20 --warmup 8 2> "$log/err") || { fail "$name" "$n" "$log/err"; return; }
  ((n > 1)) || torch_base=$(value tokens_per_s <<< "$line")
  row "$name" "$n" "$torch_base" "$line"
}
# PyTorch keeps what it compiles, so that the rows find it.
compiling=()
if [ -n "$torch" ] && wanted torch; then
  for size in "${sizes[@]}"; do
    for n in $(printf '%s\n' 1 "$gpus" | uniq); do
      torch_step "$n" "$size" --steps 1 --warmup 0 &> /dev/null &
      compiling+=($!)
    done
  done
fi

if [ "$make" != : ]; then
  say "build"
  "$make" ${cuda:+"$cuda"} $b/bench/gpt_step $b/gradus > "$log/build" 2>&1 || { tail -n 20 "$log/build"; exit 1; }
fi

# ---- 1

# parity MODEL DTYPE: a line for each layout. Eight heads can be cut over 8 ranks.
parity() {
  local name="$1, $2" parts=() n
  ((gpus == 1)) || parts=(--accumulate 1)  # alone, two micro-batches are all there is to compare
  timeout -k 10 200 "$b/gradus" train --model "$1" --dtype "$2" --heads 8 --text README.md --length 64 \
    --batch $batch --check-layouts "${parts[@]}" --ranks "$gpus" --device "$device" > "$log/parity" 2>&1 || failed=1
  echo; echo "$name"; grep -E 'rel|tp |layouts' "$log/parity" || tail -n 3 "$log/parity"
  for ((n = 2; n <= gpus && n <= 8; n *= 2)); do  # a layout that does not fit is left out
    grep -q "^tp $n × dp 1, sp " "$log/parity" || { failed=1; echo "FAILED: no layout of tp $n"; }
  done
  sed -nE "s/^(tp .*[^ ]) +(\S+) +(\S+) +(\S+) +(\S+)  (ok|DIFFERS)\$/\
{\"row\":\"parity $name, \1\",\"rel\":\2,\"row_rel\":\3,\"loss_rel\":\4,\"bound\":\5,\"agrees\":\6}/
    s/ok}\$/true}/; s/DIFFERS}\$/false}/; /^\{/p" "$log/parity" >> "$out"
}
if wanted parity; then
  say "parity with one GPU"
  for model in gpt-tiny bert-tiny; do
    for dtype in f32 bf16; do parity $model $dtype; done
  done
fi
((${#compiling[@]} == 0)) || { say "waiting for PyTorch's compiler"; wait "${compiling[@]}"; }

# ---- 2, 3, 4

if wanted data; then
  say "data parallel$small"; header
  # To the temperature of a long run.
  out=/dev/null beside "warming up" --model gpt2-124m --batch 64 --steps 50 > /dev/null
  for size in "${sizes[@]}"; do
    model=${size%:*} args=(--model "${size%:*}" --batch "${size#*:}")
    measure "$model" 1 "" "${args[@]}"; bases=$rate
    ((gpus > 1)) || continue
    beside "$model, beside" "${args[@]}"; bases+=:$rate
    for n in $(counts 2); do measure "$model, dp $n, ZeRO-1" "$n" "$bases" "${args[@]}" --dp "$n" --zero; done
    measure "$model, dp $gpus" "$gpus" "$bases" "${args[@]}" --dp "$gpus"
  done
fi
if wanted tensor; then
  say "tensor parallel$small"; header
  measure "llama-1.1b" 1 "" "${llama[@]}"; base=$rate
  for n in 2 4; do
    ((n <= gpus)) || continue
    measure "llama-1.1b, tp $n, sp" "$n" "$base" "${llama[@]}" --tp "$n" --sp
    measure "llama-1.1b, tp $n" "$n" "$base" "${llama[@]}" --tp "$n"
    dp=$((gpus / n))
    ((dp == 1)) || measure "llama-1.1b, tp $n, sp, dp $dp, ZeRO-1" $((n * dp)) "$base" "${llama[@]}" --tp "$n" --sp \
      --dp $dp --zero
  done
fi
if [ -n "$torch" ] && wanted torch; then
  say "PyTorch"; header
  for size in "${sizes[@]}"; do
    torch_base=''
    for n in 1 $(counts 2 | sort -rn); do torch_row "$n" "$size"; done
  done
fi
say "JSON lines in $out"
exit $failed
