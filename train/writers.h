#pragma once
// Which rank writes what several ranks hold.
//
//   a parameter …        cut over tp          whole
//   its holders          dp ranks             tp · dp ranks
//
// Parameters are given out one by one, the largest first, each to the holder that has least to write so
// far: a rule that all ranks apply alike, without talking.
#include <map>
#include <span>
#include <string>

#include "nn/module.h"

namespace gradus::train {

class Writers {
 public:
  /// Of `parameters` as one rank has them: all ranks have the same ones, but for the numbers of their
  /// shards.
  Writers(std::span<const nn::NamedParameter> parameters, int tp_ranks, int dp_ranks);

  /// Whether rank (tp, dp) writes what it has of a parameter. `is_sliced`: of a state of which each data
  /// rank has another slice.
  bool writes(const std::string& name, int tp_rank, int dp_rank, bool is_sliced) const;

 private:
  struct Writer {
    int tp = -1;  // −1: each of them, its own part
    int dp = 0;
  };
  std::map<std::string, Writer> writers_;
};

}  // namespace gradus::train
