#!/bin/bash
# T6: each public function, module and optimizer has an example that is compiled: its name occurs in a
# test, a tutorial, a benchmark, or in an example of the gradient check. Public is what the headers below
# declare at the margin, outside `detail`.
headers="autograd/apply.h autograd/engine.h autograd/gradcheck.h autograd/graph.h autograd/recompute.h
         autograd/tensor.h core/check.h core/random.h core/shape.h nn/*.h models/*.h ops/ops.h
         optim/adam.h optim/flat_buffer.h optim/grad_norm.h optim/optimizer.h optim/parameter_group.h
         optim/sgd.h optim/split_master.h sched/*.h"
counted='acquire|release'  # what Ref calls

examples=$(mktemp)
trap 'rm -f "$examples"' EXIT
cat tests/*.cpp tests/*/*.cpp tests/*/*.h tutorials/*.cpp bench/*.cpp > "$examples"
grep -h 'Sampler' -A 4 ops/*.c* autograd/*.c* >> "$examples"

# names HEADER: its functions, modules and optimizers.
names() {
  awk '/^namespace .*detail/ {hidden = 1} /^}  \/\/ namespace .*detail/ {hidden = 0} !hidden' "$1" |
    sed -nE -e 's/^(struct|class) (\w+) final : (nn::)?(Module|Optimizer) .*/\2/p' \
            -e 's/^(inline |constexpr |GRADUS_HD )*[A-Za-z_][A-Za-z_:<>0-9]*[ *&]+([a-z_]\w*)\(.*/\2/p' |
    grep -vwE "operator|if|for|return|fail|$counted" | sort -u
}

known=0 bad=0
shopt -s nullglob
for header in $headers; do
  for name in $(names "$header"); do
    known=$((known + 1))
    grep -qw "$name" "$examples" || { echo "$header: $name has no example"; bad=$((bad + 1)); }
  done
done
echo "$known public names, $bad without an example"
((bad == 0 && known > 100))
