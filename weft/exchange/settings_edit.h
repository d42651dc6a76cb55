#pragma once

#include "weft/exchange/import.h"

namespace weft {

/// One setting that a better plan has otherwise; a side is empty where the setting is not there.
struct SettingChange {
  std::string key;
  std::string before;
  std::string after;
};

/// A user's files, changed so that they describe another plan.
struct SettingsEdit {
  std::vector<SettingChange> changes;
  std::vector<SettingsFile> files;  ///< changed ones; empty where they could not be changed by their lines alone
  std::vector<ExportedFile> exported;
};

/// What would have to change in the files of a request so that they describe that plan. The files are given where, read
/// again, they do, with as few changes as that takes; else the changes and the exported settings alone say it.
Result<SettingsEdit> edit_settings(const ImportRequest& request, const ImportedRun& run, const Plan& wanted);

}  // namespace weft
