#include "train/piece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <set>

#include "core/check.h"
#include "train/disk.h"
#include "train/mapped_file.h"
#include "train/utf8.h"

namespace gradus::train {
namespace {

constexpr const char* kSpecialPieces[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

// "Internal: trainer.cc(660) [a == b] Vocabulary size too high" → "Vocabulary size too high"
std::string reason(const sentencepiece::util::Status& status) {
  const std::string text = status.ToString();
  const size_t end = text.rfind("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

std::unordered_map<std::string, std::string> options(const PieceTraining& t) {
  std::unordered_map<std::string, std::string> all = {
      {"model_type", t.kind},
      {"vocab_size", std::to_string(t.vocabulary)},
      {"byte_fallback", t.bytes ? "true" : "false"},
      {"character_coverage", "1"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"control_symbols", kSpecialPieces[PieceTokenizer::kMask]},
      {"max_sentence_length", "1000000000"},  // bytes; longer lines would be left out
      {"num_threads", "1"},
      {"minloglevel", "2"},
  };
  constexpr const char* kNames[] = {"pad", "unk", "bos", "eos"};
  for (int i = 0; i < 4; ++i) {
    all[std::string(kNames[i]) + "_id"] = std::to_string(i);
    all[std::string(kNames[i]) + "_piece"] = kSpecialPieces[i];
  }
  return all;
}

// "▁the" → " the"
std::string with_spaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpace);
    text += space ? ' ' : piece.front();
    piece.remove_prefix(space ? kSpace.size() : 1);
  }
  return text;
}

void check_utf8(std::string_view text) {
  const int64_t bad = find_invalid_utf8(text);
  check(bad < 0, "pieces of words are made of UTF-8, but byte ", bad,
        " of the text is none; convert it, or use --tokenizer bytes");
}

void check_room(const std::vector<std::string>& lines, const PieceTraining& t) {
  std::set<std::string_view> characters;
  for (const std::string_view line : lines)
    for (size_t i = 0, n; i < line.size(); i += n)
      characters.insert(line.substr(i, n = size_t(utf8_length(uint8_t(line[i])))));
  const int64_t other = PieceTokenizer::kSpecials + (t.bytes ? 256 : 0);
  check(t.vocabulary >= other + int64_t(characters.size()), "a vocabulary of ", t.vocabulary,
        " tokens is too small: there are ", other, t.bytes ? " bytes and" : "",
        " special tokens, and ", characters.size(), " characters in the text");
}

}  // namespace

PieceTokenizer::PieceTokenizer(std::string model, std::string path)
    : model_(std::move(model)),
      path_(std::move(path)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = processor_->LoadFromSerializedProto(model_);
  check(status.ok() && processor_->GetPieceSize() > 0, "", path_,
        " is no tokenizer of SentencePiece, or is damaged: ", status.ToString());
}
PieceTokenizer::PieceTokenizer(PieceTokenizer&&) noexcept = default;
PieceTokenizer::~PieceTokenizer() = default;

PieceTokenizer PieceTokenizer::learn(const std::vector<std::string>& lines,
                                     const PieceTraining& training) {
  for (const std::string& line : lines) check_utf8(line);
  check_room(lines, training);
  Lines iterator(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(options(training), &iterator, &model);
  check(status.ok(), "no tokenizer of ", training.vocabulary, " tokens can be learned from ",
        lines.size(), " lines: ", reason(status));
  return {std::move(model), "the tokenizer that was learned"};
}

PieceTokenizer PieceTokenizer::load(const std::string& path) {
  const MappedFile file(path);
  const auto* bytes = reinterpret_cast<const char*>(file.bytes().data());
  return {std::string(bytes, file.bytes().size()), path};
}

void PieceTokenizer::save(const std::string& directory) const {
  const std::string path = directory + "/" + kTokenizerFile, unfinished = path + ".new";
  const Disk disk;
  disk.remove_all(unfinished);
  disk.write_file(unfinished, model_);
  disk.rename(unfinished, path);
  disk.sync_directory(directory);
}

int64_t PieceTokenizer::vocabulary() const { return processor_->GetPieceSize(); }

std::vector<int32_t> PieceTokenizer::encode(const std::string& text) const {
  check_utf8(text);
  std::vector<int> ids;
  const auto status = processor_->Encode(text, &ids);
  check(status.ok(), "", path_, " cannot encode a text: ", status.ToString());
  return {ids.begin(), ids.end()};
}

std::string PieceTokenizer::decode(int32_t id) const {
  check(id >= 0 && id < vocabulary(), "", path_, " has ", vocabulary(), " tokens, not one with id ",
        id);
  if (processor_->IsControl(id)) return "";
  if (processor_->IsUnknown(id)) return piece(id);
  const std::string text = piece(id);
  if (processor_->IsByte(id)) return {char(std::stoi(text.substr(3, 2), nullptr, 16))};  // <0x0A>
  return with_spaces(text);
}

std::string PieceTokenizer::piece(int32_t id) const { return processor_->IdToPiece(id); }

bool PieceTokenizer::begins_word(int32_t id) const { return piece(id).starts_with(kSpace); }

void PieceTokenizer::check_vocabulary(int64_t wanted) const {
  check(vocabulary() == wanted, "", path_, " has ", vocabulary(), " tokens, but the model has ",
        wanted, "; they belong to different runs, or --vocabulary is not that of the tokenizer");
}

void PieceTokenizer::check_specials() const {
  for (int32_t id = 0; id < kSpecials; ++id)
    check(processor_->PieceToId(kSpecialPieces[id]) == id, "", path_, " has no token ",
          kSpecialPieces[id], " with id ", id,
          ": BERT needs one; --tokenizer bpe or unigram learns one that has it");
}

}  // namespace gradus::train
