#include "train/run_data.h"

#include "core/check.h"
#include "train/units.h"

namespace gradus::train {
namespace {

int64_t vocabulary_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::text:
      return 256;
    case TokenFormat::llmc_llama3:
      return 128256;
    default:
      return 50257;  // GPT-2's
  }
}

std::shared_ptr<const Tokens> open(const std::string& path, bool as_text, int64_t vocabulary) {
  auto tokens = std::make_shared<const Tokens>(path);
  check(tokens->is_text() == as_text, "", path, " is ",
        as_text ? "a token file: give it as --data" : "a text: give it as --text");
  tokens->check_ids(vocabulary > 0 ? vocabulary : vocabulary_of(tokens->format()));
  return tokens;
}

}  // namespace

const std::string& data_path(const Settings& s) { return s.text.empty() ? s.data : s.text; }

RunData open_data(Settings& s) {
  const bool as_text = !s.text.empty();
  const auto tokens = open(data_path(s), as_text, s.vocabulary);
  if (s.vocabulary == 0) s.vocabulary = vocabulary_of(tokens->format());
  auto [training, held_out] =
      s.validation.empty()
          ? split(tokens, s.holdout)
          : std::pair(whole(tokens), whole(open(s.validation, as_text, s.vocabulary)));
  const std::string description = data_path(s) + ": " + with_commas(tokens->size()) + " tokens (" +
                                  name_of(tokens->format()) + "), " + with_commas(training.count) +
                                  " for training, " + with_commas(held_out.count) + " held out" +
                                  (s.validation.empty() ? "" : " in " + s.validation);
  return {TrainingData(training, s.length, s.batch, uint64_t(s.seed)),
          ValidationData(held_out, s.length), description};
}

}  // namespace gradus::train
