#include "train/sentences.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/check.h"

namespace gradus::train {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)); }

// Length of "1Chr12" in "1Chr12:3 And …", or 0 where no such reference stands.
size_t chapter_length(const std::string& line) {
  const auto run = [&](size_t i, bool (*is)(char)) {
    while (i < line.size() && is(line[i])) ++i;
    return i;
  };
  const size_t book = run(0, is_digit), name = run(book, is_letter), chapter = run(name, is_digit);
  const bool begins = book <= 1 && name > book && chapter > name;
  if (!begins || chapter >= line.size() || line[chapter] != ':') return 0;
  const size_t verse = run(chapter + 1, is_digit);
  return verse > chapter + 1 && verse < line.size() && line[verse] == ' ' ? chapter : 0;
}

bool is_blank(const std::string& line) {
  return std::all_of(line.begin(), line.end(), [](unsigned char c) { return std::isspace(c); });
}

void end_document(Sentences& s) {
  const auto count = int64_t(s.lines.size());
  if (s.documents.back() < count) s.documents.push_back(count);
}

void add_document(Sentences& to, const Sentences& from, size_t document) {
  to.lines.insert(to.lines.end(), from.lines.begin() + from.documents[document],
                  from.lines.begin() + from.documents[document + 1]);
  end_document(to);
}

}  // namespace

Sentences read_sentences(const std::string& text) {
  Sentences s;
  std::string chapter;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t length = chapter_length(line);
    if (is_blank(line) || (length > 0 && line.compare(0, length, chapter) != 0)) end_document(s);
    if (is_blank(line)) continue;
    chapter = line.substr(0, length);
    s.lines.push_back(length > 0 ? line.substr(line.find(' ') + 1) : line);
  }
  end_document(s);
  return s;
}

EncodedSentences::EncodedSentences(const Sentences& s, const PieceTokenizer& tokenizer)
    : starts_{0}, documents_(s.documents) {
  for (const std::string& line : s.lines) {
    const std::vector<int32_t> ids = tokenizer.encode(" " + line);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    starts_.push_back(int64_t(ids_.size()));
  }
}

std::span<const int32_t> EncodedSentences::tokens_of(int64_t first, int64_t last) const {
  const auto from = size_t(starts_[size_t(first)]), to = size_t(starts_[size_t(last)]);
  return std::span(ids_).subspan(from, to - from);
}

int64_t EncodedSentences::document_of(int64_t sentence) const {
  return std::upper_bound(documents_.begin(), documents_.end(), sentence) - documents_.begin() - 1;
}

std::pair<int64_t, int64_t> EncodedSentences::range_of(int64_t document) const {
  return {documents_[size_t(document)], documents_[size_t(document) + 1]};
}

std::pair<Sentences, Sentences> split(const Sentences& all, double fraction) {
  check(fraction > 0 && fraction < 1, "the held-out fraction must lie between 0 and 1, got ",
        fraction);
  std::pair<Sentences, Sentences> parts;
  for (size_t d = 0; d + 1 < all.documents.size(); ++d) {
    const bool held = int64_t(double(d + 1) * fraction) > int64_t(double(d) * fraction);
    add_document(held ? parts.second : parts.first, all, d);
  }
  return parts;
}

}  // namespace gradus::train
