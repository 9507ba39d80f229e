#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/report_charts.h"
#include "train/report_style.h"
#include "train/svg_plot.h"
#include "train/units.h"

namespace gradus::train {
namespace {

using nlohmann::json;

constexpr double kSize = 1000;  // of a picture, both ways: it is stretched
constexpr size_t kColours = 6;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

// <name class="…">content</name>
std::string element(const std::string& name, const std::string& content,
                    const std::string& attributes = "") {
  return "<" + name + (attributes.empty() ? "" : " " + attributes) + ">" + content + "</" + name +
         ">";
}

std::string run_class(size_t run) {
  return std::string("r").append(std::to_string(run % kColours));
}

std::string value_text(double value) {
  return std::isfinite(value) ? number_text(value) : "not finite";
}

// ---- Charts

Axes axes_of(const ReportChart& chart) {
  std::vector<Curve> curves;
  for (const Line& line : chart.lines) curves.push_back({line.name, line.points});
  return train::axes_of(curves, 7, 5, chart.scale);
}

std::string grid(const Axes& axes) {
  std::string d;
  for (double tick : axes.y.ticks)
    d += format("M0 %.1fH%.0f", kSize * (1 - axes.y.share(tick)), kSize);
  for (double tick : axes.x.ticks) d += format("M%.1f 0V%.0f", kSize * axes.x.share(tick), kSize);
  return "<path class=\"grid\" d=\"" + d + "\"/>";
}

// A dot is a line of length 0 with round ends.
std::string dots(const Line& line, const Axes& axes) {
  std::string d;
  for (const Point& p : line.points)
    if (std::isfinite(p.y))
      d += format("M%.1f %.1fh0", kSize * axes.x.share(p.x), kSize * (1 - axes.y.share(p.y)));
  return "<path class=\"dots " + run_class(line.run) + "\" d=\"" + d + "\"/>";
}

std::string drawn(const Line& line, const Axes& axes) {
  constexpr const char* kClass[] = {"line", "faint", "dotted"};
  std::string out = std::string("<path class=\"") + kClass[line.kind] + " " + run_class(line.run) +
                    "\" d=\"" + svg_path(line.points, axes, kSize, kSize) + "\"/>";
  if (line.kind == Line::dotted || line.points.size() == 1) out += dots(line, axes);
  return out;
}

std::string labels(const Axis& axis, const char* name) {
  const bool is_y = *name == 'y';
  std::string out;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double share = axis.share(axis.ticks[i]);
    out += element(
        "span", axis.labels[i],
        format("style=\"%s:%.2f%%\"", is_y ? "top" : "left", 100 * (is_y ? 1 - share : share)));
  }
  return element("div", out, std::string("class=\"") + name + "\" aria-hidden=\"true\"");
}

// In words, for those who cannot see it.
std::string description(const ReportChart& chart) {
  std::string text = chart.title + " over steps.";
  for (const Line& line : chart.lines) {
    if (line.kind == Line::faint) continue;
    const Point &first = line.points.front(), &last = line.points.back();
    text.append(" ").append(line.name).append(line.name.empty() ? "from " : ": from ");
    text.append(value_text(first.y)).append(" at step ").append(number_text(first.x));
    text.append(" to ").append(value_text(last.y)).append(" at step ");
    text.append(number_text(last.x)).append(".");
  }
  return text;
}

std::string swatch(const Line& line) {
  constexpr const char* kClass[] = {"line", "faint", "dotted"};
  return "<svg class=\"swatch " + run_class(line.run) +
         "\" viewBox=\"0 0 32 14\" aria-hidden=\"true\"><path class=\"" + kClass[line.kind] +
         "\" d=\"M0 7H32\"/></svg>";
}

std::string key(const ReportChart& chart) {
  std::string items;
  for (const Line& line : chart.lines)
    if (!line.name.empty()) items += element("li", swatch(line) + escape_markup(line.name));
  return items.empty() ? "" : element("ul", items, "class=\"key\"");
}

std::string figure(const ReportChart& chart) {
  const Axes axes = axes_of(chart);
  std::string picture = grid(axes);
  for (const Line& line : chart.lines) picture += drawn(line, axes);
  picture += format("<line class=\"cursor\" y1=\"0\" y2=\"%.0f\"/>", kSize);
  const std::string unit =
      chart.unit + (chart.scale == Scale::logarithmic
                        ? std::string(chart.unit.empty() ? "" : ", ") + "logarithmic"
                        : "");
  const std::string label = "aria-label=\"" + escape_markup(description(chart)) + "\"";
  return element(
      "figure",
      element("figcaption", element("h2", chart.title) + element("span", unit, "class=\"unit\"")) +
          element("p", "Point at the chart, or press ← and →.",
                  "class=\"read\" aria-live=\"polite\"") +
          element("div",
                  labels(axes.y, "y") +
                      element("svg", picture,
                              format("viewBox=\"0 0 %.0f %.0f\" preserveAspectRatio=\"none\" "
                                     "role=\"img\" ",
                                     kSize, kSize) +
                                  label) +
                      labels(axes.x, "x"),
                  "class=\"plot\"") +
          key(chart),
      "tabindex=\"0\"");
}

// What the script reads: short numbers, null where there is none.
json data_of(const ReportChart& chart) {
  const auto rounded = [](double y) {
    return std::isfinite(y) ? json::parse(format("%.5g", y)) : json();
  };
  const Axes axes = axes_of(chart);
  json lines = json::array();
  for (const Line& line : chart.lines) {
    json xs = json::array(), ys = json::array();
    for (const Point& p : line.points) xs.push_back(int64_t(p.x)), ys.push_back(rounded(p.y));
    lines.push_back({line.name, line.run, xs, ys});
  }
  return {{"x", {axes.x.low, axes.x.high}}, {"lines", lines}};
}

// ---- Tables

std::string row(const std::vector<std::string>& cells, const char* kind,
                const std::string& attributes = "") {
  std::string out = element("th", cells[0], "scope=\"row\"");
  for (size_t i = 1; i < cells.size(); ++i) out += element(kind, cells[i], "class=\"number\"");
  return element("tr", out, attributes);
}

std::string table(const std::vector<std::string>& head, const std::string& rows) {
  std::string cells;
  for (size_t i = 0; i < head.size(); ++i)
    cells += element("th", head[i], std::string("scope=\"col\"") + (i ? " class=\"number\"" : ""));
  return element("div",
                 element("table", element("thead", element("tr", cells)) + element("tbody", rows)),
                 "class=\"wide\" tabindex=\"0\"");
}

std::string last_text(const RunLog& run, const char* metric) {
  const std::vector<Point>& points = run.curve(metric);
  return points.empty() ? "–" : value_text(points.back().y);
}

std::string best_validation(const RunLog& run) {
  const Point* best = nullptr;
  for (const Point& p : run.curve("validation_loss"))
    if (std::isfinite(p.y) && (!best || p.y < best->y)) best = &p;
  return best ? number_text(best->y) + " at step " + with_commas(int64_t(best->x)) : "–";
}

std::string tokens_text(const RunLog& run) {
  const std::vector<Point>& tokens = run.curve("tokens");
  return tokens.empty() ? "–" : with_commas(int64_t(tokens.back().y));
}

std::string summary(std::span<const RunLog> runs) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunLog& r = runs[i];
    const Line line{Line::line, i, "", {}};
    rows += row({swatch(line) + escape_markup(r.name), with_commas(r.steps), tokens_text(r),
                 last_text(r, "loss"), last_text(r, "validation_loss"), best_validation(r),
                 last_text(r, "tokens_per_second"), std::to_string(r.skipped.size())},
                "td");
  }
  return table({"run", "steps", "tokens", "loss", "validation", "best validation",
                "tokens a second", "steps skipped"},
               rows);
}

