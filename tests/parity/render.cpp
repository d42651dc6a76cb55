// weft_render: one JSON object a line from standard input, {"template", "messages", "tools", "add_generation_prompt",
// "variables"}; of each the text, or the error, as a line of JSON. check_templates.py compares them.
#include <iostream>
#include <string>

#include "weft/data/templates/chat_template.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const weft::Json asked = weft::Json::parse(line);
    weft::Json answer;
    const auto made = weft::ChatTemplate::parse(asked["template"].get<std::string>(), "template");
    if (!made) {
      answer["error"] = made.error().message();
    } else {
      const auto rendering = made->render({.messages = asked["messages"],
                                           .tools = asked["tools"],
                                           .adds_generation_prompt = asked["add_generation_prompt"].get<bool>(),
                                           .variables = asked["variables"]});
      if (rendering) {
        answer["text"] = rendering->text;
        answer["generations"] = weft::Json::array();
        for (const weft::TextRange& range : rendering->generations) {
          answer["generations"].push_back(rendering->text.substr(range.begin, range.end - range.begin));
        }
      } else {
        answer["error"] = rendering.error().message();
      }
    }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
