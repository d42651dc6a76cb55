#include "weft/spec/model_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/file_kind.h"
#include "weft/base/file_name.h"
#include "weft/base/text.h"
#include "weft/base/trimmed.h"
#include "weft/families/family_library.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_module.h"
#include "weft/program/program_text.h"
#include "weft/spec/adapters.h"
#include "weft/spec/model_name.h"
#include "weft/spec/model_size.h"

namespace weft {
namespace {

/// Where files may hold a copy of a tied table as the head.
void name_tied_head(DeclaredModel& model) {
  const Module& llm = model.modules.back();
  const Op* head = find_op(llm.exit, "logits");
  if (!model.has_tied_embeddings || head == nullptr || !head->weights) return;
  model.numbers.files.tied_head = llm.paths.exit + head->weights->names.front() + ".weight";
  model.numbers.files.tied_table = weight_names(llm, 0).front().front();
}

/// Shapes are those of the whole weights, so that such a model can be planned.
void name_quantization(const Json& settings, LlmNumbers& numbers) {
  const bool has_method =
      settings.is_object() && settings.contains("quant_method") && settings["quant_method"].is_string();
  numbers.not_run =
      Error{.field = "quantization_config",
            .problem = fmt::format("says that weights are quantised{}, which can be planned but not run",
                                   has_method ? " by " + in_quotes(settings["quant_method"].get<std::string>()) : ""),
            .advice = "Use the model's folder with weights of bf16, fp16 or fp32."};
}

const Family* find_family(const std::vector<Family>& among, const std::string& type) {
  const auto found =
      std::find_if(among.begin(), among.end(), [&](const Family& known) { return known.model_type == type; });
  return found == among.end() ? nullptr : &*found;
}

Error unknown_family(const std::string& source, const std::string& type, const std::vector<Family>& own) {
  std::vector<std::string> known;
  for (const Family& each : families()) known.push_back(each.model_type);
  for (const Family& each : own) known.push_back(each.model_type);
  return {.source = source,
          .field = "model_type",
          .problem =
              fmt::format("is {}, a family that Weft does not know; known are {}", in_quotes(type), joined_or(known)),
          .advice = fmt::format(
              "Use a model of a known family, or add a family: docs/manual/add-a-family.md says how, and {} "
              "names its library.{}",
              kFamilyLibraries, did_you_mean(type, known))};
}

/// A text that begins as programs do, behind comments and empty lines.
bool is_program(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (!line.empty() && line.front() != '#') return line.starts_with("weft_program ");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

/// What such a file says, as the configuration of a model; nothing where it is no program.
Result<std::optional<Document>> read_program_document(const std::filesystem::path& file) {
  constexpr size_t kMostBytes = 1 << 24;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::optional<Document>();
  const Result<std::string> text = read_file(file, kMostBytes);
  if (!text || !is_program(*text)) return std::optional<Document>();
  WEFT_TRY(const Program program, parse_program(*text, file.string()));
  const auto model = model_of(program);
  if (!model) {
    Error error = model.error();
    error.source = file.string();
    return error;
  }
  return std::optional(Document{.source = file.string(),
                                .root = {{"model_type", kProgramFamily}, {kProgramKey, program_text(program)}}});
}

}  // namespace

Result<Model> read_model(const Document& config, std::string name) {
  if (auto error = find_wrong_kind(config, FileKind::kModel)) return *std::move(error);
  Findings findings(config.source);
  Fields fields(config, findings);
  const std::string type = fields.text("model_type");
  if (findings.first()) return *findings.first();

  const Family* family = find_family(families(), type);
  if (family == nullptr) {
    // Libraries are loaded where a model needs one.
    WEFT_TRY(const std::vector<Family>* own, families_of_libraries());
    family = find_family(*own, type);
    if (family == nullptr) return unknown_family(config.source, type, *own);
  }
  DeclaredModel declared;
  family->read(fields, declared);
  if (const Json* quantized = fields.raw("quantization_config")) name_quantization(*quantized, declared.numbers.llm);
  if (findings.first()) return *findings.first();
  const char* sizes = type == kProgramFamily ? kProgramKey : "num_hidden_layers";
  if (auto error = find_too_large(declared.modules, config.source, sizes)) return *std::move(error);
  name_tied_head(declared);
  Model model{.name = std::move(name),
              .family = type,
              .modules = std::move(declared.modules),
              .media = declared.media,
              .has_tied_embeddings = declared.has_tied_embeddings,
              .numbers = std::move(declared.numbers),
              .config = config.root};
  if (!has_adapters(model)) return model;
  WEFT_TRY(const std::vector<AdapterRule> rules,
           read_adapters({.source = config.source, .root = {{kAdaptersKey, config.root[kAdaptersKey]}}}));
  model.config.erase(kAdaptersKey);
  return with_adapters(model, rules, config.source);
}

Result<Model> read_model_file(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (is_folder) {
    file = path / "config.json";
    if (std::filesystem::status(file, ignored).type() == std::filesystem::file_type::not_found) {
      return Error{.source = path.string(),
                   .problem = "is a folder without a config.json",
                   .advice = "Give a Hugging Face model folder, or the configuration file itself."};
    }
  }
  WEFT_TRY(const std::optional<Document> program, read_program_document(file));
  WEFT_TRY(const Document document, program ? Result<Document>(*program) : read_document(file));
  return read_model(document, as_model_name(name_of_file(path)));
}

}  // namespace weft
