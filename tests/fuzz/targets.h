#pragma once
// Readers of what others wrote, each as a function of bytes: whatever they are, it returns or throws
// Error. Anything else, another exception, a crash, a sanitizer's finding, is a fault of the reader.
//
//   make fuzz                         libFuzzer looks for such bytes, AddressSanitizer watches
//   tests/fuzz/readers_test.cpp       the known inputs and small changes to them, in every `make test`
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradus::fuzz {

using Bytes = std::span<const uint8_t>;

void safetensors(Bytes bytes);       // a file of Hugging Face
void hf_config(Bytes bytes);         // its config.json
void checkpoint_index(Bytes bytes);  // index.json of a checkpoint
void token_file(Bytes bytes);        // a .bin or a text: the first byte chooses
void schedule_text(Bytes bytes);     // a schedule in words

struct Target {
  const char* name;  // and the folder of its inputs in tests/fuzz/corpus
  void (*run)(Bytes);
};
inline constexpr Target kTargets[] = {{"safetensors", safetensors},
                                      {"hf_config", hf_config},
                                      {"checkpoint_index", checkpoint_index},
                                      {"token_file", token_file},
                                      {"schedule_text", schedule_text}};

}  // namespace gradus::fuzz
