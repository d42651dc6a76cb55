#include "weft/engine/words_prompt.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/engine/sample_inputs.h"
#include "weft/loader/conversation_source.h"

namespace weft {
namespace {

int64_t count_of(const std::string& text, const std::string& word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

/// The prompt with a place for each medium: its own or, where it has none, one before it.
Result<std::string> with_places(const PredictRequest& request) {
  std::string before;
  for (const auto& [flag, place, files] :
       {std::tuple{"--image", "<image>", &request.images}, std::tuple{"--video", "<video>", &request.videos},
        std::tuple{"--audio", "<audio>", &request.audios}}) {
    const int64_t places = count_of(request.prompt, place);
    if (places == std::ssize(*files)) continue;
    if (places > 0) {
      return Error{.source = flag,
                   .problem = fmt::format("is given {}, but the prompt has {} {}", counted(std::ssize(*files), "file"),
                                          counted(places, "place"), place),
                   .advice = fmt::format("Give one file for each {}, or leave these out: media then stand before the "
                                         "text.",
                                         place)};
    }
    for (size_t i = 0; i < files->size(); ++i) before += place;
  }
  return before + request.prompt;
}

/// Paths in records stand below the folder of the data, which is the root of all here.
std::string path_in_record(const std::filesystem::path& file) {
  return whole_path(file).relative_path().string();
}

/// The files of a folder, by name.
Result<Json> frames_of(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    const bool is_there = std::filesystem::exists(folder, ignored);
    return Error{.source = "--video",
                 .problem = fmt::format("{} {}", in_quotes(folder.string()),
                                        is_there ? "is a file, a folder of frames is needed" : "does not exist"),
                 .advice =
                     "Give a folder with the video's frames as pictures, named in their order: ffmpeg -i clip.mp4 "
                     "-vf fps=2 frames/%05d.png makes one."};
  }
  std::vector<std::string> files;
  std::error_code problem;
  for (const std::filesystem::path& path : paths_in(folder, problem)) files.push_back(path_in_record(path));
  if (problem) {
    return Error{.source = "--video",
                 .problem = fmt::format("{} cannot be read: {}", in_quotes(folder.string()), problem.message()),
                 .advice = "Check the folder's permissions."};
  }
  if (!files.empty()) return Json(files);
  return Error{.source = "--video",
               .problem = fmt::format("{} has no frames", in_quotes(folder.string())),
               .advice = "Give a folder with the video's frames as pictures, named in their order."};
}

}  // namespace

Result<WordsPrompt> read_words_prompt(const Model& model, const ModelNumbers& numbers, int64_t vocabulary,
                                      const PredictRequest& request) {
  WEFT_TRY(const std::string text, with_places(request));
  WEFT_TRY(const std::shared_ptr<ConversationData> data,
           ConversationData::open_for_prompts(model, sample_form(numbers, vocabulary), request.model));
  // Records end with an answer to learn from, which a prompt does not have: one is put there and taken away again.
  Json record = {
      {"messages", Json::array({{{"role", "user"}, {"content", text}}, {{"role", "assistant"}, {"content", "Yes."}}})}};
  for (const auto& [key, files] : {std::pair{"images", &request.images}, std::pair{"audios", &request.audios}}) {
    for (const std::filesystem::path& file : *files) record[key].push_back(path_in_record(file));
  }
  for (const std::filesystem::path& folder : request.videos) {
    WEFT_TRY(Json frames, frames_of(folder));
    record["videos"].push_back(std::move(frames));
  }
  WEFT_TRY(Conversation conversation, read_conversation(record, ColumnMap(), "/", "--prompt"));
  conversation.messages.erase(conversation.messages.size() - 1);
  WEFT_TRY(ConversationData::Draft draft, data->read_prompt(conversation, "--prompt"));
  if (const auto error = data->add_content(draft, {})) return *error;
  WEFT_TRY(RawInputs raw, raw_inputs_of(numbers, {draft.sample}));
  raw.targets = at::Tensor();
  return WordsPrompt{.raw = std::move(raw), .tokenizer = data->tokenizer()};
}

}  // namespace weft
