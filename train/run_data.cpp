#include "train/run_data.h"

#include <filesystem>
#include <sstream>

#include "core/check.h"
#include "train/sentence_pairs.h"
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

// Rows of the token table: the ids, and unused ones up to a multiple of 128. The product with the table
// is a third of the work of a small GPT-2, and an odd number of rows keeps it from wide loads.
int64_t table_rows(TokenFormat format) {
  const int64_t ids = vocabulary_of(format);
  return (ids + 127) / 128 * 128;
}

std::shared_ptr<const Tokens> open(const std::string& path, bool as_text) {
  auto tokens = std::make_shared<const Tokens>(path);
  check(tokens->is_text() == as_text, "", path, " is ",
        as_text ? "a token file: give it as --data" : "a text: give it as --text");
  return tokens;
}

std::string text_of(const Tokens& bytes, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  bytes.copy(0, count, values.data());
  return {values.begin(), values.end()};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

PieceTokenizer read_tokenizer(const std::string& path) {
  std::error_code ignored;
  check(std::filesystem::exists(path, ignored),
        "--tokenizer can be bytes, bpe, unigram or a file of SentencePiece; there is no file '",
        path, "'");
  return PieceTokenizer::load(path);
}

// Learned from `lines`, read, or that of the run that goes on. Settles the vocabulary.
std::shared_ptr<const PieceTokenizer> open_pieces(Settings& s,
                                                  const std::vector<std::string>& lines,
                                                  const std::string& run, bool bytes) {
  const auto make = [&] {
    if (!run.empty()) return PieceTokenizer::load(run + "/" + kTokenizerFile);
    if (!learns_tokenizer(s)) return read_tokenizer(s.tokenizer);
    return PieceTokenizer::learn(lines,
                                 {.kind = s.tokenizer, .vocabulary = s.vocabulary, .bytes = bytes});
  };
  auto pieces = std::make_shared<const PieceTokenizer>(make());
  if (s.vocabulary == 0) s.vocabulary = pieces->vocabulary();
  pieces->check_vocabulary(s.vocabulary);
  return pieces;
}

// Pieces are learned from what is trained on: held-out text stays unseen.
std::shared_ptr<const Tokenizer> open_tokenizer(Settings& s, const Tokens& bytes,
                                                const std::string& run) {
  if (s.text.empty() || s.tokenizer == "bytes") return tokenizer_of(s, run);
  const double kept = s.validation.empty() ? 1 - s.holdout : 1;
  const std::string text = text_of(bytes, int64_t(double(bytes.size()) * kept));
  return open_pieces(s, lines_of(text), run, true);
}

// What the model reads: the file itself, or the pieces of its text.
std::shared_ptr<const Tokens> tokens_of(const Settings& s, std::shared_ptr<const Tokens> file,
                                        const Tokenizer& tokenizer) {
  if (s.text.empty() || s.tokenizer == "bytes") {
    const bool padded = s.vocabulary == table_rows(file->format());
    file->check_ids(padded ? vocabulary_of(file->format()) : s.vocabulary);
    return file;
  }
  return std::make_shared<const Tokens>(file->path(),
                                        tokenizer.encode(text_of(*file, file->size())));
}

SentencePairs pairs_of(const Settings& s, const Sentences& sentences,
                       std::shared_ptr<const PieceTokenizer> tokenizer, uint64_t seed) {
  EncodedSentences text(sentences, *tokenizer);
  return {std::move(text),
          std::move(tokenizer),
          {.length = s.length, .mask = s.mask, .whole_words = s.whole_words, .seed = seed}};
}

// For a BERT. Held-out pairs are the same ones whatever the seed of the run.
RunData open_pairs(Settings& s, const std::string& run) {
  const auto sentences_in = [](const std::string& path) {
    const auto bytes = open(path, true);
    return read_sentences(text_of(*bytes, bytes->size()));
  };
  auto [training, held_out] = s.validation.empty()
                                  ? split(sentences_in(s.text), s.holdout)
                                  : std::pair(sentences_in(s.text), sentences_in(s.validation));
  std::vector<std::string> lines;
  for (const std::string& line : training.lines) lines.push_back(" " + line);
  const auto pieces = open_pieces(s, lines, run, false);
  pieces->check_specials();
  auto seen =
      std::make_unique<const TrainingPairs>(pairs_of(s, training, pieces, uint64_t(s.seed)));
  auto unseen = std::make_unique<const ValidationPairs>(
      pairs_of(s, held_out, pieces, 0), unigram_entropy(seen->pairs().text().ids()));
  const auto count = [](const SentencePairs& p) {
    return with_commas(p.text().sentences()) + " sentences of " +
           with_commas(p.text().documents()) + " documents, " + with_commas(p.text().tokens()) +
           " tokens,";
  };
  const std::string description = s.text + ": " + count(seen->pairs()) + " for training; " +
                                  count(unseen->pairs()) + " held out" +
                                  (s.validation.empty() ? "" : " in " + s.validation);
  return {std::move(seen), std::move(unseen), pieces, description};
}

}  // namespace

const std::string& data_path(const Settings& s) { return s.text.empty() ? s.data : s.text; }

RunData open_data(Settings& s, const std::string& run) {
  if (is_bert(s)) return open_pairs(s, run);
  const bool as_text = !s.text.empty();
  const auto file = open(data_path(s), as_text);
  if (!as_text && s.vocabulary == 0) s.vocabulary = table_rows(file->format());
  auto tokenizer = open_tokenizer(s, *file, run);
  const auto tokens = tokens_of(s, file, *tokenizer);
  auto [training, held_out] =
      s.validation.empty()
          ? split(tokens, s.holdout)
          : std::pair(whole(tokens), whole(tokens_of(s, open(s.validation, as_text), *tokenizer)));
  const std::string description = data_path(s) + ": " + with_commas(tokens->size()) + " tokens (" +
                                  name_of(tokens->format()) + "), " + with_commas(training.count) +
                                  " for training, " + with_commas(held_out.count) + " held out" +
                                  (s.validation.empty() ? "" : " in " + s.validation);
  return {std::make_unique<const TrainingWindows>(training, s.length, s.batch, uint64_t(s.seed)),
          std::make_unique<const ValidationWindows>(held_out, s.length), std::move(tokenizer),
          description};
}

}  // namespace gradus::train
