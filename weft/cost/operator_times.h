#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/cost/op_time.h"
#include "weft/profile/profile.h"

namespace weft {

/// What a profile measured of operators of a user's own program.
class OperatorTimes {
 public:
  /// Of measurements beside other busy ranks, those count with at most `busy_ranks`, and of these the most.
  OperatorTimes(const Profile& profile, int64_t busy_ranks);

  bool empty() const { return parts_.empty(); }
  Precision precision() const { return precision_; }

  struct Found {
    OpTime time;             ///< with what the operator communicates inside
    bool is_scaled = false;  ///< from the part of this operator that has most nearly as much work
  };
  /// Nothing where no part of the operator was measured.
  std::optional<Found> find(const OperatorPart& part) const;

 private:
  struct Measured {
    std::string parts;
    double work = 0;
    int64_t busy_ranks = 1;
    OpTime time;
  };

  Precision precision_;
  /// By operator, and what it cuts inside.
  std::map<std::pair<std::string, std::string>, std::vector<Measured>> parts_;
};

}  // namespace weft
