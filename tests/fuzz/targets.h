#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Each tries one reader on an input, and ends the process where a claim does not hold.
int fuzz_document(const uint8_t* data, size_t size);
int fuzz_model(const uint8_t* data, size_t size);
int fuzz_cluster(const uint8_t* data, size_t size);
int fuzz_workload(const uint8_t* data, size_t size);
int fuzz_plan(const uint8_t* data, size_t size);
int fuzz_schedule(const uint8_t* data, size_t size);
int fuzz_balance(const uint8_t* data, size_t size);
int fuzz_program(const uint8_t* data, size_t size);
int fuzz_strategy(const uint8_t* data, size_t size);
int fuzz_profile(const uint8_t* data, size_t size);
int fuzz_profile_table(const uint8_t* data, size_t size);
int fuzz_measurements(const uint8_t* data, size_t size);
int fuzz_record(const uint8_t* data, size_t size);
int fuzz_safetensors(const uint8_t* data, size_t size);
int fuzz_tokenizer(const uint8_t* data, size_t size);
int fuzz_template(const uint8_t* data, size_t size);
int fuzz_conversations(const uint8_t* data, size_t size);
int fuzz_image(const uint8_t* data, size_t size);
int fuzz_audio(const uint8_t* data, size_t size);
int fuzz_checkpoint(const uint8_t* data, size_t size);
int fuzz_import(const uint8_t* data, size_t size);

struct FuzzTarget {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

inline constexpr FuzzTarget kFuzzTargets[] = {
    {"document", fuzz_document},
    {"model", fuzz_model},
    {"cluster", fuzz_cluster},
    {"workload", fuzz_workload},
    {"plan", fuzz_plan},
    {"schedule", fuzz_schedule},
    {"balance", fuzz_balance},
    {"program", fuzz_program},
    {"strategy", fuzz_strategy},
    {"profile", fuzz_profile},
    {"profile_table", fuzz_profile_table},
    {"measurements", fuzz_measurements},
    {"record", fuzz_record},
    {"safetensors", fuzz_safetensors},
    {"tokenizer", fuzz_tokenizer},
    {"template", fuzz_template},
    {"conversations", fuzz_conversations},
    {"image", fuzz_image},
    {"audio", fuzz_audio},
    {"import", fuzz_import},
};

// Of the half that needs LibTorch, in a program of its own.
inline constexpr FuzzTarget kCheckpointTargets[] = {{"checkpoint", fuzz_checkpoint}};

}  // namespace weft
