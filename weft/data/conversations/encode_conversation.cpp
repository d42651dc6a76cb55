#include "weft/data/conversations/encode_conversation.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/conversations/expand_media.h"
#include "weft/data/sample.h"

namespace weft {
namespace {

constexpr int64_t kMostTokens = 100'000'000;

/// The text by which a template asks for an answer: what it adds at the end when told to.
Result<std::string> generation_prompt(const ChatTemplate& chat, ChatTemplate::Request request) {
  request.messages = Json::array({{{"role", "user"}, {"content", "?"}}});
  request.tools = nullptr;
  request.adds_generation_prompt = false;
  WEFT_TRY(const ChatTemplate::Rendering without, chat.render(request));
  request.adds_generation_prompt = true;
  WEFT_TRY(const ChatTemplate::Rendering with, chat.render(request));
  if (!with.text.starts_with(without.text)) return std::string();
  return with.text.substr(without.text.size());
}

}  // namespace

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names = {"assistant", "last_turn", "everything"};
  return names;
}

Result<std::vector<TextRange>> learnt_ranges(const ChatTemplate& chat, const ChatTemplate::Request& request,
                                             const ChatTemplate::Rendering& rendering, LossOn loss) {
  if (loss == LossOn::kEverything) return std::vector<TextRange>{{0, rendering.text.size()}};
  std::vector<TextRange> ranges = rendering.generations;
  if (!chat.marks_generation()) {
    WEFT_TRY(const std::string prompt, generation_prompt(chat, request));
    for (size_t i = 0; i < request.messages.size(); ++i) {
      if (request.messages[i]["role"] != "assistant" || rendering.messages[i].end == 0) continue;
      TextRange range = rendering.messages[i];
      const std::string_view written(rendering.text.data() + range.begin, range.end - range.begin);
      if (prompt.empty() || !written.starts_with(prompt)) {
        return Error{
            .source = chat.source(),
            .problem = "does not say where an assistant's turn begins: it does not begin as the text that asks for one",
            .advice = "Put the turn between {% generation %} and {% endgeneration %}, or learn everything."};
      }
      range.begin += prompt.size();
      ranges.push_back(range);
    }
  }
  if (loss == LossOn::kLastTurn && ranges.size() > 1) ranges.erase(ranges.begin(), ranges.end() - 1);
  return ranges;
}

Result<EncodedText> encode_conversation(const ModelText& text, const ChatTemplate& chat, const MediaTokenRule& rule,
                                        const EncodeSettings& settings, const Conversation& conversation,
                                        const std::vector<MediaSize>& sizes, PieceCache& cache,
                                        const std::string& source) {
  const auto wrong = [&](std::string problem, std::string advice) {
    return Error{.source = source, .problem = std::move(problem), .advice = std::move(advice)};
  };
  const ChatTemplate::Request request{.messages = conversation.messages,
                                      .tools = conversation.tools,
                                      .adds_generation_prompt = settings.asks,
                                      .variables = text.variables};
  WEFT_TRY(const ChatTemplate::Rendering rendering, chat.render(request));
  std::vector<TextRange> rendered;
  if (!settings.asks) {
    WEFT_TRY(rendered, learnt_ranges(chat, request, rendering, settings.loss));
  }
  const auto [whole, inserted, learnt] =
      expand_media(text.tokenizer, rule, conversation.media, sizes, rendering.text, rendered);

  std::vector<int64_t> ids;
  std::vector<size_t> begins;
  text.tokenizer.encode(whole, cache, ids, &begins);
  EncodedText encoded;
  std::vector<bool> is_learnt;
  std::vector<std::pair<size_t, size_t>> media_places;  // tokens [begin, end) of each
  size_t range = 0, written = 0, media = 0;
  int64_t run = 0;  // of the media
  for (size_t i = 0; i < ids.size(); ++i) {
    while (range < learnt.size() && begins[i] >= learnt[range].end) ++range;
    while (written < inserted.size() && begins[i] >= inserted[written].end) ++written;
    const bool is_inserted = written < inserted.size() && begins[i] >= inserted[written].begin;
    const bool learns = !is_inserted && range < learnt.size() && begins[i] >= learnt[range].begin;
    if (!rule.is_media(ids[i])) {
      encoded.ids.push_back(ids[i]);
      is_learnt.push_back(learns);
      continue;
    }
    if (media == conversation.media.size() || rule.of(conversation.media[media].kind).id != ids[i]) {
      return wrong(
          fmt::format("has the token {} in its text where no such media stand", text.tokenizer.bytes_of(ids[i])),
          "Media are written as <image>, <video> and <audio>, or as parts.");
    }
    const MediaToken& token = rule.of(conversation.media[media].kind);
    const int64_t count = sizes[media].tokens / sizes[media].num_runs();
    if (count < 1 || count > kMostTokens - std::ssize(encoded.ids)) {
      const MediaReference& own = conversation.media[media];
      return wrong(fmt::format("has the {} {}, which is {}", name_of(own.kind), in_quotes(own.files.front().string()),
                               count < 1 ? "too short for a single token"
                                         : fmt::format("{} tokens; a sample may have {}", count, kMostTokens)),
                   "Check the file.");
    }
    const size_t begin = encoded.ids.size();
    if (token.before >= 0) encoded.ids.push_back(token.before);
    encoded.ids.insert(encoded.ids.end(), static_cast<size_t>(count), token.id);
    if (token.after >= 0) encoded.ids.push_back(token.after);
    is_learnt.resize(encoded.ids.size(), false);
    media_places.emplace_back(begin, encoded.ids.size());
    if (++run < sizes[media].num_runs()) continue;
    run = 0;
    ++media;
  }
  if (media != conversation.media.size()) {
    return wrong(fmt::format("has {} media, but the template writes {} of them", conversation.media.size(), media),
                 "The model, or its template, does not take this kind of media.");
  }
  const auto cutoff = static_cast<size_t>(settings.cutoff_tokens);
  if (cutoff > 0 && encoded.ids.size() > cutoff) {
    for (const auto& [begin, end] : media_places) {
      if (end > cutoff) {
        return wrong(fmt::format("has {} tokens, and cutting it at {} would lose media", encoded.ids.size(), cutoff),
                     "Give a higher cut-off, or smaller media.");
      }
    }
    encoded.ids.resize(cutoff);
    is_learnt.resize(cutoff);
    encoded.is_cut = true;
  }
  if (settings.max_tokens > 0 && std::ssize(encoded.ids) > settings.max_tokens) {
    return wrong(fmt::format("has {} tokens, but the model's max_position_embeddings is {}", encoded.ids.size(),
                             settings.max_tokens),
                 "Give cutoff_tokens, or smaller media.");
  }
  encoded.targets.assign(encoded.ids.size(), kNoTarget);
  bool has_target = false;
  for (size_t i = 0; i + 1 < encoded.ids.size(); ++i) {
    if (!is_learnt[i + 1]) continue;
    encoded.targets[i] = encoded.ids[i + 1];
    has_target = true;
  }
  if (!has_target && !settings.asks)
    return wrong("has nothing to learn: no token of an answer is left", "Give a higher cut-off.");
  return encoded;
}

}  // namespace weft
