#!/bin/bash
# What the README says is so: its first program compiles and prints what it says, its op compiles and
# passes the gradient check, and the tutorials, files and targets that it names are those that exist.
#
#   tests/readme_test.sh BUILD_FOLDER
set -e
build=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
differ() { diff <(echo "$2") <(echo "$3") || { echo "^ $1: README, then what there is"; bad=1; }; }

# block N: the N-th block of C++ in the README.
block() { awk -v n="$1" '/^```cpp/ {inside = ++count == n; next} /^```/ {inside = 0} inside' README.md; }
cpp=$(cut -d '|' -f 1 "$build/flags.txt") cu=$(cut -d '|' -f 2 "$build/flags.txt")
libs="$build/libgradus.a $(cut -d '|' -f 2 "$build/objects.txt")"

block 1 > "$dir/first.cpp"
eval "$cpp -O0 $dir/first.cpp $libs -o $dir/first"
differ "the first program prints" "$(sed -nE 's/^It prints `(.*)`\..*/\1/p' README.md)" "$("$dir/first")"

block 2 > "$dir/op.cu"
name=$(sed -nE 's/.*name = "(.*)";/\1/p' "$dir/op.cu")
echo "#include \"ops/ops.h\"
namespace gradus { $(sed -nE 's/^Tensor (.*) \{ return apply.*/Tensor \1;/p' "$dir/op.cu") }" > "$dir/ops.h"
cat > "$dir/check.cpp" << END
#include <iostream>
#include "autograd/gradcheck.h"
int main() {
  using namespace gradus;
  for (const Gradcheck* c : Gradcheck::all()) {
    if (c->op != "$name") continue;
    for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
      double differences = gradcheck(c->example, kCpu, layout).worst;
      double second = gradgradcheck(c->example, kCpu, layout).worst;
      double rounding = compare_with_f64(c->example, DType::f32, kCpu, layout).worst;
      std::cout << differences << " " << second << " " << rounding << "\n";
      if (!(differences < 1e-7 && second < 1e-7 && rounding < 1e-6)) return 1;
    }
    return 0;
  }
  return 2;
}
END
eval "$cu -O0 -include $dir/ops.h -c $dir/op.cu -o $dir/op.o"
eval "$cpp -O0 $dir/check.cpp $dir/op.o $libs -o $dir/check"
"$dir/check" || { echo "the op of the README, '$name', fails its gradient check"; bad=1; }

differ "tutorials" "$(grep -oE 'tutorials/[0-9]\w+' README.md)" "$(ls tutorials/*.cpp | sed 's/\.cpp//')"
for file in $(grep -oE '`[a-z]+/[a-z_/]*(\.(h|cpp|cu|sh))?`' README.md | tr -d '`' | grep -vE "^build/|/$name\.cu$" | sort -u); do
  [ -e "$file" ] || { echo "the README names $file, which does not exist"; bad=1; }
done
for target in $(grep -oE '\bmake [a-z]+' README.md | cut -d ' ' -f 2 | sort -u); do
  grep -qE "^$target:.*## " Makefile || { echo "the README names make $target, which make help does not"; bad=1; }
done
if [ -x "$build/gradus" ]; then
  help=$(for command in train generate info convert report schedule; do "$build/gradus" $command --help; done)
  for word in $(grep -v bench/gpt_step README.md | grep -oE -e '`?--[a-z][a-z-]+|`[a-z0-9]+-(tiny|small|[0-9]+m)`' | tr -d '`' | sort -u); do
    [ "$word" = --help ] || [ "$word" = --cflags ] || [ "$word" = --libs ] || grep -qw -e "$word" <<< "$help" ||
      { echo "the README names $word, which gradus --help does not"; bad=1; }
  done
fi
exit $bad