std::string skipped_steps(std::span<const RunLog> runs) {
  constexpr size_t kMost = 20;
  std::string items;
  for (const RunLog& run : runs)
    for (size_t i = 0; i < std::min(run.skipped.size(), kMost); ++i) {
      const auto& [step, tensor] = run.skipped[i];
      items +=
          element("li", escape_markup(run.name + ", step " + with_commas(step) + ": " + tensor));
    }
  if (items.empty()) return "";
  return element("details", element("summary", "Steps skipped because a gradient was not finite") +
                                element("ul", items));
}

std::optional<std::string> setting(const RunLog& run, const std::string& name) {
  for (const auto& [key, value] : run.settings)
    if (key == name) return value;
  return std::nullopt;
}

std::string settings(std::span<const RunLog> runs) {
  std::vector<std::string> names, head{"setting"};
  for (const RunLog& run : runs) {
    head.push_back(escape_markup(run.name));
    for (const auto& item : run.settings)
      if (std::find(names.begin(), names.end(), item.first) == names.end())
        names.push_back(item.first);
  }
  if (names.empty())
    return element("p", "There is no checkpoint yet, so the settings are not known.");
  std::string rows;
  for (const std::string& name : names) {
    std::vector<std::string> cells{escape_markup(name)};
    bool differs = false;
    for (const RunLog& run : runs) {
      differs = differs || setting(run, name) != setting(runs[0], name);
      cells.push_back(escape_markup(setting(run, name).value_or("–")));
    }
    rows += row(cells, "td", differs ? "class=\"differs\"" : "");
  }
  return element("details", element("summary", "Settings") + table(head, rows), "open");
}

std::string without_tags(std::string text) {  // inside <script>, "<" could begin its end
  for (size_t at; (at = text.find('<')) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string report_html(std::span<const RunLog> runs) {
  check(!runs.empty(), "a report needs at least one run");
  std::string title = runs.size() == 1 ? "Run " : "Runs ";
  for (size_t i = 0; i < runs.size(); ++i) title += (i ? ", " : "") + runs[i].name;
  title = escape_markup(title);
  std::string figures;
  json data = json::array();
  for (const ReportChart& chart : charts_of(runs)) {
    figures += figure(chart) + "\n";
    data.push_back(data_of(chart));
  }
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         element("title", title) + "\n<style>" + kReportStyle + "</style>\n</head>\n<body>\n" +
         element("h1", title) + "\n<main>\n" + summary(runs) + "\n<div class=\"charts\">\n" +
         figures + "</div>\n" + skipped_steps(runs) + settings(runs) + "\n</main>\n" +
         element("script", without_tags(data.dump()), "id=\"data\" type=\"application/json\"") +
         "\n<script>" + kReportScript + "</script>\n</body>\n</html>\n";
}

}  // namespace gradus::train
