#!/bin/bash
# Runs everything that can fail: the GoogleTest program, the tutorials, tests/*.sh. Logs lie beside
# the programs; those of failures are printed. Last line: N passed, N failed, N skipped.
#   tests/run.sh BUILD_FOLDER [GTEST_FILTER]
build=$1
passed=0 failed=0 skipped=0

count() { grep -cE "$1" "$log"; }

# The GoogleTest program. A case that did not get its turn, because another one crashed, has failed.
log=$build/run_tests.log
"$build/run_tests" --gtest_color=no --gtest_filter="${2:-*}" &> "$log"
status=$?
planned=$(sed -nE 's/^\[==========\] Running ([0-9]+) tests? .*/\1/p' "$log" | head -n 1)
ok=$(count '\[       OK \] .*\([0-9]+ ms\)$')
skip=$(count '\[  SKIPPED \] .*\([0-9]+ ms\)$')
bad=$((${planned:-0} - ok - skip))
((status == 0 || bad > 0)) || bad=1
((bad == 0)) || { grep -vE '^\[ RUN|^\[       OK|^\[-----' "$log"; echo "run_tests ended with status $status"; }
passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
echo "run_tests: $ok passed, $bad failed, $skip skipped"

# Every other test is a program that ends with 0 (passed), 77 (skipped) or something else.
for program in "$build"/tutorials/* tests/*.sh; do
  case $program in *.o | *.d | *.log | tests/run.sh) continue ;; esac
  [ -x "$program" ] || continue
  log=$build/$(basename "$program").log
  "$program" "$build" &> "$log"
  status=$?
  case $status in
    0) passed=$((passed + 1)) result=passed ;;
    77) skipped=$((skipped + 1)) result="skipped: $(tail -n 1 "$log")" ;;
    *) failed=$((failed + 1)) result="failed with status $status" && cat "$log" ;;
  esac
  echo "$program: $result"
done

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
