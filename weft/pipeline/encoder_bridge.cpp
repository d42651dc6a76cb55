#include "weft/pipeline/encoder_bridge.h"

#include <algorithm>
#include <chrono>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"

namespace weft {

EncoderBridge::EncoderBridge(Settings settings)
    : settings_(std::move(settings)), routes_(settings_.ends, settings_.rows.rank()) {
  WEFT_CHECK(std::ssize(settings_.ends.makers) == settings_.rows.size(), "{} of {} ranks are told of",
             settings_.ends.makers.size(), settings_.rows.size());
}

/// What this rank takes in, and where microbatches find it.
std::vector<RowRun> EncoderBridge::list_needed(const std::vector<std::vector<int64_t>>& needed) {
  std::vector<RowRun> all, of_microbatch;
  for (const std::vector<int64_t>& rows : needed) {
    std::vector<Run>& runs = runs_.emplace_back();
    of_microbatch.clear();
    add_runs(rows, rank(), 0, of_microbatch);
    for (const RowRun& run : of_microbatch) {
      for (int64_t row = run.first_row; row < run.end_row();) {
        const int64_t k = numbers_.macro_of(row);
        const int64_t count = std::min(run.end_row(), numbers_.rows(k).end) - row;
        // Rows of a macro batch come in the order in which microbatches need them.
        if (runs.empty() || runs.back().macro != k)
          runs.push_back({.macro = k, .first = macro(k).num_unread, .count = 0});
        runs.back().count += count;
        macro(k).num_unread += count;
        macro(k).num_ungiven += count;
        row += count;
      }
    }
    all.insert(all.end(), of_microbatch.begin(), of_microbatch.end());
  }
  return all;
}

std::vector<RowRun> EncoderBridge::list_made(const std::vector<std::vector<int64_t>>& made) const {
  std::vector<RowRun> all;
  for (size_t k = 0; makes_rows() && k < made.size(); ++k) {
    const int64_t first_row = numbers_.rows(static_cast<int64_t>(k), maker()).begin;
    const size_t begin = all.size();
    add_runs(made[k], rank(), 0, all);
    for (size_t i = begin; i < all.size(); ++i) all[i].first_row += first_row;
  }
  return all;
}

void EncoderBridge::tell(std::vector<RowRun> taken, std::vector<RowRun> made) {
  Group& group = settings_.rows;
  const std::vector<int64_t> peers = routes_.neighbours();
  std::vector<int64_t> own;  // how many runs are taken, then first row and length of each run
  own.push_back(std::ssize(taken));
  for (const std::vector<RowRun>* runs : {&taken, &made}) {
    for (const RowRun& run : *runs) own.insert(own.end(), {run.first_row, run.num_rows});
  }
  const auto exchange = [&](const std::vector<int64_t>& sent, std::vector<std::vector<int64_t>>& received) {
    std::vector<Work> works;
    for (size_t i = 0; i < peers.size(); ++i)
      works.push_back(group.recv(
          Buffer{.data = received[i].data(), .count = std::ssize(received[i]), .type = DataType::kInt64}, peers[i]));
    for (const int64_t peer : peers)
      works.push_back(group.send(ConstBuffer(sent.data(), std::ssize(sent), DataType::kInt64), peer));
    for (Work& work : works) work.wait();
  };
  std::vector<std::vector<int64_t>> told(peers.size(), std::vector<int64_t>(1));
  exchange({std::ssize(own)}, told);
  for (std::vector<int64_t>& numbers : told) numbers.resize(static_cast<size_t>(numbers.front()));
  exchange(own, told);
  for (size_t i = 0; i < peers.size(); ++i) {
    const std::vector<int64_t>& numbers = told[i];
    for (size_t at = 1; at + 1 < numbers.size(); at += 2) {
      std::vector<RowRun>& runs = static_cast<int64_t>(at / 2) < numbers.front() ? taken : made;
      runs.push_back({.rank = peers[i], .first_row = numbers[at], .first_place = 0, .num_rows = numbers[at + 1]});
    }
  }
  if (settings_.shares_taken) routes_.take_only(taken);
  if (settings_.shares_made) routes_.make_only(made);
}

void EncoderBridge::begin(RowNumbers numbers, const BatchAssignment::Shares& llm,
                          const std::vector<std::vector<int64_t>>& needed,
                          const std::vector<std::vector<int64_t>>& made, bool has_gradients) {
  numbers_ = std::move(numbers);
  has_gradients_ = has_gradients && settings_.gradients.has_value();
  macros_.clear();
  macros_.resize(static_cast<size_t>(numbers_.num_macro_batches()));
  runs_.clear();
  waited_ms_ = 0;
  routes_.begin(numbers_, llm);
  std::vector<RowRun> taken = list_needed(needed);
  if (settings_.shares_taken || settings_.shares_made) tell(std::move(taken), list_made(made));
  for (int64_t k = 0; k < numbers_.num_macro_batches(); ++k) {
    macro(k).there.route = routes_.rows(k);
    if (has_gradients_) macro(k).back.route = routes_.gradients(k);
    WEFT_CHECK(macro(k).there.route.num_needed == macro(k).num_unread,
               "{} rows of macro batch {} are taken in here, and other ranks think {}", macro(k).num_unread, k,
               macro(k).there.route.num_needed);
  }
}

at::Tensor EncoderBridge::wait_for(RowTransfer& transfer) {
  const double start = now_ms();
  at::Tensor rows = transfer.wait();
  waited_ms_ += now_ms() - start;
  return rows;
}

void EncoderBridge::Way::send(const Group& group, const at::Tensor& rows, const Settings& settings) {
  WEFT_CHECK(!sent, "rows of a macro batch are sent twice");
  sent = start_rows(group, sending_part(route), rows, settings.width, settings.options);
  if (!route.kept_to.empty()) own = rows;
}

void EncoderBridge::Way::receive(const Group& group, const Settings& settings) {
  WEFT_CHECK(!received, "rows of a macro batch are received twice");
  WEFT_CHECK(route.kept_to.empty() || own.defined(), "rows are received before they are made here");
  received = start_rows(group, receiving_part(route), own, settings.width, settings.options);
  own.reset();
}

void EncoderBridge::Way::let_go() {
  if (sent) sent->is_done();
  if (received) received->is_done();
}

void EncoderBridge::Way::finish() {
  if (sent) sent->finish();
  if (received) received->finish();
}

void EncoderBridge::let_go() {
  for (Macro& each : macros_) {
    each.there.let_go();
    each.back.let_go();
  }
}

void EncoderBridge::send_rows(int64_t index, const at::Tensor& rows) {
  let_go();
  macro(index).there.send(settings_.rows, rows, settings_);
}

void EncoderBridge::receive_rows(int64_t index) {
  macro(index).there.receive(settings_.rows, settings_);
}

void EncoderBridge::wait_until_sent(int64_t index) {
  if (index < 0 || !macro(index).there.sent) return;
  const double start = now_ms();
  macro(index).there.sent->finish();
  waited_ms_ += now_ms() - start;
}

at::Tensor EncoderBridge::take_rows(int64_t microbatch) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> pieces;
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) {
    Macro& from = macro(run.macro);
    WEFT_CHECK(from.there.received, "microbatch {} needs macro batch {}, which is not received", microbatch, run.macro);
    if (!from.rows.defined()) from.rows = wait_for(*from.there.received);
    pieces.push_back(from.rows.narrow(0, run.first, run.count));
    from.num_unread -= run.count;
    if (from.num_unread == 0) from.rows.reset();
  }
  if (pieces.empty()) return at::empty({0, settings_.width}, settings_.options);
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces);
}

