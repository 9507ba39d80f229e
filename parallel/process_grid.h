#pragma once
// A box of ranks (parallel/grid.h) with its communicators.
//
//   ProcessGrid grid(world, {{"tp", 2}, {"dp", 2}});     // all ranks of the world make it
//   grid.create({"tp"});                                 // and each of its groups, in the same order
//   grid.group({"tp"}).all_reduce(x);                    // the one that this rank is in
//
// The order in which axes are asked for does not matter: {"dp","tp"} is the group {"tp","dp"}, and its
// ranks ascend. That order decides how an all-gather lays parts side by side.
//
// A view is another factorisation of the same ranks. Axes that both have, and that mean the same ranks in
// both, are shared. Groups of the same ranks exist once, however often and under whatever names they are
// asked for: with cp = 1, {"dp"} and {"cp","dp"} are one.
#include <map>

#include "parallel/communicator.h"
#include "parallel/grid.h"

namespace gradus::parallel {

class ProcessGrid {
 public:
  /// The box at ranks `offset` … of `world`. Ranks outside make it too.
  ProcessGrid(Communicator world, std::vector<Axis> axes, int offset = 0);

  /// Error: the name is taken, the sizes do not multiply to that of the grid, a shared axis is missing in
  /// one of the two, or makes other groups.
  void view(const std::string& name, std::vector<Axis> axes, const Names& shared);

  /// Makes all groups along these axes, unless they exist. By all ranks of the world, in the same order.
  void create(const Names& along, const std::string& view = kBase);
  /// Makes groups of these ranks, which no two of them share: the ends of pipelines.
  void create_from(const std::string& name, const RankLists& ranks);

  /// The group along these axes that this rank is in. Error: it was not created, or the rank is outside.
  Communicator group(const Names& along, const std::string& view = kBase) const;
  /// One of create_from, and whether this rank is in one.
  Communicator group_from(const std::string& name) const;
  bool is_in(const std::string& name) const;

  /// Lets go of all groups; those that nobody else holds are freed, each once. By all ranks.
  void destroy() { groups_.clear(); }

  const Communicator& world() const { return world_; }
  const GridShape& shape(const std::string& view = kBase) const;
  bool contains_me() const { return shape().contains(world_.rank()); }
  int size(const std::string& axis) const { return shape().axis_size(axis); }
  /// This rank's place on an axis.
  int place(const std::string& axis) const { return shape().coordinate(world_.rank(), axis); }

  static constexpr const char* kBase = "grid";

 private:
  struct View {
    GridShape shape;
    Names shared;
  };
  using Key = std::pair<std::string, Names>;  // view, and axes in its order
  struct Made {
    RankLists ranks;
    Communicator group;
    bool mine;  // whether this rank is in one of them
  };
  const View& find(const std::string& view) const;
  Key key(const Names& along, const std::string& view) const;
  Made make(const RankLists& ranks, const std::string& name) const;
  const Made& existing(const Key& key, const std::string& text) const;

  Communicator world_;
  std::map<std::string, View> views_;
  std::map<Key, Made> groups_;
};

/// How many ranks work on a copy of the model, and how; what remains is data parallel.
struct Layout {
  int tp = 1, cp = 1, pp = 1;
};

/// The grid of axes tp, cp, dp, pp with the groups that training needs: each axis; dp+cp, over which
/// gradients and counts of tokens are summed; tp+cp, tp+pp, tp+dp, tp+dp+cp; all. Error unless tp·cp·pp
/// divides the world.
ProcessGrid model_grid(const Communicator& world, Layout layout);

}  // namespace gradus::parallel
