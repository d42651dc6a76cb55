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

/// From the left, those that overlap as one: marks of generations can lie in each other.
std::vector<TextRange> in_order(std::vector<TextRange> ranges) {
  const auto begins_before = [](const TextRange& a, const TextRange& b) { return a.begin < b.begin; };
  std::stable_sort(ranges.begin(), ranges.end(), begins_before);
  std::vector<TextRange> apart;
  for (const TextRange& range : ranges) {
    if (!apart.empty() && range.begin < apart.back().end) {
      apart.back().end = std::max(apart.back().end, range.end);
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

/// A token that stands for media: where the run that it becomes lies among the tokens, with what is put around it.
struct MediaRun {
  size_t written = 0;  ///< its number in the tokens of the text
  size_t begin = 0;
  size_t end = 0;
  const MediaToken* token = nullptr;
};

/// Where everything will lie, before any of it is made: runs can be longer than what fits into memory.
struct Layout {
  std::vector<MediaRun> runs;
  size_t num_tokens = 0;
};

Result<Layout> lay_out(const std::vector<int64_t>& ids, const Tokenizer& tokenizer, const MediaTokenRule& rule,
                       const std::vector<MediaReference>& media, const std::vector<MediaSize>& sizes,
                       const std::string& source) {
  const auto wrong = [&](std::string problem, std::string advice) {
    return Error{.source = source, .problem = std::move(problem), .advice = std::move(advice)};
  };
  Layout layout;
  size_t medium = 0;
  int64_t run = 0;  // of the medium
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!rule.is_media(ids[i])) {
      ++layout.num_tokens;
      continue;
    }
    if (medium == media.size() || rule.of(media[medium].kind).id != ids[i]) {
      return wrong(fmt::format("has the token {} in its text where no such media stand", tokenizer.bytes_of(ids[i])),
                   "Media are written as <image>, <video> and <audio>, or as parts.");
    }
    const MediaReference& own = media[medium];
    const MediaToken& token = rule.of(own.kind);
    const int64_t count = sizes[medium].tokens / sizes[medium].num_runs();
    if (count < 1 || count > kMostTokens - static_cast<int64_t>(layout.num_tokens)) {
      return wrong(fmt::format("has the {} {}, which is {}", name_of(own.kind), in_quotes(own.files.front().string()),
                               count < 1 ? "too short for a single token"
                                         : fmt::format("{} tokens; a sample may have {}", count, kMostTokens)),
                   "Check the file.");
    }
    const size_t begin = layout.num_tokens;
    layout.num_tokens += static_cast<size_t>(count) + (token.before >= 0 ? 1 : 0) + (token.after >= 0 ? 1 : 0);
    layout.runs.push_back({.written = i, .begin = begin, .end = layout.num_tokens, .token = &token});
    if (++run < sizes[medium].num_runs()) continue;
    run = 0;
    ++medium;
  }
  if (medium != media.size()) {
    return wrong(fmt::format("has {} media, but the template writes {} of them", media.size(), medium),
                 "The model, or its template, does not take this kind of media.");
  }
  return layout;
}

}  // namespace

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names = {"assistant", "last_turn", "everything"};
  return names;
}

Result<std::vector<TextRange>> learnt_ranges(const ChatTemplate& chat, const ChatTemplate::Request& request,
                                             const ChatTemplate::Rendering& rendering, LossOn loss) {
  if (loss == LossOn::kEverything) return std::vector<TextRange>{{0, rendering.text.size()}};
  std::vector<TextRange> ranges = in_order(rendering.generations);
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
  // The conversation's last turn, wherever the template writes it.
  if (loss == LossOn::kLastTurn && ranges.size() > 1) ranges.erase(ranges.begin(), ranges.end() - 1);
  return in_order(std::move(ranges));
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
  WEFT_TRY(const Layout layout, lay_out(ids, text.tokenizer, rule, conversation.media, sizes, source));
  const auto cutoff = static_cast<size_t>(settings.cutoff_tokens);
  EncodedText encoded;
  encoded.is_cut = cutoff > 0 && layout.num_tokens > cutoff;
  if (encoded.is_cut && !layout.runs.empty() && layout.runs.back().end > cutoff) {
    return wrong(fmt::format("has {} tokens, and cutting it at {} would lose media", layout.num_tokens, cutoff),
                 "Give a higher cut-off, or smaller media.");
  }
  const size_t num_tokens = encoded.is_cut ? cutoff : layout.num_tokens;
  if (settings.max_tokens > 0 && static_cast<int64_t>(num_tokens) > settings.max_tokens) {
    return wrong(
        fmt::format("has {} tokens, but the model's max_position_embeddings is {}", num_tokens, settings.max_tokens),
        "Give cutoff_tokens, or smaller media.");
  }
  std::vector<bool> is_learnt;
  size_t range = 0, written = 0, run = 0;
  for (size_t i = 0; i < ids.size() && encoded.ids.size() < num_tokens; ++i) {
    if (run < layout.runs.size() && layout.runs[run].written == i) {
      const MediaRun& own = layout.runs[run++];
      if (own.token->before >= 0) encoded.ids.push_back(own.token->before);
      encoded.ids.insert(encoded.ids.end(), own.end - encoded.ids.size() - (own.token->after >= 0 ? 1 : 0),
                         own.token->id);
      if (own.token->after >= 0) encoded.ids.push_back(own.token->after);
      is_learnt.resize(encoded.ids.size(), false);
      continue;
    }
    while (range < learnt.size() && begins[i] >= learnt[range].end) ++range;
    while (written < inserted.size() && begins[i] >= inserted[written].end) ++written;
    const bool is_inserted = written < inserted.size() && begins[i] >= inserted[written].begin;
    encoded.ids.push_back(ids[i]);
    is_learnt.push_back(!is_inserted && range < learnt.size() && begins[i] >= learnt[range].begin);
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
