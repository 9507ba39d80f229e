# For scripts that run a program and look at what it says: . tests/shell/expect.sh
bad=0  # 1 once something was not as expected: the script's exit status

# expect STATUS PATTERN...: of the last run, whose output is in $out and exit status in $status.
expect() {
  local pattern
  [ "$status" = "$1" ] || { echo "exit status $status, not $1:"; echo "$out"; bad=1; }
  for pattern in "${@:2}"; do
    grep -qE -e "$pattern" <<< "$out" || { echo "no '$pattern' in:"; echo "$out"; bad=1; }
  done
}
