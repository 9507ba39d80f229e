#pragma once

namespace gradus::train {

/// What stands between <style> and </style>, and between <script> and </script>, in a report.
extern const char* const kReportStyle;
extern const char* const kReportScript;

}  // namespace gradus::train
