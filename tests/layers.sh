#!/bin/bash
# The layering, enforced: a folder includes itself and the folders named after it here.
#
#   core ─▶ autograd ─▶ ops ─▶ nn ─▶ optim ─▶ parallel ─▶ models ─▶ train     tests, tutorials, bench
#    └──────────────────────────▶ sched ──────────────────────────────┘       may include everything
folders='core|autograd|ops|nn|optim|sched|parallel|models|train'
status=0
allow() {
  local bad
  bad=$(grep -rsnE "^\s*#\s*include\s*(\"|<($folders)/)" "$1" \
             --include='*.h' --include='*.cpp' --include='*.cu' |
        grep -vE "include \"($(tr ' ' '|' <<< "$*"))/[^.]")
  [ -z "$bad" ] || { printf '%s may include %s, not:\n%s\n' "$1" "$*" "$bad"; status=1; }
}
allow core
allow autograd core
allow ops      core autograd
allow nn       core autograd ops
allow optim    core autograd ops nn
allow sched    core
allow parallel core autograd ops nn optim
allow models   core autograd ops nn optim parallel
allow train    core autograd ops nn optim parallel models sched
exit $status
