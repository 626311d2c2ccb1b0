// SPDX-License-Identifier: Apache-2.0
// What scenarios can name: strategies with their options, model presets and families, shipped profiles.
#pragma once

#include "models/families/hf_config.hpp"
#include "sim/machine/profile.hpp"
#include "strategies/strategy.hpp"
#include "strategies/textbook/textbook.hpp"
