#include "weft/data/templates/chat_template.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/base/file.h"

namespace weft {
namespace {

const std::filesystem::path kTemplateFixtures = source_tree() / "tests/parity/text";

TEST(ChatTemplate, RenderingsAreThoseOfTransformers) {
  const Document fixture = *read_document(kTemplateFixtures / "renderings.json");
  int num_texts = 0, num_errors = 0, num_generations = 0;
  for (const auto& [name, renderings] : fixture.root["renderings"].items()) {
    const std::string text = *read_file(kTemplateFixtures / "templates" / (name + ".jinja"), 1 << 20);
    const Result<ChatTemplate> chat = ChatTemplate::parse(text, name);
    ASSERT_TRUE(chat) << chat.error().message();
    for (size_t i = 0; i < renderings.size(); ++i) {
      const Json& asked = fixture.root["cases"][i];
      const Json& expected = renderings[i];
      const auto rendering = chat->render({.messages = asked["messages"],
                                           .tools = asked["tools"],
                                           .adds_generation_prompt = asked["add_generation_prompt"].get<bool>(),
                                           .variables = asked["variables"]});
      if (expected.contains("error")) {
        EXPECT_FALSE(rendering) << name << " refuses case " << i << ": " << expected["error"];
        ++num_errors;
        continue;
      }
      ASSERT_TRUE(rendering) << name << ", case " << i << ": " << rendering.error().message();
      EXPECT_EQ(rendering->text, expected["text"].get<std::string>()) << name << ", case " << i;
      ASSERT_EQ(rendering->generations.size(), expected["generations"].size());
      for (size_t g = 0; g < rendering->generations.size(); ++g, ++num_generations) {
        const TextRange range = rendering->generations[g];
        EXPECT_EQ(rendering->text.substr(range.begin, range.end - range.begin),
                  expected["generations"][g].get<std::string>());
      }
      ++num_texts;
    }
  }
  EXPECT_GT(num_texts, 40);
  EXPECT_GT(num_errors, 5);
  EXPECT_GT(num_generations, 3);
}

TEST(ChatTemplate, LinesAreThoseOfJinjaOrRefused) {
  const Document fixture = *read_document(kTemplateFixtures / "lines.json");
  const Json& asked = fixture.root["case"];
  int num_texts = 0, num_refused = 0;
  for (const Json& line : fixture.root["lines"]) {
    const std::string text = line["template"];
    Result<ChatTemplate> chat = ChatTemplate::parse(text, "t");
    Result<ChatTemplate::Rendering> rendering =
        chat ? chat->render({.messages = asked["messages"], .variables = asked["variables"]}) : chat.error();
    if (line.contains("refused")) {
      EXPECT_FALSE(rendering) << text << " gives " << rendering->text;
      ++num_refused;
    } else if (rendering) {
      EXPECT_EQ(rendering->text, line["text"].get<std::string>()) << text;
      ++num_texts;
    } else {
      ADD_FAILURE() << text << ": " << rendering.error().message();
    }
  }
  EXPECT_GT(num_texts, 40);
  EXPECT_GT(num_refused, 40);
}

TEST(ChatTemplate, UnknownConstructsAreRefusedByName) {
  const auto problem = [](const char* text) {
    const Result<ChatTemplate> chat = ChatTemplate::parse(text, "t");
    return chat ? std::string("read") : chat.error().message();
  };
  EXPECT_NE(problem("{% include 'x' %}").find("'include'"), std::string::npos);
  EXPECT_NE(problem("a\n{{ x|shuffle }}").find("t: line 2: has the unknown filter 'shuffle'"), std::string::npos);
  EXPECT_NE(problem("{{ x is purple }}").find("'purple'"), std::string::npos);
  EXPECT_NE(problem("{% for x in y recursive %}{% endfor %}").find("'recursive'"), std::string::npos);
  EXPECT_NE(problem("{% if x %}").find("endif"), std::string::npos);
  EXPECT_NE(problem("{{ 'abc }}").find("text that does not end"), std::string::npos);
  EXPECT_NE(problem("{% endfor %}"), "read");
  EXPECT_NE(problem("{{ (1 }}"), "read");
}

TEST(ChatTemplate, MessagesKnowTheirText) {
  const ChatTemplate chat = *ChatTemplate::parse(
      "S{% for m in messages[::-1] %}{% set x = m.role %}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content "
      "}}{% endfor %}E",
      "t");
  const auto rendering =
      *chat.render({.messages = Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"bc"}])")});
  EXPECT_EQ(rendering.text, "S<user>a<assistant>bcE");
  EXPECT_EQ(rendering.messages, (std::vector<TextRange>{{1, 8}, {8, 21}}));
}

}  // namespace
}  // namespace weft
