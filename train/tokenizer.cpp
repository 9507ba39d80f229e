#include "train/tokenizer.h"

#include <algorithm>
#include <sstream>

#include "core/check.h"
#include "train/piece_tokenizer.h"

namespace gradus::train {

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (int32_t id : ids) text += decode(id);
  return text;
}

std::vector<int32_t> ByteTokenizer::encode(const std::string& text) const {
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return uint8_t(c); });
  return ids;
}

std::vector<int32_t> NumberTokenizer::encode(const std::string& text) const {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int64_t id = -1;
    std::istringstream number(word);
    check(number >> id && number.eof() && id >= 0 && id < vocabulary_, "'", word,
          "' is no token id from 0 to ", vocabulary_ - 1,
          ": the model was trained on a token file, so its prompt is a list of ids");
    ids.push_back(int32_t(id));
  }
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_of(const Settings& s, const std::string& directory) {
  if (s.text.empty()) return std::make_unique<NumberTokenizer>(s.vocabulary);
  if (s.tokenizer == "bytes") return std::make_unique<ByteTokenizer>();
  auto pieces =
      std::make_unique<PieceTokenizer>(PieceTokenizer::load(directory + "/" + kTokenizerFile));
  pieces->check_vocabulary(s.vocabulary);
  return pieces;
}

std::string printable(std::string text) {
  for (char& c : text) {
    const bool control = (c >= 0 && c < 32) || c == 127;
    if (control && c != '\n' && c != '\t') c = '?';
  }
  return text;
}

}  // namespace gradus::train
