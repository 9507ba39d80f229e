#include "autograd/graph.h"

#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"

namespace gradus {
namespace {

std::string label(const Node& node) {
  std::ostringstream out;
  out << node.name();
  if (TensorImpl* leaf = node.leaf()) {
    Tensor t{Ref<TensorImpl>(leaf)};
    if (!t.name().empty()) out << ' ' << t.name();
  }
  for (size_t i = 0; i < node.outputs.size(); ++i)
    out << (i ? ", " : "  ") << node.outputs[i].shape << ' ' << node.outputs[i].dtype;
  if (node.saved_bytes) out << "  saves " << node.saved_bytes << " bytes";
  return out.str();
}

/// Visits each node behind `root` once, without recursion.
template <class Visit>
void for_each_node(const Tensor& root, Visit visit) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack;
  auto meet = [&](Node* n) {
    if (n && seen.insert(n).second) stack.push_back(n);
  };
  meet(root.gradient_edge().node.get());
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    visit(*node);
    for (const Edge& e : node->next_functions) meet(e.node.get());
  }
}

}  // namespace

std::string graph_text(const Tensor& root, int limit) {
  struct Entry {
    Node* node;
    std::string indent, branch;
  };
  std::unordered_map<Node*, int> numbers;
  std::ostringstream out;
  Ref<Node> first = root.gradient_edge().node;
  if (!first) return "no graph: nothing here requires a gradient\n";
  std::vector<Entry> stack{{first.get(), "", ""}};
  int lines = 0;
  while (!stack.empty()) {
    Entry e = std::move(stack.back());
    stack.pop_back();
    if (lines++ >= limit) continue;
    out << e.indent << e.branch;
    if (e.node->leaf()) {
      out << label(*e.node) << '\n';
      continue;
    }
    auto [it, is_new] = numbers.emplace(e.node, int(numbers.size()) + 1);
    out << '#' << it->second << ' ' << (is_new ? label(*e.node) : std::string("(above)")) << '\n';
    if (!is_new) continue;
    std::string indent = e.indent + (e.branch.empty() ? "" : e.branch == "├─ " ? "│  " : "   ");
    std::vector<Node*> inputs;
    for (const Edge& edge : e.node->next_functions)
      if (edge.node) inputs.push_back(edge.node.get());
    for (size_t i = inputs.size(); i-- > 0;)
      stack.push_back({inputs[i], indent, i + 1 == inputs.size() ? "└─ " : "├─ "});
  }
  if (lines > limit) out << "… " << lines - limit << " more lines\n";
  return out.str();
}

std::string graph_dot(const Tensor& root) {
  std::ostringstream out;
  out << "digraph gradus {\n  rankdir=BT;\n";
  for_each_node(root, [&](Node& node) {
    out << "  n" << &node << " [label=\"" << label(node) << "\"" << (node.leaf() ? " shape=box" : "")
        << "];\n";
    for (const Edge& e : node.next_functions) {
      if (!e.node) continue;
      out << "  n" << e.node.get() << " -> n" << &node;
      if (e.node->outputs.size() > 1) out << " [label=\"" << e.output_nr << "\"]";
      out << ";\n";
    }
  });
  out << "}\n";
  return out.str();
}

GraphSize graph_size(const Tensor& root) {
  GraphSize size;
  for_each_node(root, [&](Node& node) {
    size.nodes += !node.leaf();
    size.saved_bytes += node.saved_bytes;
  });
  return size;
}

}  // namespace gradus
