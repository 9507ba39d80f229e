#include "train/schedule_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "sched/sched.h"

namespace gradus::train {
namespace {

using sched::Schedule;

struct Term {
  enum Kind { number, word, call, list } kind = number;
  double value = 0;         // of a number
  std::string name;         // of a word or call
  std::vector<Term> parts;  // of a call or list
};

// ---- From text to terms

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Term whole() {
    Term t = term(0);
    expect(at_end(), "the end");
    return t;
  }

 private:
  Term term(int depth) {
    constexpr int kDeepest = 32;
    expect(depth < kDeepest, "less nesting");
    const char c = peek();
    if (c == '[') return {Term::list, 0, "", parts('[', ']', depth)};
    if (std::isalpha(static_cast<unsigned char>(c))) return named(depth);
    char* end = nullptr;
    const double value = std::strtod(text_.c_str() + at_, &end);
    expect(end != text_.c_str() + at_ && std::isfinite(value),
           "a number or the name of a schedule");
    at_ = size_t(end - text_.c_str());
    return {Term::number, value, "", {}};
  }

  Term named(int depth) {
    std::string name;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      name += text_[at_++];
    if (peek() != '(') return {Term::word, 0, name, {}};
    return {Term::call, 0, name, parts('(', ')', depth)};
  }

  std::vector<Term> parts(char open, char close, int depth) {
    std::vector<Term> terms;
    expect(peek() == open, "a bracket");
    ++at_;
    if (peek() != close) {
      terms.push_back(term(depth + 1));
      for (; peek() == ','; terms.push_back(term(depth + 1))) ++at_;
    }
    expect(peek() == close, close == ')' ? "',' or ')'" : "',' or ']'");
    ++at_;
    return terms;
  }

  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_end() { return peek() == '\0'; }
  void expect(bool ok, const char* what) const {
    check(ok, "schedule: expected ", what, " here:\n  ", text_, "\n  ", std::string(at_, ' '), "^");
  }

  const std::string& text_;
  size_t at_ = 0;
};

// ---- From terms to schedules

Schedule build(const Term& term);

// The arguments of one call, by position.
class Arguments {
 public:
  explicit Arguments(const Term& call) : call_(call) {}

  bool has(size_t i) const { return i < call_.parts.size(); }
  double rate(size_t i) const {
    const Term& t = call_.parts[i];
    check(t.kind == Term::number, "schedule: argument ", i + 1, " of ", call_.name,
          " must be a number");
    return t.value;
  }
  int64_t count(size_t i) const { return whole(rate(i), i); }
  std::string word(size_t i) const {
    check(call_.parts[i].kind == Term::word, "schedule: argument ", i + 1, " of ", call_.name,
          " must be a word");
    return call_.parts[i].name;
  }
  Schedule schedule(size_t i) const { return build(call_.parts[i]); }
  std::vector<Schedule> schedules(size_t i) const {
    std::vector<Schedule> all;
    for (const Term& t : list(i)) all.push_back(build(t));
    return all;
  }
  std::vector<int64_t> counts(size_t i) const {
    std::vector<int64_t> all;
    for (const Term& t : list(i)) all.push_back(whole(t.kind == Term::number ? t.value : NAN, i));
    return all;
  }

 private:
  const std::vector<Term>& list(size_t i) const {
    check(call_.parts[i].kind == Term::list, "schedule: argument ", i + 1, " of ", call_.name,
          " must be a list, like [10, 20]");
    return call_.parts[i].parts;
  }
  int64_t whole(double value, size_t i) const {
    check(value == std::floor(value) && std::abs(value) < 1e15, "schedule: argument ", i + 1,
          " of ", call_.name, " must be a whole number, got ", value);
    return int64_t(value);
  }

