#pragma once

#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/families/family.h"
#include "weft/program/module.h"

namespace weft {

/// A model as everything downstream reads it: modules in flow order, encoders first, the llm last.
struct Model {
  std::string name;
  std::string family;  ///< Hugging Face's model_type
  std::vector<Module> modules;
  MediaGeometry media;
  bool has_tied_embeddings = false;
  ModelNumbers numbers;
  Json config;  ///< what it was read from, so that documents which carry the model can stand alone

  const Module* find(ModuleKind kind) const;
};

int64_t num_parameters(const Model& model);

/// Entries of the table that the llm begins with; 0 where it begins with none.
int64_t vocabulary_of(const Model& model);

}  // namespace weft
