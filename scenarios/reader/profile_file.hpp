// SPDX-License-Identifier: Apache-2.0
// Cluster profiles as files: found by name, and one built on another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/config/node.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// A profile's tree. A profile with `base: h100-sxm.yaml` is that one with its own values in place of the base's; a price is not taken
/// over, since it belongs to who lends the machine.
struct ProfileTree {
  ConfigNode root;
  std::vector<std::string> changed;  ///< dotted keys in which it differs from its base
};

/// The file that a scenario's `cluster.profile` names: a path, or the name of a shipped profile ("h100-sxm"). Nothing where there are
/// problems.
[[nodiscard]] std::optional<ProfileTree> read_profile_file(const ConfigNode& name, const std::string& folder, Problems& problems);

/// Takes out the measured collectives that say nothing about a machine whose values of `changed` keys are others than where they were
/// measured.
void drop_outdated_fits(Profile& profile, const std::vector<std::string>& changed);

/// The profile in a file, or the shipped one of that name.
[[nodiscard]] Result<Profile> load_profile(const std::string& path, Completeness completeness = Completeness::whole);

/// Paths of the shipped profiles, sorted.
[[nodiscard]] std::vector<std::string> shipped_profiles();

}  // namespace shardsim
