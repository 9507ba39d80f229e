#!/bin/bash
# B6: after `make install PREFIX=…` a ten-line program elsewhere builds and runs with the prefix alone,
# and no installed file contains a path of the source tree.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
command -v pkg-config > /dev/null || { echo "pkg-config is missing"; exit 77; }

${MAKE:-make} install PREFIX="$dir/prefix"
find "$dir/prefix" -type f | sed "s|$dir/||" | sort
if grep -rlF "$PWD" "$dir/prefix"; then
  echo "these installed files contain the path of the source tree, $PWD"
  exit 1
fi

mv "$dir/prefix" "$dir/moved"  # nothing may remember where it was installed
cd "$dir"
cat > program.cpp << 'END'
#include <iostream>
#include "ops/ops.h"
int main() {
  using namespace gradus;
  Tensor x = tensor({1, 2, 3}, {3}).requires_grad_();
  sum(x * x).backward();                      // d/dx Σ x² = 2x
  std::cout << x.grad() << "\n";
  try { matmul(ones({2, 3}), ones({2, 3})); } catch (const Error&) { return x.grad().at(2) == 6 ? 0 : 1; }
  return 2;
}
END
# The compiler is the one that built the library: make hands it down.
${CXX:-g++} program.cpp $(PKG_CONFIG_PATH=$dir/moved/lib/pkgconfig pkg-config --cflags --libs gradus) -o program
./program
[ ! -e moved/bin/gradus ] || moved/bin/gradus --help
