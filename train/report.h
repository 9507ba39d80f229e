#pragma once
// Runs as a page that needs nothing else: no network, no other file. It is readable without its script,
// which adds the read-out below a pointer or, with the arrow keys, below a cursor.
#include <span>
#include <string>

#include "train/run_log.h"

namespace gradus::train {

/// HTML: a summary, the charts with all runs over each other, the settings with those that differ marked.
std::string report_html(std::span<const RunLog> runs);

}  // namespace gradus::train
