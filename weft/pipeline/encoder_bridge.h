#pragma once

#include <optional>
#include <vector>

#include "weft/pipeline/row_numbers.h"
#include "weft/tensor/row_transfer.h"

namespace weft {

/// Brings the rows of an encoder beside the pipeline to the ranks where the llm begins, macro batch by macro batch, and
/// their gradients back; one rank's end of it. Every row goes once to each rank that needs it, and a gradient once to
/// each rank that made the row.
///
/// Ranks start the transfers of macro batches in their order, each when it comes to it: a send does not block, and only
/// who needs something waits. Rows and gradients have groups of their own, because a rank that is at both ends may come
/// to them in any order.
class EncoderBridge {
 public:
  struct Settings {
    Group rows;                      ///< the encoder's last stage and the llm's first, together
    std::optional<Group> gradients;  ///< the same ranks; nothing: the encoder is frozen
    /// By rank of the group: the encoder's data-parallel rank, -1 where it is not.
    std::vector<int64_t> data_parallel_ranks;
    /// Context parallelism shares a data-parallel rank's rows out, as only its ranks know.
    bool shares_rows = false;
    int64_t width = 0;
    at::TensorOptions options;
  };
  explicit EncoderBridge(Settings settings);

  /// A step begins, on all ranks of the group. `needed` are the rows that this rank takes in, by microbatch. A rank's
  /// needs depend on where its tokens are, so ranks tell each other. `made` are, where rows are shared out, those of
  /// its data-parallel rank's that this rank's encoder makes, by macro batch.
  void begin(RowNumbers numbers, std::vector<std::vector<int64_t>> needed,
             const std::vector<std::vector<int64_t>>& made, bool has_gradients);

  /// The encoder has made its rows of a macro batch; undefined where it has none.
  void send_rows(int64_t macro, const at::Tensor& rows);
  /// Returns when all that was sent of a macro batch has been received.
  void wait_until_sent(int64_t macro);
  /// All rows that a microbatch takes in here.
  at::Tensor take_rows(int64_t microbatch);
  /// The gradient of what take_rows gave. Those of a macro batch go back when they are complete.
  void give_gradient(int64_t microbatch, const at::Tensor& gradient);
  /// Of the rows that this rank's encoder made of a macro batch, when all have come.
  at::Tensor take_gradient(int64_t macro);

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
  struct Macro {
    RowRoute there;
    RowRoute back;
    std::optional<RowTransfer> rows_on_their_way;
    std::optional<RowTransfer> gradients_on_their_way;
    at::Tensor rows;          ///< that this rank has taken
    at::Tensor gradient;      ///< of them, as far as it has been given
    int64_t num_unread = 0;   ///< of them
    int64_t num_ungiven = 0;  ///< of their gradients
  };

  void plan_routes(const std::vector<std::vector<int64_t>>& made_by_rank,
                   const std::vector<std::vector<int64_t>>& needed_by_rank);
  std::vector<std::vector<int64_t>> list_made(const std::vector<std::vector<int64_t>>& own);
  std::vector<std::vector<int64_t>> tell(const std::vector<int64_t>& own);
  at::Tensor wait_for(RowTransfer& transfer);
  /// Frees what has been sent.
  void let_go();
  void start_rows_until(int64_t macro);
  void start_gradients_until(int64_t last);
  bool makes_rows() const { return data_parallel_rank_ >= 0; }
  Macro& macro(int64_t index) { return macros_[static_cast<size_t>(index)]; }

  Settings settings_;
  int64_t data_parallel_rank_ = -1;  ///< of the encoder, here

  // Of the step that is running.
  RowNumbers numbers_;
  bool has_gradients_ = false;
  std::vector<Macro> macros_;
  std::vector<std::vector<Run>> runs_;  ///< by microbatch
  int64_t next_rows_ = 0;               ///< the first macro batch whose rows are not on their way
  int64_t next_gradients_ = 0;          ///< the first whose gradients are not
  int64_t last_given_ = -1;             ///< the last of whose gradients some were given here
  double waited_ms_ = 0;
};

}  // namespace weft
