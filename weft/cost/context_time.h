#pragma once

#include "weft/cost/block_setting.h"
#include "weft/cost/op_time.h"
#include "weft/meaning/block_exchanges.h"

namespace weft {

/// Among how many ranks context parallelism shares rows out, and how these are connected.
struct ContextSharing {
  int64_t cp = 1, ulysses = 1;
  GroupLink ulysses_link, ring_link;

  int64_t ring() const { return cp / ulysses; }
};
ContextSharing context_sharing(const BlockSetting& setting);

/// What attention takes to exchange heads for rows, and keys round a ring, as far as computing does not hide it.
class ContextTime {
 public:
  /// Of so many rows a rank.
  ContextTime(const ContextSharing& sharing, const DeviceRates& rates, double overlap, double rows,
              double element_bytes)
      : sharing_(sharing), rates_(rates), overlap_(overlap), rows_(rows), bytes_(element_bytes) {}

  /// Of kHeads or kKeys: of attention that tensor parallelism divides as `share` says and that takes this time.
  double exchange_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share,
                     const OpTime& time) const;

 private:
  double kv_width(const Attention& attention, const OpShare& share) const;
  double heads_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share) const;
  double ring_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share,
                 const OpTime& time) const;

  ContextSharing sharing_;
  DeviceRates rates_;
  double overlap_;
  double rows_;
  double bytes_;
};

}  // namespace weft
