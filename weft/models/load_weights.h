#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "weft/layers/parameter.h"
#include "weft/models/weight_list.h"
#include "weft/weights/weight_folder.h"

namespace weft {

/// Called now and then while weights are read.
using LoadProgress = std::function<void(int64_t bytes_done, int64_t bytes_of_all)>;

/// Fills parameters with the weights of a Hugging Face folder. Weights that are missing, extra, of another shape or
/// type or not finite are named; the parameters are then of no use.
std::optional<Error> load_weights(const WeightFolder& folder, const std::vector<ParameterPtr>& parameters,
                                  const WeightFiles& files, const LoadProgress& progress = {});

/// A weight of files as it was found there.
struct FoundWeight : WeightEntry {
  bool is_transposed = false;  ///< a matrix's inputs lie along its first dim
};

/// Where an element of a piece's weight is stored in files, and how far from the next of its column and of its row.
struct StoredPlace {
  int64_t first = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};
StoredPlace stored_place(const WeightPiece& piece, const FoundWeight& found, int64_t row, int64_t column);

/// Weights of files by the names that parameters have for them. Where a weight of the files holds several, each has its
/// part of the bytes, and one dim less. Bytes are the folder's own.
using WeightEntries = std::map<std::string, FoundWeight, std::less<>>;

/// The weights of a folder, which must be those of the model: none missing, none extra, of its shapes and of a type
/// that can be read. They are the folder's own. Matrices that lie one behind the other in a weight may all have their
/// dims the other way round than the model says: this is told by their shapes, of which at most one can be square.
Result<WeightEntries> find_weights(const WeightFolder& folder, const WeightList& model);

/// Fills the parameters of one rank of several: whatever parts of weights they are made of, and of the files only
/// those. The files must hold what the whole model has, no less and no more, so all ranks find the same mistakes but
/// one: a number that is not finite is found by who reads it.
std::optional<Error> load_weight_parts(const WeightFolder& folder, const WeightList& model,
                                       const std::vector<ParameterPtr>& parameters, const LoadProgress& progress = {});

/// Weights by the names that files give them, put together from the parameters that hold their rows.
class NamedWeights {
 public:
  explicit NamedWeights(const std::vector<ParameterPtr>& parameters);

  std::vector<std::string> names() const;
  /// On the CPU, of the parameter's type and as files have it; undefined where no parameter has it.
  at::Tensor value(std::string_view name) const;
  /// The same of a weight as files have it, which may hold several that lie one behind the other.
  at::Tensor file_value(std::string_view name, const WeightFiles& files) const;
  at::Tensor file_gradient(std::string_view name, const WeightFiles& files) const;
  /// Of those: whether the shape that files have for it is that of matrices with their dims exchanged, and no other.
  bool is_turned(std::string_view name, const WeightFiles& files, std::span<const int64_t> shape) const;
  /// The same of its gradient; undefined too where there is none yet.
  at::Tensor gradient(std::string_view name) const;

 private:
  struct Place {
    ParameterPtr parameter;
    size_t piece = 0;
    int64_t first_element = 0;  ///< of the piece in the parameter
  };
  /// As `of` has them: one, or several of the names that a weight of the files stands for.
  at::Tensor in_files(std::string_view name, const WeightFiles& files,
                      const std::function<at::Tensor(std::string_view)>& of) const;
  at::Tensor assemble(std::string_view name, const std::function<at::Tensor(const Parameter&)>& part) const;

  std::map<std::string, std::vector<Place>, std::less<>> places_;
};

/// Writes the parameters into an existing folder as `layout` describes: byte for byte what was loaded, if nothing
/// changed. Stacked matrices lie as its shapes say.
std::optional<Error> save_weights(const std::filesystem::path& folder, const FolderLayout& layout,
                                  const std::vector<ParameterPtr>& parameters, const WeightFiles& files);

}  // namespace weft
