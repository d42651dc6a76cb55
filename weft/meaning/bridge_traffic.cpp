#include "weft/meaning/bridge_traffic.h"

#include "weft/meaning/group_names.h"
#include "weft/meaning/step_routes.h"

namespace weft {
namespace {

constexpr int64_t kNumberBytes = sizeof(int64_t);

void add_messages(const RankGroup& group, const OwnRoute& route, int64_t row_elements, int64_t bytes, CallList& calls) {
  for (const OwnMessage& message : route.sent) calls.send(group, message.num_rows() * row_elements, bytes);
  for (const OwnMessage& message : route.received) calls.receive(group, message.num_rows() * row_elements, bytes);
}

}  // namespace

void add_bridge_traffic(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank, CallList& calls) {
  const std::optional<StepRoutes> routes = step_routes(plan, load, encoder, rank);
  if (!routes) return;
  const ModuleKind kind = plan.modules[encoder].kind;
  const RankGroup rows = named_group(group_names::rows_of(kind), routes->ranks, rank);
  const RankGroup gradients = named_group(group_names::gradients_of(kind), routes->ranks, rank);
  for (const StepRoutes::Told& told : routes->told) {
    calls.send(rows, 1, kNumberBytes);
    calls.receive(rows, 1, kNumberBytes);
    calls.send(rows, told.sent, kNumberBytes);
    calls.receive(rows, told.received, kNumberBytes);
  }
  const int64_t width = plan.model.find(kind)->output_width;
  const auto bytes = static_cast<int64_t>(num_bytes(plan.precision.compute));
  for (const OwnRoute& route : routes->rows) add_messages(rows, route, width, bytes, calls);
  for (const OwnRoute& route : routes->gradients) add_messages(gradients, route, width, bytes, calls);
}

}  // namespace weft