  const Term& call_;
};

struct Known {
  const char *name, *parameters, *remark;
  size_t least, most;  // arguments
  Schedule (*make)(const Arguments& a);
};

using A = const Arguments&;
constexpr Known kKnown[] = {
    {"constant", "rate", "", 1, 1, [](A a) { return sched::constant(a.rate(0)); }},
    {"step", "rate, every, γ", "StepLR", 3, 3,
     [](A a) { return sched::step(a.rate(0), a.count(1), a.rate(2)); }},
    {"multi_step", "rate, [milestones], γ", "MultiStepLR", 3, 3,
     [](A a) { return sched::multi_step(a.rate(0), a.counts(1), a.rate(2)); }},
    {"exponential", "rate, γ", "ExponentialLR", 2, 2,
     [](A a) { return sched::exponential(a.rate(0), a.rate(1)); }},
    {"cosine_annealing", "max, min, steps", "CosineAnnealingLR", 3, 3,
     [](A a) { return sched::cosine_annealing(a.rate(0), a.rate(1), a.count(2)); }},
    {"cosine_restarts", "max, min, steps, times = 1", "CosineAnnealingWarmRestarts", 3, 4,
     [](A a) {
       return sched::cosine_restarts(a.rate(0), a.rate(1), a.count(2), a.has(3) ? a.count(3) : 1);
     }},
    {"linear", "from, to, steps", "LinearLR", 3, 3,
     [](A a) { return sched::linear(a.rate(0), a.rate(1), a.count(2)); }},
    {"cosine", "from, to, steps", "then stays", 3, 3,
     [](A a) { return sched::cosine(a.rate(0), a.rate(1), a.count(2)); }},
    {"inverse_sqrt", "peak, steps, floor = 0", "", 2, 3,
     [](A a) { return sched::inverse_sqrt(a.rate(0), a.count(1), a.has(2) ? a.rate(2) : 0); }},
    {"wsd", "peak, floor, stable, decay, tail = linear", "linear, cosine, exponential, minus_sqrt",
     4, 5,
     [](A a) {
       return sched::wsd(a.rate(0), a.rate(1), a.count(2), a.count(3),
                         sched::parse_style<sched::Tail>(a.has(4) ? a.word(4) : "linear"));
     }},
    {"warmup", "peak, steps, then, from = 0", "", 3, 4,
     [](A a) {
       return sched::warmup(a.rate(0), a.count(1), a.schedule(2), a.has(3) ? a.rate(3) : 0);
     }},
    {"sequence", "[schedules], [milestones]", "SequentialLR", 2, 2,
     [](A a) { return sched::sequence(a.schedules(0), a.counts(1)); }},
};

std::string signature(const Known& k) { return std::string(k.name) + "(" + k.parameters + ")"; }

Schedule build(const Term& t) {
  if (t.kind == Term::number) return t.value;
  check(t.kind == Term::call, "schedule: expected a number or name(arguments), got ",
        t.kind == Term::list ? "a list" : t.name);
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& k) { return t.name == k.name; });
  check(known != std::end(kKnown), "there is no schedule '", t.name, "'; there are\n",
        schedule_names());
  const size_t count = t.parts.size();
  check(known->least <= count && count <= known->most, "schedule: ", signature(*known), " takes ",
        known->least, known->least == known->most ? "" : " or ",
        known->least == known->most ? "" : std::to_string(known->most),
        known->most == 1 ? " argument" : " arguments", ", got ", count);
  return known->make(Arguments(t));
}

}  // namespace

Schedule parse_schedule(const std::string& text) { return build(Parser(text).whole()); }

std::string schedule_names() {
  constexpr size_t kColumn = 50;
  std::string all;
  for (const Known& k : kKnown) {
    std::string line = "  " + signature(k);
    const size_t columns = line.size() - (line.find("γ") == std::string::npos ? 0 : 1);
    if (*k.remark) line += std::string(columns < kColumn ? kColumn - columns : 2, ' ') + k.remark;
    all += line + "\n";
  }
  return all;
}

}  // namespace gradus::train
