#!/bin/bash
# make fuzz: libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer on every reader of foreign bytes
# (tests/fuzz/targets.h), so many seconds each. An input that a reader does not survive is left in
# build/fuzz; fix the reader and move the input to tests/fuzz/corpus/TARGET.
#
#   tests/fuzz/run.sh [SECONDS]
# Last line: N passed, N failed, N skipped. Without a clang that has libFuzzer all are skipped (exit code
# 77); nothing is installed for it.
cd "$(dirname "$0")/../.." || exit 1
seconds=${1:-8}
build=build/fuzz
mkdir -p $build
flags="-std=c++20 -O1 -g1 -I. -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
sources="train/safetensors train/strict_json train/mapped_file train/disk train/checkpoint_index train/box
         train/token_file train/schedule_text train/hf_config train/hf_family train/hf_gpt2 train/hf_llama
         train/hf_bert train/model_config train/settings train/presets models/config models/bert_config
         core/dtype"

for clang in clang++ $(compgen -c clang++- | sort -t- -k2 -rn | uniq); do
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    $clang -x c++ -fsanitize=fuzzer,address - -o $build/empty 2> /dev/null && break
  clang=
done
if [ -z "$clang" ]; then
  echo "no clang with libFuzzer: on Debian and Ubuntu it is in the packages clang and libclang-rt-dev (libclang-rt-14-dev)"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
# clang 14 has no std::source_location.
echo '#include <source_location>
      int main() { return int(std::source_location::current().line()) < 0; }' |
  $clang -std=c++20 -x c++ -fsyntax-only - 2> /dev/null || flags="-isystem tests/fuzz/clang14 $flags"

compile() {
  $clang $flags -fsanitize=fuzzer-no-link -c $1.cpp -o $build/$(tr / _ <<< $1).o
}
fuzz() {
  local corpus=$build/corpus/$1
  rm -f $build/$1.passed
  mkdir -p $corpus
  $clang $flags -fsanitize=fuzzer -DGRADUS_FUZZ=$1 tests/fuzz/targets.cpp $build/*_*.o -o $build/$1 &&
    $build/$1 -max_total_time=$seconds -timeout=5 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
      -artifact_prefix=$build/$1- $corpus tests/fuzz/corpus/$1 &> $build/$1.log &&
    touch $build/$1.passed
  sed -nE "s/^stat::number_of_executed_units: */  $1: inputs /p" $build/$1.log
  [ -e $build/$1.passed ] || { tail -n 40 $build/$1.log; echo "  $1: failed"; }
}
export -f compile fuzz
export clang flags build seconds
rm -f $build/*_*.o
xargs -P 2 -n 1 bash -c 'compile $0' <<< "$sources" || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
passed=0 failed=0
targets=$(sed -nE 's/^.*\{"([a-z_]+)", [a-z_]+\}.*/\1/p' tests/fuzz/targets.h)
xargs -P 2 -n 1 bash -c 'fuzz $0' <<< "$targets"
for target in $targets; do
  if [ -e $build/$target.passed ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
