#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/chat_template.h"

using namespace weft;

/// A template that is read renders a conversation or says why not, and what it marks lies in the text.
int weft::fuzz_template(const uint8_t* data, size_t size) {
  static const Json messages = Json::parse(
      R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"image"},{"type":"text","text":"é?"}]},
          {"role":"assistant","content":"<think>a</think>b","tool_calls":[{"function":{"name":"f","arguments":{"x":1.5}}}]}])");
  const Result<ChatTemplate> chat = ChatTemplate::parse(as_text(data, size), "input");
  if (!chat) {
    claim_good_message(chat);
    return 0;
  }
  const auto rendering = chat->render({.messages = messages,
                                       .tools = Json::parse(R"([{"name":"f"}])"),
                                       .adds_generation_prompt = true,
                                       .variables = {{"bos_token", "<s>"}}});
  if (!rendering) {
    claim_good_message(rendering);
    return 0;
  }
  claim(is_valid_utf8(rendering->text) && rendering->messages.size() == messages.size());
  for (const auto& ranges : {rendering->messages, rendering->generations}) {
    for (const TextRange& range : ranges) claim(range.begin <= range.end && range.end <= rendering->text.size());
  }
  return 0;
}
