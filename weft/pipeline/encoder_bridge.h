#pragma once

#include <optional>
#include <vector>

#include "weft/meaning/bridge_routes.h"
#include "weft/tensor/row_transfer.h"

namespace weft {

/// Brings the rows of an encoder beside the pipeline to the ranks where the llm begins, macro batch by macro batch, and
/// their gradients back; one rank's end of it. Every row goes once to each rank that needs it, and a gradient once to
/// each rank that made the row.
///
/// The schedule says when a rank sends and receives, both in the order of macro batches. A send does not block, and
/// receiving waits only where what comes is used. Rows and gradients have groups of their own, because a rank that is
/// at both ends may come to them in any order.
class EncoderBridge {
 public:
  struct Settings {
    Group rows;                      ///< the encoder's last stage and the llm's first, together
    std::optional<Group> gradients;  ///< the same ranks; nothing: the encoder is frozen
    BridgeEnds ends;                 ///< of that group
    bool shares_made = false;        ///< as PlannedBridge says
    bool shares_taken = false;
    int64_t width = 0;
    at::TensorOptions options;
  };
  explicit EncoderBridge(Settings settings);

  /// A step begins, on all ranks of the group. `llm` are the samples of the whole batch. `needed` are the rows that
  /// this rank takes in, by microbatch; `made` are, where they are shared out, those of its data-parallel rank's that
  /// this rank's encoder makes, by macro batch. Ranks tell their neighbours what the samples do not say.
  void begin(RowNumbers numbers, const BatchAssignment::Shares& llm, const std::vector<std::vector<int64_t>>& needed,
             const std::vector<std::vector<int64_t>>& made, bool has_gradients);

  /// SEND_R: the rows that the encoder has made of a macro batch; undefined where it has none.
  void send_rows(int64_t macro, const at::Tensor& rows);
  /// RECV_R.
  void receive_rows(int64_t macro);
  /// Returns when all that was sent of a macro batch has been received.
  void wait_until_sent(int64_t macro);
  /// All rows that a microbatch takes in here, when they have come.
  at::Tensor take_rows(int64_t microbatch);
  /// The gradient of what take_rows gave.
  void give_gradient(int64_t microbatch, const at::Tensor& gradient);
  /// SEND_G: those of a macro batch, which are complete.
  void send_gradients(int64_t macro);
  /// RECV_G.
  void receive_gradients(int64_t macro);
  /// Of the rows that this rank's encoder made of a macro batch, when all have come.
  at::Tensor take_gradient(int64_t macro);

  /// Adds what is under way.
  void add_to(TensorFlights& flights) const;
  /// All is over.
  void end();
  /// In this step, for rows and gradients.
  double waited_ms() const { return waited_ms_; }

 private:
  /// Rows of a microbatch that lie together in what this rank takes of a macro batch.
  struct Run {
    int64_t macro = 0;
    int64_t first = 0;
    int64_t count = 0;
  };
  /// One way of a macro batch.
  struct Way {
    OwnRoute route;
    std::optional<RowTransfer> sent;
    std::optional<RowTransfer> received;
    at::Tensor own;  ///< what was sent, where this rank needs some of it itself

    void send(const Group& group, const at::Tensor& rows, const Settings& settings);
    void receive(const Group& group, const Settings& settings);
    void let_go();
    void finish();
  };
  struct Macro {
    Way there;
    Way back;
    at::Tensor rows;          ///< that this rank has taken
    at::Tensor gradient;      ///< of them, as far as it has been given
    int64_t num_unread = 0;   ///< of them
    int64_t num_ungiven = 0;  ///< of their gradients
  };

  std::vector<RowRun> list_needed(const std::vector<std::vector<int64_t>>& needed);
  std::vector<RowRun> list_made(const std::vector<std::vector<int64_t>>& made) const;
  void tell(std::vector<RowRun> taken, std::vector<RowRun> made);
  at::Tensor wait_for(RowTransfer& transfer);
  /// Frees what has been sent.
  void let_go();
  int64_t rank() const { return settings_.rows.rank(); }
  int64_t maker() const { return settings_.ends.makers[static_cast<size_t>(rank())]; }
  bool makes_rows() const { return maker() >= 0; }
  Macro& macro(int64_t index) { return macros_[static_cast<size_t>(index)]; }

  Settings settings_;
  BridgeRoutes routes_;

  // Of the step that is running.
  RowNumbers numbers_;
  bool has_gradients_ = false;
  std::vector<Macro> macros_;
  std::vector<std::vector<Run>> runs_;  ///< by microbatch
  double waited_ms_ = 0;
};

}  // namespace weft
