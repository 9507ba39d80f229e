#pragma once
// The subcommands of the program. Each takes the arguments from its own name on and returns the exit
// code: 0, 1 after an Error, 2 for wrong options.
#include <CLI/App.hpp>
#include <functional>

namespace gradus::train {

int train_command(int argc, const char* const* argv);
int generate_command(int argc, const char* const* argv);
int info_command(int argc, const char* const* argv);
int convert_command(int argc, const char* const* argv);
int report_command(int argc, const char* const* argv);
int diff_command(int argc, const char* const* argv);
int schedule_command(int argc, const char* const* argv);

/// Parses the arguments, then calls `body`; prints help and errors.
int run_command(CLI::App& app, int argc, const char* const* argv,
                const std::function<void()>& body);

}  // namespace gradus::train
