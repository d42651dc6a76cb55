#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/spec/model_reader.h"

namespace weft {

/// A folder as a user has it: a tiny model for pictures, videos and sound with its tokenizer, chat template and
/// preprocessor settings, and conversations about the media of tests/parity/media.
class ConversationFiles {
 public:
  ConversationFiles() {
    std::string unused = (std::filesystem::temp_directory_path() / "weft_conversations_XXXXXX").string();
    folder_ = mkdtemp(unused.data());
    std::filesystem::create_directories(folder_ / "model");
    std::filesystem::create_directories(folder_ / "media");
    Json tokenizer = Json::parse(*read_file(kParity / "text/qwen2_form/tokenizer.json", 1 << 22));
    int64_t next = 428;
    for (const char* token : {"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                              "<|video_pad|>", "<|audio_bos|>", "<|audio_eos|>", "<|AUDIO|>"}) {
      Json added = tokenizer["added_tokens"][0];
      added["id"] = ids_[token] = next++;
      added["content"] = token;
      tokenizer["added_tokens"].push_back(added);
    }
    write("model/tokenizer.json", tokenizer.dump());
    std::filesystem::copy_file(kParity / "text/templates/vision_parts.jinja", folder_ / "model/chat_template.jinja");
    write("model/preprocessor_config.json", R"({"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2,
           "min_pixels": 72, "max_pixels": 720, "feature_size": 9, "chunk_length": 1})");
    write("model/video_preprocessor_config.json", R"({"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2,
           "min_pixels": 72, "max_pixels": 144})");
    Json config = Json::parse(*read_file(kParity / "fixtures/qwen2_5_omni/config.json", 1 << 20));
    config["text_config"]["vocab_size"] = 440;
    config["vision_config"]["hidden_size"] = 16;
    config["vision_config"]["num_heads"] = 2;
    for (const auto& [key, token] :
         {std::pair("image_token_index", "<|image_pad|>"), std::pair("video_token_index", "<|video_pad|>"),
          std::pair("audio_token_index", "<|AUDIO|>"), std::pair("audio_start_token_id", "<|audio_bos|>"),
          std::pair("audio_end_token_id", "<|audio_eos|>"), std::pair("vision_start_token_id", "<|vision_start|>"),
          std::pair("vision_end_token_id", "<|vision_end|>")})
      config[key] = ids_[token];
    write("model/config.json", config.dump());
    for (const char* name : {"plain.jpg", "alpha.png", "lossy.webp", "turned_6.jpg", "grey.png", "palette.png",
                             "one_pixel.png", "row.png", "plain.wav", "stereo.flac", "vorbis.ogg"})
      std::filesystem::copy_file(kParity / "media" / name, folder_ / "media" / name);
  }

  ~ConversationFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ConversationFiles(const ConversationFiles&) = delete;
  ConversationFiles& operator=(const ConversationFiles&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  Model model() const { return *read_model_file(folder_ / "model"); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  int64_t id_of(const std::string& token) const { return ids_.at(token); }

  /// A record a line, of every kind. Every `broken_every`-th cannot be used, each for another reason; 0: none.
  void write_records(int64_t count, int64_t broken_every = 0) const {
    static const std::vector<std::pair<std::string, std::string>> kinds = {
        {"<image>\nWhat is this?", R"("images": ["media/plain.jpg"])"},
        {"Say <audio> in words.", R"("audios": ["media/plain.wav"])"},
        {"Hello there, how are you?", R"("images": [])"},
        {"<image> and <image>: the same?", R"("images": ["media/alpha.png", "media/row.png"])"},
        {"<video> What moves?", R"("videos": [["media/grey.png", "media/alpha.png", "media/grey.png"]])"},
        {"<image><audio> Both.", R"("images": ["media/turned_6.jpg"], "audios": ["media/stereo.flac"])"},
        {"<image>", R"("images": ["media/lossy.webp"])"},
        {"<audio>", R"("audios": ["media/vorbis.ogg"])"}};
    const std::string jpeg = *read_file(folder_ / "media/plain.jpg", 1 << 20);
    write("media/cut.jpg", jpeg.substr(0, jpeg.size() / 2));
    const std::vector<std::string> broken = {
        R"({"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}], "images": ["media/cut.jpg"]})",
        R"({"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}], "images": ["media/none.png"]})",
        R"({"messages": [{"role": )",
        R"({"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}]})",
        R"({"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}], "images": ["../plain.jpg"]})"};
    std::string lines;
    for (int64_t i = 0; i < count; ++i) {
      if (broken_every > 0 && i % broken_every == 0) {
        lines += broken[static_cast<size_t>(i / broken_every) % broken.size()] + "\n";
        continue;
      }
      const auto& [text, media] = kinds[static_cast<size_t>(i) % kinds.size()];
      const Json question = text;
      lines += R"({"messages": [{"role": "user", "content": )" + question.dump() +
               R"(}, {"role": "assistant", "content": "Answer number )" + std::to_string(i * 7919 % 1000) +
               R"( of it."}], )" + media + "}\n";
    }
    write("chats.jsonl", lines);
  }

 private:
  inline static const std::filesystem::path kParity = source_tree() / "tests/parity";

  std::filesystem::path folder_;
  std::map<std::string, int64_t> ids_;
};

}  // namespace weft
