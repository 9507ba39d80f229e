#pragma once

namespace gradus::detail {

/// Whether the backward that this thread runs keeps the graph, so that another may run on it. Where it
/// does not, an op may give its saved memory away.
bool& keeps_graph();

}  // namespace gradus::detail
