// Reads weights and writes them again: weft_copy_weights FROM FOLDER. For check_safetensors.py.
#include <cstdio>

#include "weft/weights/weight_folder.h"

using namespace weft;

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: weft_copy_weights FROM FOLDER"), 2;
  const auto weights = WeightFolder::open(argv[1]);
  if (!weights) return std::puts(weights.error().message().c_str()), 2;
  const auto source = [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    return weights->find(info.name)->bytes;
  };
  const auto error = write_weight_folder(argv[2], weights->layout(), source);
  if (error) return std::puts(error->message().c_str()), 1;
  return 0;
}
