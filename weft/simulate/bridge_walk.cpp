#include "weft/simulate/bridge_walk.h"

#include "weft/spec/precision.h"

namespace weft {
namespace {

/// Whether places follow each other, so that rows are a slice.
bool are_run(const std::vector<Range>& places) {
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin != places[i - 1].end) return false;
  }
  return true;
}

}  // namespace

std::optional<BridgeWalk> BridgeWalk::make(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank,
                                           ByteCount& count, Flights& flights) {
  std::optional<StepRoutes> routes = step_routes(plan, load, encoder, rank);
  if (!routes) return std::nullopt;
  const Module& spec = *plan.model.find(plan.modules[encoder].kind);
  const auto bytes = static_cast<int64_t>(num_bytes(plan.precision.compute));
  BridgeWalk bridge(*std::move(routes), spec.output_width * bytes, count, flights);
  const RowNumbers& numbers = load.beside.at(spec.kind).numbers;
  bridge.macros_.resize(bridge.routes_.rows.size());
  for (const std::vector<int64_t>& rows : bridge.routes_.taken) {
    std::vector<Run>& runs = bridge.runs_.emplace_back();
    for (const int64_t row : rows) {
      const int64_t macro = numbers.macro_of(row);
      if (runs.empty() || runs.back().macro != macro) runs.push_back({.macro = macro});
      ++runs.back().count;
      ++bridge.macros_[static_cast<size_t>(macro)].num_unread;
    }
  }
  return bridge;
}

void BridgeWalk::send(const OwnRoute& route, const CountedTensor& rows, Way& way) {
  for (const OwnMessage& message : route.sent)
    flights_->add(are_run(message.places) ? rows : make_rows(message.num_rows()));
  if (!route.kept_to.empty()) way.own = rows;
}

void BridgeWalk::receive(const OwnRoute& route, Way& way) {
  way.result = make_rows(route.num_needed);
  for (const OwnMessage& message : route.received) {
    if (!are_run(message.places)) flights_->add(make_rows(message.num_rows()));
  }
  if (!are_run(route.kept_from)) const CountedTensor taken = make_rows(total_size(route.kept_from));
  way.own.reset();
}

void BridgeWalk::send_rows(int64_t macro, const CountedTensor& rows) {
  send(routes_.rows[static_cast<size_t>(macro)], rows, macros_[static_cast<size_t>(macro)].there);
}

void BridgeWalk::receive_rows(int64_t macro) {
  receive(routes_.rows[static_cast<size_t>(macro)], macros_[static_cast<size_t>(macro)].there);
}

CountedTensor BridgeWalk::take_rows(int64_t microbatch) {
  const std::vector<Run>& runs = runs_[static_cast<size_t>(microbatch)];
  std::vector<CountedTensor> pieces;
  int64_t num_rows = 0;
  for (const Run& run : runs) {
    Macro& from = macros_[static_cast<size_t>(run.macro)];
    pieces.push_back(from.there.result);
    num_rows += run.count;
    from.num_unread -= run.count;
    if (from.num_unread == 0) from.there.result.reset();
  }
  return pieces.size() == 1 ? pieces.front() : make_rows(num_rows);
}

int64_t BridgeWalk::bytes_taken(int64_t microbatch) const {
  int64_t num_rows = 0;
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) num_rows += run.count;
  return num_rows * row_bytes_;
}

void BridgeWalk::give_gradient(int64_t microbatch, const CountedTensor& gradient) {
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) {
    Macro& of = macros_[static_cast<size_t>(run.macro)];
    const int64_t num_rows = routes_.gradients[static_cast<size_t>(run.macro)].num_held;
    if (run.count == num_rows) {
      of.gradient = gradient;
    } else if (!of.gradient.is_defined()) {
      of.gradient = make_rows(num_rows);
    }
  }
}

void BridgeWalk::send_gradients(int64_t macro) {
  Macro& of = macros_[static_cast<size_t>(macro)];
  send(routes_.gradients[static_cast<size_t>(macro)], of.gradient, of.back);
  of.gradient.reset();
}

void BridgeWalk::receive_gradients(int64_t macro) {
  receive(routes_.gradients[static_cast<size_t>(macro)], macros_[static_cast<size_t>(macro)].back);
}

}  // namespace weft
