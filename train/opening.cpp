#include "train/opening.h"

#include <cstdio>
#include <sstream>

#include "core/check.h"
#include "nn/summary.h"
#include "train/language_model.h"
#include "train/machine.h"
#include "train/units.h"

namespace gradus::train {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

// Times from (exclusive) first to (inclusive) last at which an event that comes every so often falls;
// the last step has one in any case.
int64_t occurrences(int64_t first, int64_t last, int64_t every) {
  const int64_t before_last = every > 0 ? (last - 1) / every - first / every : 0;
  return std::max<int64_t>(before_last, 0) + (last > first ? 1 : 0);
}

std::string every(int64_t steps) {
  return steps > 0 ? "every " + count_text(steps, "step") : std::string("at the end");
}

std::string steps_text(const Settings& s, const RunData& data, int64_t first_step) {
  const double epochs = double(s.steps) * double(s.batch) / double(data.training->windows());
  const std::string steps =
      first_step >= s.steps
          ? "all " + count_text(s.steps, "step") + " are taken"
          : "steps " + with_commas(first_step + 1) + " to " + with_commas(s.steps);
  return steps + ", each " + with_commas(s.batch) + " × " + with_commas(s.length) + " = " +
         count_text(s.batch * s.length, "token") +
         (s.accumulate > 1 ? " in " + with_commas(s.accumulate) + " micro-batches" : "") +
         "; an epoch has " + count_text(data.training->windows() * s.length, "token") +
         ", the run " + format("%.2f epochs", epochs);
}

std::string rate_text(const Settings& s) {
  return format("AdamW, learning rate up to %g in %lld steps, cosine to %g at step %lld; ", s.lr,
                static_cast<long long>(s.warmup), s.min_lr, static_cast<long long>(s.decay_steps)) +
         format("β %g %g, weight decay %g, ", s.beta1, s.beta2, s.weight_decay) +
         (s.clip > 0 ? format("clip %g", s.clip) : std::string("no clipping"));
}

std::string evaluation_text(const Settings& s, const RunData& data) {
  const int64_t all = data.validation->targets();
  if (s.eval_every == 0) return "at the end, on all " + with_commas(all) + " held-out tokens";
  if (s.eval_tokens == 0 || s.eval_tokens >= all)
    return every(s.eval_every) + ", on all " + with_commas(all) + " held-out tokens";
  return every(s.eval_every) + ", on about " + with_commas(s.eval_tokens) +
         " held-out tokens; at the end on all " + with_commas(all);
}

std::string checkpoint_text(const Settings& s, int64_t first_step, const std::string& directory) {
  return every(s.save_every) + ", " + with_commas(occurrences(first_step, s.steps, s.save_every)) +
         " to come; the newest " + with_commas(s.keep) + " and the best stay in " + directory;
}

// Parameters, gradients and what the optimizer keeps of them.
int64_t bytes_of(const RunState& state) {
  const optim::FlatBuffer& flat = state.optimizer->flat();
  int64_t bytes = gradus::bytes_of(flat.parameters()) + gradus::bytes_of(flat.gradients());
  for (const optim::NamedState& s : state.optimizer->state())
    bytes += gradus::bytes_of(s.value.low ? s.value.low : s.value.values);
  return bytes;
}

std::string rank_text(const RunState& state) {
  const Ranks& r = state.ranks;
  std::ostringstream device;
  device << state.model.device;
  return "rank " + std::to_string(r.world.rank()) + ": tp " + std::to_string(r.tp.rank()) +
         ", dp " + std::to_string(r.dp.rank()) + "; " + device.str() + ", " +
         with_commas(nn::count_parameters(state.model.module()).elements) + " parameters, " +
         bytes_text(bytes_of(state)) + " with gradients and optimizer";
}

}  // namespace

std::string ranks_text(const RunState& state, const Settings& s) {
  const parallel::Communicator& world = state.ranks.world;
  if (world.size() == 1) return "";
  const std::vector<std::string> lines = world.all_gather_text(rank_text(state));
  std::string text = "\nranks    " + with_commas(world.size()) + " = tp " + with_commas(s.tp) +
                     " × dp " + with_commas(s.dp) + (s.sp && s.tp > 1 ? ", sequence parallel" : "") +
                     (s.zero && s.dp > 1 ? ", ZeRO-1" : "") + "; a micro-batch of a data rank has " +
                     count_text(s.batch / (s.accumulate * s.dp), "window");
  for (const std::string& line : lines) text += "\n         " + line;
  return text;
}

std::string model_text(const Settings& s) {
  return s.model + ": " + count_text(s.layers, "layer") + ", width " + with_commas(s.width) + ", " +
         count_text(s.heads, "head") +
         (s.kv_heads < s.heads ? " (" + with_commas(s.kv_heads) + " of keys and values)" : "") +
         ", MLP " + with_commas(s.ffn) + ", context " + with_commas(s.length) + ", vocabulary " +
         with_commas(s.vocabulary) + (s.dropout > 0 ? format(", dropout %g", s.dropout) : "");
}

std::string opening(const Settings& s, const RunData& data, Device device, int64_t parameters,
                    int64_t first_step, const std::string& directory) {
  const auto peak = machine_peak(device, dtype_of(s));
  const std::string mfu = peak ? "MFU is against a peak of " + with_prefix(*peak) + "FLOP/s"
                               : std::string("MFU n/a: the peak of this machine is not known");
  return "data     " + data.description +                                      //
         "\nmachine  " + machine_name(device) + ", " + s.dtype + "; " + mfu +  //
         "\nmodel    " + model_text(s) + "; " + with_commas(parameters) + " parameters" + "\n" +
         explain_flops(model_size(s)) +                     //
         "\nrun      " + steps_text(s, data, first_step) +  //
         "\n         " + rate_text(s) +                     //
         "\nevaluate " + evaluation_text(s, data) +         //
         "\nsave     " + checkpoint_text(s, first_step, directory);
}

}  // namespace gradus::train
