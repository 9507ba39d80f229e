#!/bin/bash
# Runs all that can fail: the GoogleTest program, the tutorials, tests/*.sh. Each leaves its output in
# a .log in the build folder; that of a failure is printed. Last line: N passed, N failed, N skipped.
#
#   tests/run.sh BUILD_FOLDER            everything
#   tests/run.sh BUILD_FOLDER FILTER     only the GoogleTest cases of this filter
#   tests/run.sh BUILD_FOLDER FILTER parallel_tests     of this program
build=$1
filter=${2:-}
tests=${3:-run_tests}
limit=1200  # seconds for one program: a hang is a failure
passed=0 failed=0 skipped=0

# A case ends in a line "[ RESULT ] Suite.Case (N ms)". One that has none, because another one crashed
# before its turn, has failed.
cases() {
  local log=$build/$tests.log status planned ok skip bad
  timeout --foreground $limit "$build/$tests" --gtest_color=no --gtest_filter="${filter:-*}" 2>&1 | tee "$log" |
    sed -unE 's/^\[-{10}\] ([0-9]+ tests? from .*) \(([0-9]+ ms) total\)/  \1, \2/p'
  status=${PIPESTATUS[0]}
  planned=$(sed -nE 's/^\[={10}\] Running ([0-9]+) tests? .*/\1/p;T;q' "$log")
  ok=$(grep -cE '\[       OK \] .*\([0-9]+ ms\)$' "$log")
  skip=$(grep -cE '\[  SKIPPED \] .*\([0-9]+ ms\)$' "$log")
  bad=$((${planned:-0} - ok - skip))
  ((status == 0 || bad > 0)) || bad=1
  if ((bad > 0)); then
    grep -vE '^$|^\[( RUN|       OK|-{10})' "$log"
    echo "$tests: $bad failed, exit status $status, last started:$(grep '\[ RUN' "$log" | tail -n 1 | cut -d ']' -f 2)"
  fi
  passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

# A tutorial or script ends with 0: passed, 77: skipped, anything else: failed.
program() {
  local log start=$SECONDS result
  log=$build/$(basename "$1").log
  timeout --foreground $limit "$1" "$build" &> "$log" < /dev/null
  case $? in
    0) passed=$((passed + 1)) result=passed ;;
    77) skipped=$((skipped + 1)) result="skipped: $(tail -n 1 "$log")" ;;
    124) failed=$((failed + 1)) result="failed: no end after $limit s" ;;
    *) failed=$((failed + 1)) result=failed ;;
  esac
  [[ $result != failed* ]] || cat "$log"
  echo "  $1: $result, $((SECONDS - start)) s"
}

cases
if [ -z "$filter" ]; then
  for source in tutorials/*.cpp; do
    [ ! -e "$source" ] || program "$build/${source%.cpp}"
  done
  for script in tests/*.sh; do
    [ "$script" = tests/run.sh ] || program "$script"
  done
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
