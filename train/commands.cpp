#include "train/commands.h"

#include <CLI/CLI.hpp>
#include <iostream>

namespace gradus::train {

int run_command(CLI::App& app, int argc, const char* const* argv,
                const std::function<void()>& body) {
  constexpr int kFailed = 1, kWrongOptions = 2;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongOptions;
  }
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::cout << std::flush;
    std::cerr << app.get_name() << ": " << error.what() << std::endl;
    return kFailed;
  }
}

}  // namespace gradus::train
