// SPDX-License-Identifier: Apache-2.0
// Results as text, JSON, CSV, pages, pictures and traces. Writers compute nothing.
#pragma once

#include "reports/check_report.hpp"
#include "reports/comparison_report.hpp"
#include "reports/execution_report.hpp"
#include "reports/html/html.hpp"
#include "reports/html/profile_html.hpp"
#include "reports/html/simulate_html.hpp"
#include "reports/html/timeline_svg.hpp"
#include "reports/planner_report.hpp"
#include "reports/profile_rows.hpp"
#include "reports/profile_text.hpp"
#include "reports/table.hpp"
#include "reports/text.hpp"
#include "reports/trace.hpp"
#include "reports/verify_report.hpp"
#include "sim/base/output.hpp"
#include "sim/base/units_text.hpp"
