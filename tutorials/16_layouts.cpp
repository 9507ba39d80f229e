// Tutorial 16: the same gradient at every layout, and bugs that do not crash
//
// A layout says which rank has what: tensor parallel ranks cut matrices (tutorial 13) and perhaps tokens (14),
// data parallel ranks cut the batch (12), micro-batches cut it in time. What is learned must not depend on
// it, so there is one test for all of it: the gradient of every parameter, put together, is that of one rank.
//
// The model is in tutorials/layouts.h. In f64 rounding is 1e-16, and a bug is not. Nine bugs are built in, all of
// kinds that large systems have trained with for weeks. Plant one, and find its line from what the check says:
//
//   make tutorials && build/cpu/tutorials/16_layouts --plant 3
#include <cstring>

#include "parallel/run_ranks.h"
#include "train/machine.h"
#include "tutorials/layouts.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

// ---- The check. Of each tensor: the factor for which factor · (what it should be) comes closest, and how much
// is then left. A factor alone is a sum or mean that was forgotten or taken twice; what is left, something else.
struct Finding {
  std::string name;
  double factor, left;
};
std::vector<Finding> wrong_tensors(const Setting& s) {
  static const Tensors want = gradients({}, {1, 1, false, 1});
  Tensors got;
  run_ranks(s.tp * s.dp, [&](Communicator world) {
    const Tensors mine = gradients(world, s);
    if (world.rank() == 0) got = mine;
  });
  const auto dot = [](const Tensor& a, const Tensor& b) { return sum(a * b).item(); };
  std::vector<Finding> wrong;
  for (size_t i = 0; i < 6; ++i) {
    const double size = dot(want[i], want[i]), factor = dot(got[i], want[i]) / size;
    const Tensor rest = got[i] - want[i] * factor;
    const double left = std::sqrt(dot(rest, rest) / size);
    // sums of 24 tokens in another order
    if (std::abs(factor - 1) + left > 1e-12) wrong.push_back({kParameters[i].name, factor, left});
  }
  return wrong;
}

void every_layout() {
  section("One gradient");
  const Setting settings[] = {{1, 1, false, 2}, {1, 2, false, 1}, {2, 1, false, 1}, {2, 1, true, 4},
                              {2, 2, false, 2}, {2, 2, true, 2},  {1, 4, false, 2}};
  for (const Setting& s : settings)
    expect(sentence("tp ", s.tp, s.tokens_cut ? ", tokens cut" : "", ", dp ", s.dp, ", ",
                    s.micro_batches, " micro-batches"),
           wrong_tensors(s).empty());
}

std::vector<Finding> with_bug(int bug) {
  return wrong_tensors({2, 2, bug == 5 || bug == 6 || bug == 9, 2, bug});
}

void every_bug() {
  section("Nine bugs (tp 2, dp 2, 2 micro-batches), and which gradients they make wrong");
  const std::string all = "E γ W₁ b₁ W₂ b₂ ";
  const std::string expected[] = {all, "W₂ ", "E γ ", all, "E γ ", "γ ", all, all, all};
  for (int bug = 1; bug <= 9; ++bug) {
    std::string names;
    double left = 0;
    const std::vector<Finding> found = with_bug(bug);
    for (const Finding& f : found) names += f.name + " ", left = std::max(left, f.left);
    expect(sentence("bug ", bug, ": ", names, left < 1e-12 ? "by one factor" : ""),
           names == expected[bug - 1] && (left < 1e-12) == (bug == 7));
  }
}

int planted = 0;
void one_bug() {
  section("A bug is planted, and the check says");
  const std::vector<Finding> found = with_bug(planted);
  for (const Finding& f : found)
    say("d", f.name, "\tis ", f.factor, " times what it should be, and ", f.left, " is left");
  expect("the check finds it", !found.empty());
}

int main(int argc, char** argv) {
  train::use_threads(1);  // the ranks are threads themselves
  const char* title = "Tutorial 16: the same gradient at every layout";
  if (argc == 3 && std::strcmp(argv[1], "--plant") == 0) {
    planted = std::atoi(argv[2]);
    return lesson(title, {one_bug});
  }
  int result = lesson(title, {every_layout, every_bug});
  question(
      "Bugs 3 and 5 make the same tensors wrong: which line is each, and why is all that follows f "
      "right?\n"
      "Bug 1 does not show where all tokens weigh the same. Which of the others need dropout, "
      "tokens that\n"
      "are cut, or a second micro-batch to show?");
  return result;
}
