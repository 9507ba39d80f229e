#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "train/commands.h"
#include "train/report.h"

namespace gradus::train {
namespace {

void report(const std::vector<std::string>& directories, std::string out) {
  std::vector<RunLog> runs;
  for (const std::string& directory : directories) runs.push_back(read_run_log(directory));
  if (out.empty()) out = directories.size() == 1 ? directories[0] + "/report.html" : "report.html";
  std::ofstream file(out, std::ios::binary);
  file << report_html(runs) << std::flush;
  check(file.good(), "cannot write ", out);
  std::cout << "written: " << out << std::endl;
}

}  // namespace

int report_command(int argc, const char* const* argv) {
  std::vector<std::string> directories;
  std::string out;
  CLI::App app("Makes a page of what happened in a run, or in several to compare them.",
               "gradus report");
  app.add_option("RUN", directories, "directories of runs")->required();
  app.add_option("--out", out, "the page (default: report.html in the run, or here for several)");
  return run_command(app, argc, argv, [&] { report(directories, out); });
}

}  // namespace gradus::train
