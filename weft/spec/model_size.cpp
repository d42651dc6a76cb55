#include "weft/spec/model_size.h"

#include <utility>

#include <fmt/format.h>

namespace weft {

std::optional<Error> find_too_large(std::span<const Module> modules, std::string source, std::string field) {
  double parameters = 0;
  for (const Module& module : modules) parameters += estimated_parameters(module);
  if (parameters <= kMostParameters) return std::nullopt;
  return Error{.source = std::move(source),
               .field = std::move(field),
               .problem = fmt::format("with these sizes the model would have {:.2g} parameters, at most {:.0g} are "
                                      "supported",
                                      parameters, kMostParameters),
               .advice = "Check the sizes."};
}

}  // namespace weft
