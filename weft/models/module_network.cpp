#include "weft/models/module_network.h"

#include <algorithm>
#include <array>

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/layers/embedding.h"
#include "weft/models/audio/audio_encoder.h"
#include "weft/models/layer_library.h"
#include "weft/models/program/program_network.h"
#include "weft/models/text/decoder.h"
#include "weft/models/vision/image_tower.h"
#include "weft/models/vision/vision_encoder.h"
#include "weft/program/block_program.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_module.h"

namespace weft {
namespace {

using NetworkPtr = std::shared_ptr<ModuleNetwork>;

struct KnownNetwork {
  std::string_view name;
  NetworkPtr (*make)(const Module&, const ModelNumbers&, const BlockRange&, ParameterMaker&);
};

// One line for each.
constexpr std::array kNetworks = {
    KnownNetwork{"decoder",
                 [](const Module& module, const ModelNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker)
                     -> NetworkPtr { return std::make_shared<Decoder>(module, numbers.llm, blocks, maker); }},
    KnownNetwork{"patch encoder",
                 [](const Module& module, const ModelNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker)
                     -> NetworkPtr { return std::make_shared<VisionEncoder>(module, *numbers.vision, blocks, maker); }},
    KnownNetwork{"image tower",
                 [](const Module& module, const ModelNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker)
                     -> NetworkPtr { return std::make_shared<ImageTower>(module, *numbers.vision, blocks, maker); }},
    KnownNetwork{"audio encoder",
                 [](const Module& module, const ModelNumbers&, const BlockRange& blocks, ParameterMaker& maker)
                     -> NetworkPtr { return std::make_shared<AudioEncoder>(module, blocks, maker); }},
    KnownNetwork{kProgramNetwork,
                 [](const Module& module, const ModelNumbers&, const BlockRange& blocks, ParameterMaker& maker)
                     -> NetworkPtr { return std::make_shared<ProgramNetwork>(module, blocks, maker); }},
};

const KnownNetwork* find_network(std::string_view name) {
  const auto* found =
      std::find_if(kNetworks.begin(), kNetworks.end(), [&](const KnownNetwork& known) { return known.name == name; });
  return found == kNetworks.end() ? nullptr : found;
}

std::shared_ptr<const OwnLayer> make_own_layer(const std::string& name, const OpParameterMaker& make, int64_t number) {
  const auto kind = find_layer(name);
  WEFT_CHECK(kind.ok(), "{}", kind.error().message());
  return (*kind)->make(make, number);
}

/// Where the operators of a layer's program drop, as the layer's own code names the places.
std::vector<DropoutSite> dropout_sites(const Program& program) {
  std::vector<DropoutSite> sites;
  for (const Operator& op : program.operators) {
    DropoutSite site = DropoutSite::kAttention;
    if (op.name == "attention.sum.dropout") site = DropoutSite::kAttentionSum;
    if (op.name == "mlp.activation.dropout") site = DropoutSite::kMlp;
    if (op.name == "mlp.sum.dropout") site = DropoutSite::kMlpSum;
    sites.push_back(site);
  }
  return sites;
}

at::Tensor run_program(const ProgramBlock& program, int64_t number, const at::Tensor& x, const LayerPass& pass,
                       const PackedSegments& segments, const RunContext& context) {
  WEFT_CHECK(pass.cache == nullptr, "layer {} has a strategy, and rows of a text that grows", number);
  BlockData data{
      .tensors = pass.tables, .length = pass.num_rows(segments), .segments = segments, .context = pass.shared};
  if (const DropoutDraws* dropout = context.dropout) {
    data.draws = {.seed = dropout->seed, .step = dropout->step};
    data.draws.layer = {.number = number,
                        .rows = dropout->rows,
                        .attended = dropout->of_all(),
                        .sites = dropout_sites(program.program().program)};
  }
  return program.run(x, data, context);
}

}  // namespace

std::vector<at::Tensor> parts_of_rows(const at::Tensor& rows, int64_t num_parts) {
  if (num_parts == 1) return {rows};
  return rows.split(rows.size(1) / num_parts, 1);
}

at::Tensor AddedRows::behind(int64_t layer, const at::Tensor& x) const {
  const int64_t part = layer - first_layer;
  return part >= 0 && part < std::ssize(parts) ? add_rows(x, positions, parts[static_cast<size_t>(part)]) : x;
}

at::Tensor AddedRows::from(int64_t layer) const {
  const int64_t part = layer - first_layer;
  if (part >= std::ssize(parts)) return {};
  return at::cat(std::vector<at::Tensor>(parts.begin() + part, parts.end()), 1);
}

int64_t LayerPass::num_rows(const PackedSegments& all) const {
  return shared ? shared->deal.num_rows(shared->groups->rank) : all.num_rows();
}

at::Tensor ModuleNetwork::run_layer(int64_t index, const at::Tensor& x, const LayerPass& pass,
                                    const RunContext& context) const {
  const auto place = static_cast<size_t>(index);
  const PackedSegments& segments = is_windowed_[place] ? pass.windows : pass.segments;
  if (const ProgramBlock* program = programs_[place].get()) {
    const TransformerLayer& rest = layers_[place];
    const at::Tensor rows = run_program(*program, rest.number, x, pass, segments, context);
    return rest.has_mlp_half() ? rest.forward_mlp(rows, context) : rows;
  }
  const AttentionCall call{
      .segments = segments, .rotary = pass.rotary, .cache = pass.cache, .layer = index, .context = pass.shared.get()};
  if (const OwnLayer* own = own_layers_[place].get()) return own->forward(layers_[place], x, call, context);
  return layers_[place].forward(x, call, context);
}

void ModuleNetwork::place(const MeshGroups& tensor_parallel, at::ScalarType type, bool divides_rows) {
  for (const std::shared_ptr<ProgramBlock>& program : programs_) {
    if (program) program->place(tensor_parallel, type, divides_rows);
  }
}

void ModuleNetwork::add_rotary_rows(LayerPass& pass) const {
  const bool has_programs = std::any_of(programs_.begin(), programs_.end(), [](const auto& each) { return each; });
  if (has_programs && pass.rotary.is_defined())
    pass.tables[kRotaryTable] = at::cat({pass.rotary.cos, pass.rotary.sin}, 1).unsqueeze(0);
}

ModuleNetwork::ModuleEnds ModuleNetwork::ends_of(const Module& module, ParameterMaker& maker) {
  return {.entry = OpParameterMaker(module.entry, module.paths.entry, module.deviation, maker),
          .exit = OpParameterMaker(module.exit, module.paths.exit, module.deviation, maker)};
}

int64_t ModuleNetwork::head_dim_of(const Module& module) {
  return std::get<Attention>(op_named(module.distinct_layers.front(), "attention.core").shape).head_dim;
}

void ModuleNetwork::make_layers(const Module& module, const BlockRange& blocks, bool normalizes_expert_weights,
                                ParameterMaker& maker) {
  const int64_t end = blocks.end_layer(static_cast<int64_t>(module.layers.size()));
  for (int64_t index = blocks.first_layer; index < end; ++index) {
    maker.next_block();
    const Block& block = block_at(module, index + 1);
    const OpParameterMaker make(block, path_of_block(module, index + 1), module.deviation, maker);
    is_windowed_.push_back(std::get<Attention>(op_named(block, "attention.core").shape).mask == Mask::kWindowed);
    programs_.push_back(block.program ? std::make_shared<ProgramBlock>(make) : nullptr);
    layers_.push_back(make_transformer_layer(make, index, normalizes_expert_weights));
    own_layers_.push_back(block.layer.empty() ? nullptr : make_own_layer(block.layer, make, index));
  }
}

bool has_layer_programs(const Model& model) {
  return std::any_of(model.modules.begin(), model.modules.end(), [](const Module& module) {
    return std::any_of(module.distinct_layers.begin(), module.distinct_layers.end(),
                       [&](const Block& kind) { return kind.program && !module.entry.program; });
  });
}

std::shared_ptr<ModuleNetwork> make_network(const Module& module, const ModelNumbers& numbers, const BlockRange& blocks,
                                            ParameterMaker& maker) {
  const KnownNetwork* known = find_network(module.network);
  WEFT_CHECK(known != nullptr, "nothing runs a module as {}", module.network);
  return known->make(module, numbers, blocks, maker);
}

Result<ModelNumbers> numbers_to_run(const Model& model) {
  for (const Module& module : model.modules) {
    if (find_network(module.network) != nullptr) continue;
    return Error{.source = "model " + model.name,
                 .field = "model_type",
                 .problem = fmt::format("is {}, which can be planned but not run", model.family),
                 .advice = "Run a model of another family."};
  }
  for (const Module& module : model.modules) {
    for (const Block& layer : module.distinct_layers) {
      if (layer.layer.empty()) continue;
      if (const auto kind = find_layer(layer.layer); !kind) {
        Error error = kind.error();
        if (error.source.empty()) error.source = "model " + model.name;
        return error;
      }
    }
  }
  if (model.numbers.llm.not_run) {
    Error error = *model.numbers.llm.not_run;
    error.source = "model " + model.name;
    return error;
  }
  return model.numbers;
}

}  // namespace weft
