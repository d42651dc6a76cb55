#include "weft/cost/context_time.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"

namespace weft {

ContextSharing context_sharing(const BlockSetting& setting) {
  return {.cp = setting.cp,
          .ulysses = setting.cp_ulysses,
          .ulysses_link = setting.ulysses_link,
          .ring_link = setting.ring_link};
}

double ContextTime::exchange_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share,
                                const OpTime& time) const {
  if (attention.mask == Mask::kWindowed) return 0;  // windows are dealt out whole
  return exchange.kind == ExchangeKind::kHeads ? heads_ms(exchange, attention, share)
                                               : ring_ms(exchange, attention, share, time);
}

double ContextTime::kv_width(const Attention& attention, const OpShare& share) const {
  return as_double(heads_after_ulysses(attention, share, sharing_.ulysses).keys * sharing_.ulysses *
                   attention.head_dim);
}

/// Rows are packed by receiver before they travel, and put in order after.
double ContextTime::heads_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share) const {
  if (sharing_.ulysses_link.num_ranks <= 1) return 0;  // a device by itself
  const LocalHeads heads = heads_after_ulysses(attention, share, sharing_.ulysses);
  const double query = as_double(heads.queries * sharing_.ulysses * attention.head_dim);
  const double bytes = rows_ * bytes_ * (query + (exchange.has_keys ? 2 * kv_width(attention, share) : 0));
  return all_to_all_ms(sharing_.ulysses_link, bytes) + 4 * bytes / rates_.bytes_per_ms + 2 * rates_.kernel_ms;
}

/// Keys and values travel, and going back their gradients too, behind the attention of the block before. Of a causal
/// mask, a rank needs half of the keys of those before it and all of those behind it. In each step some rank gets
/// all; going back, one that also sends all there is only among the steps that are longer than half the ring.
double ContextTime::ring_ms(const BlockExchange& exchange, const Attention& attention, const OpShare& share,
                            const OpTime& time) const {
  const auto exposed = [&](double communication_ms, double compute_ms) {
    return std::max(0.0, communication_ms - overlap_ * compute_ms);
  };
  const double steps = as_double(sharing_.ring_link.num_ranks);
  const double step_ms = ring_step_ms(sharing_.ring_link, rows_ * bytes_ * 2 * kv_width(attention, share));
  if (exchange.goes_back) {
    const double compute_ms = time.input_gradient_ms / steps;
    const double with_half = attention.mask == Mask::kFull ? 0 : std::floor(steps / 2);
    return with_half * exposed(1.5 * step_ms, compute_ms) + (steps - 1 - with_half) * exposed(2 * step_ms, compute_ms);
  }
  return (steps - 1) * exposed(step_ms, time.forward_ms / steps);
}

}  // namespace weft
