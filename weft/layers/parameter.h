#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "weft/mesh/head_counts.h"

namespace weft {

/// Which dim of a weight tensor parallelism may cut, and between what.
enum class CutUnit : uint8_t {
  kNone,        ///< every rank holds it whole
  kElements,    ///< between any two elements, or between groups of them
  kQueryHeads,  ///< between heads, as attention deals them out
  kKeyHeads,    ///< between key or value heads; where there are fewer than ranks, they are copied
  kShares,      ///< a piece is one of several shares, each of which one rank has whole
};

/// How tensor parallelism may divide a weight: data for whoever spreads a model; the layers do not read it.
struct WeightCut {
  CutUnit unit = CutUnit::kNone;
  size_t dim = 0;
  HeadCounts heads = {};     ///< of the whole model, where heads are what is dealt out
  int64_t num_together = 1;  ///< elements that stay together, of kElements
  int64_t share = 0;         ///< of kShares: which of how many the piece is
  int64_t num_shares = 1;
};
/// A projection's outputs are divided, or its inputs.
inline constexpr WeightCut kCutOutputs{.unit = CutUnit::kElements, .dim = 0};
inline constexpr WeightCut kCutInputs{.unit = CutUnit::kElements, .dim = 1};

/// Rows of a weight as files name it: a parameter is made of one or several, one below the other. Rows without a name
/// are zero and stay so: the bias that one of three fused projections lacks.
struct WeightPiece {
  std::string name;            ///< of the whole weight
  std::vector<int64_t> shape;  ///< of the whole weight
  int64_t first_row = 0;       ///< along its first dim
  int64_t num_rows = 0;
  int64_t first_column = 0;  ///< along its second dim, which all other dims follow whole
  int64_t num_columns = -1;  ///< -1: all
  WeightCut cut;
  bool is_expert = false;      ///< belongs to one expert, so that expert parallelism may move it
  bool is_transposed = false;  ///< in files, where this weight of two dims has its columns as rows

  /// Elements of a whole row of the weight, and of what is here of it.
  int64_t row_elements() const;
  int64_t held_row_elements() const;
  int64_t num_elements() const { return num_rows * held_row_elements(); }
};

/// What a piece holds of its weight, as a view.
at::Tensor held_part(const WeightPiece& piece, const at::Tensor& whole);

/// All of a weight.
WeightPiece whole_weight(std::string name, std::vector<int64_t> shape, WeightCut cut = {});

/// Rows that are zero and stay so.
WeightPiece zero_rows(int64_t count);

/// What a fresh parameter holds.
struct Initialization {
  enum class Kind : uint8_t { kZeros, kConstant, kNormal };
  Kind kind = Kind::kZeros;
  double value = 0;       ///< of kConstant
  double deviation = 0;   ///< of kNormal
  int64_t zero_row = -1;  ///< a row that is zero all the same: the embedding of padding

  static Initialization zeros() { return {}; }
  static Initialization ones() { return constant(1); }
  static Initialization constant(double value) { return {.kind = Kind::kConstant, .value = value}; }
  static Initialization normal(double deviation) { return {.kind = Kind::kNormal, .deviation = deviation}; }
};

/// What a layer asks for.
struct ParameterSpec {
  std::vector<WeightPiece> pieces;
  std::vector<int64_t> shape;  ///< its elements are those of the pieces, in their order
  Initialization init;
  /// Works on what tensor parallelism divides (heads), or its results weigh that (a router's), so that the gradient of
  /// a whole copy is a summand of all ranks'.
  bool sees_divided = false;
  /// What computes it sums the gradient of a whole copy over tensor-parallel ranks itself.
  bool has_whole_gradient = false;
};

struct Adapter;

/// A trainable tensor and its gradient. The gradient is not autograd's: layers add to it themselves, at once or when a
/// deferred weight gradient is computed, and it may have more precision than the value.
struct Parameter : torch::CustomClassHolder {
  ParameterSpec spec;
  at::Tensor value;
  at::Tensor gradient;  ///< undefined until something was added

  std::shared_ptr<const Adapter> adapter = nullptr;  ///< what products with this weight add to it; may be nothing

  /// The gradient as it is kept: of the value's type unless this says otherwise.
  at::ScalarType gradient_type = at::kFloat;

  bool is_trainable() const { return value.requires_grad(); }
  /// "model.norm.weight", or "a + b + c".
  std::string name() const;
  void add_gradient(const at::Tensor& part);
  /// Adds left · right, with no copy of the product where that is possible.
  void add_product(const at::Tensor& left, const at::Tensor& right);

 private:
  void clear_unnamed_rows();
};

using ParameterPtr = c10::intrusive_ptr<Parameter>;

/// Who makes parameters: decides where they live, of what type, and, when a model is spread, which part of each.
class ParameterMaker {
 public:
  virtual ~ParameterMaker() = default;
  virtual ParameterPtr make(ParameterSpec spec) = 0;
  /// What is made from now on belongs to the next block.
  virtual void next_block() {}
};

/// Where the memory of values comes from.
enum class ValueMemory : uint8_t {
  kOwn,    ///< every value has its own; its elements are undefined until initialised or loaded
  kLater,  ///< values have shapes alone, until an optimizer gives them memory of its buckets
};

/// Makes whole parameters on one device and remembers them in the order they were asked for.
class WholeParameters : public ParameterMaker {
 public:
  explicit WholeParameters(at::TensorOptions options, ValueMemory memory = ValueMemory::kOwn)
      : options_(options), memory_(memory) {}

  ParameterPtr make(ParameterSpec spec) override;
  const std::vector<ParameterPtr>& all() const { return all_; }

 private:
  at::TensorOptions options_;
  ValueMemory memory_;
  std::vector<ParameterPtr> all_;
};

}  // namespace weft