void EncoderBridge::give_gradient(int64_t microbatch, const at::Tensor& gradient) {
  const at::NoGradGuard no_graph;
  let_go();
  int64_t begin = 0;
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) {
    Macro& of = macro(run.macro);
    const at::Tensor part = gradient.narrow(0, begin, run.count);
    begin += run.count;
    const int64_t num_rows = of.back.route.num_held;
    if (run.count == num_rows) {
      of.gradient = part;
    } else {
      if (!of.gradient.defined()) of.gradient = at::empty({num_rows, settings_.width}, settings_.options);
      of.gradient.narrow(0, run.first, run.count).copy_(part);
    }
    of.num_ungiven -= run.count;
  }
  WEFT_CHECK(begin == gradient.size(0), "a gradient of {} rows for {}", gradient.size(0), begin);
}

void EncoderBridge::send_gradients(int64_t index) {
  Macro& of = macro(index);
  WEFT_CHECK(of.num_ungiven == 0, "{} gradients of macro batch {} have not been given here", of.num_ungiven, index);
  of.back.send(*settings_.gradients, of.gradient, settings_);
  of.gradient.reset();
}

void EncoderBridge::receive_gradients(int64_t index) {
  macro(index).back.receive(*settings_.gradients, settings_);
}

at::Tensor EncoderBridge::take_gradient(int64_t index) {
  Way& back = macro(index).back;
  WEFT_CHECK(back.received, "gradients of macro batch {} are not received", index);
  return wait_for(*back.received);
}

void EncoderBridge::add_to(TensorFlights& flights) const {
  for (const Macro& each : macros_) {
    for (const Way* way : {&each.there, &each.back}) {
      if (way->sent) way->sent->add_to(flights);
      if (way->received) way->received->add_to(flights);
    }
  }
}

void EncoderBridge::end() {
  for (Macro& ended : macros_) {
    ended.there.finish();
    ended.back.finish();
    WEFT_CHECK(!ended.rows.defined() && !ended.gradient.defined(), "a step left rows of an encoder behind");
  }
  macros_.clear();
}

}  // namespace weft
