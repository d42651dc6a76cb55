#include <fstream>
#include <set>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/data/conversations/conversation_sets.h"
#include "weft/data/conversations/survey.h"
#include "weft/data/sample.h"

namespace weft {
namespace {

const std::filesystem::path kData = source_tree() / "tests/parity/text";

/// A folder that goes away with it.
class DataFolder {
 public:
  DataFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_data_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~DataFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
  std::filesystem::path path;
};

Result<Conversation> read_text(const std::string& record, const std::string& form,
                               const std::filesystem::path& folder = "/data") {
  return read_conversation(Json::parse(record), column_preset(form), folder, "set, record 0");
}

TEST(Conversations, EveryFormGivesTheSameConversation) {
  const std::string same =
      R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"\nWhat?"}]},{"role":"assistant","content":"A cat."}])";
  const std::vector<std::pair<std::string, std::string>> records = {
      {"messages",
       R"({"messages":[{"role":"user","content":"<image>\nWhat?"},{"role":"assistant","content":"A cat."}],"images":["a/b.jpg"]})"},
      {"messages",
       R"({"messages":[{"role":"user","content":[{"type":"image","image":"a/b.jpg"},{"type":"text","text":"\nWhat?"}]},{"role":"assistant","content":"A cat."}]})"},
      {"sharegpt",
       R"({"conversations":[{"from":"human","value":"<image>\nWhat?"},{"from":"gpt","value":"A cat."}],"images":["a/b.jpg"]})"},
      {"llava",
       R"({"id":"1","image":"a/b.jpg","conversations":[{"from":"human","value":"<image>\nWhat?"},{"from":"gpt","value":"A cat."}]})"},
      {"alpaca", R"({"instruction":"<image>","input":"What?","output":"A cat.","images":["a/b.jpg"]})"},
      {"mindspeed_mm",
       R"({"messages":[{"role":"user","content":"<image>\nWhat?"},{"role":"assistant","content":"A cat."}],"images":["a/b.jpg"]})"}};
  for (const auto& [form, record] : records) {
    const Result<Conversation> conversation = read_text(record, form);
    ASSERT_TRUE(conversation) << form << ": " << conversation.error().message();
    EXPECT_EQ(conversation->messages, Json::parse(same)) << form;
    ASSERT_EQ(conversation->media.size(), 1u);
    EXPECT_EQ(conversation->media[0].files, (std::vector<std::filesystem::path>{"/data/a/b.jpg"}));
    EXPECT_EQ(form == "mindspeed_mm" ? "messages" : form, guess_preset(Json::parse(record)))
        << "the form is told by the record";
  }
}

TEST(Conversations, ToolsSystemTurnsAndFramesAreRead) {
  const auto conversation = *read_text(
      R"({"system":"Be brief.","tools":"[{\"name\":\"f\"}]","videos":[["f/0.png","f/1.png"]],"conversations":[
        {"from":"human","value":"See <video>"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},
        {"from":"observation","value":"3"},{"from":"gpt","value":"Three."}]})",
      "sharegpt");
  EXPECT_EQ(conversation.messages[0], Json::parse(R"({"role":"system","content":"Be brief."})"));
  EXPECT_EQ(conversation.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(conversation.messages[3]["role"], "tool");
  EXPECT_EQ(conversation.tools, Json::parse(R"([{"name":"f"}])"));
  ASSERT_EQ(conversation.media.size(), 1u);
  EXPECT_EQ(conversation.media[0].kind, MediaKind::kVideo);
  EXPECT_EQ(conversation.media[0].files.size(), 2u);
}

TEST(Conversations, BrokenRecordsSayWhatIsWrong) {
  const auto problem = [](const std::string& record, const std::string& form = "messages") {
    const Result<Conversation> conversation = read_text(record, form);
    return conversation ? std::string("read") : conversation.error().message();
  };
  const auto with_image = [](const std::string& path, const std::string& text) {
    return R"({"images":[")" + path + R"("],"messages":[{"role":"user","content":")" + text +
           R"("},{"role":"assistant","content":"b"}]})";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(problem(with_image("a.jpg", "<image>")), "read");
  EXPECT_TRUE(has(problem(with_image("a.jpg", "no place")), "1 image files and 0 places"));
  EXPECT_TRUE(has(problem(with_image("a.jpg", "<image><image>")), "1 image files and 2 places"));
  EXPECT_TRUE(has(problem(with_image("../a.jpg", "<image>")), "leaves the folder"));
  EXPECT_TRUE(has(problem(with_image("x/../../a.jpg", "<image>")), "leaves the folder"));
  EXPECT_TRUE(has(problem(with_image("/etc/passwd", "<image>")), "leaves the folder"));
  EXPECT_TRUE(has(problem(with_image("http://x/a.jpg", "<image>")), "address"));
  EXPECT_TRUE(has(problem(R"({"messages":[{"role":"wizard","content":"x"}]})"), "'wizard'"));
  EXPECT_TRUE(has(problem(R"({"messages":[{"role":"user","content":"x"}]})"), "no turn of the assistant"));
  EXPECT_TRUE(has(problem(R"({"chat":[]})"), "messages: is missing"));
  EXPECT_TRUE(has(problem(R"([1])"), "not an object"));
  EXPECT_TRUE(has(problem(R"({"messages":[{"role":"user","content":5}]})"), "content"));
  EXPECT_EQ(problem(R"({"messages":[{"role":"user","content":"the tag <image>"},{"role":"assistant","content":"b"}]})"),
            "read")
      << "without images the word is a word";
  EXPECT_TRUE(has(problem(R"({"images":[],"messages":[{"role":"user","content":"<image>"},)"
                          R"({"role":"assistant","content":"b"}]})"),
                  "0 image files and 1 places"));
}

TEST(Conversations, APlaceWithoutItsPictureIsToldInASetWithPictures) {
  const DataFolder folder;
  const std::string turns = R"("messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}]})";
  const auto second_record = [&](const std::string& first) {
    folder.write("set.jsonl", first + turns + "\n{" + turns + "\n");
    const DataSettings settings{.files = {{.file = folder.path / "set.jsonl", .folder = folder.path}}};
    const auto read = ConversationSets::open(settings)->read({.set = 0, .record = 1});
    return read ? std::string("read") : read.error().message();
  };
  EXPECT_NE(second_record(R"({"images":["a.png"],)").find("0 image files and 1 places"), std::string::npos);
  EXPECT_EQ(second_record("{"), "read");
}

TEST(Conversations, LinksOutOfTheFolderAreRefused) {
  const DataFolder folder;
  std::filesystem::create_directory(folder.path / "data");
  folder.write("secret.png", "x");
  std::filesystem::create_symlink(folder.path / "secret.png", folder.path / "data/a.png");
  const auto conversation = read_text(
      R"({"images":["a.png"],"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}]})",
      "messages", folder.path / "data");
  ASSERT_FALSE(conversation);
  EXPECT_NE(conversation.error().message().find("leaves the folder"), std::string::npos);
}

TEST(Conversations, APartsOwnFileIsItsOwn) {
  const auto conversation = *read_text(
      R"({"audios":["column.wav"],"messages":[{"role":"user","content":[{"type":"audio","path":"part.wav"},
        {"type":"text","text":"or"},{"type":"audio"}]},{"role":"assistant","content":"A."}]})",
      "messages");
  ASSERT_EQ(conversation.media.size(), 2u);
  EXPECT_EQ(conversation.media[0].files.front(), "/data/part.wav");
  EXPECT_EQ(conversation.media[1].files.front(), "/data/column.wav");
  const auto without = read_text(
      R"({"messages":[{"role":"user","content":[{"type":"audio","path":"part.wav"},{"type":"audio"}]},
        {"role":"assistant","content":"A."}]})",
      "messages");
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message().find("0 audio files and 1 places"), std::string::npos);
  const auto unused = read_text(
      R"({"audios":["column.wav"],"messages":[{"role":"user","content":[{"type":"audio","path":"part.wav"}]},
        {"role":"assistant","content":"A."}]})",
      "messages");
  ASSERT_FALSE(unused);
  EXPECT_NE(unused.error().message().find("1 audio files and 0 places"), std::string::npos);
}

TEST(Conversations, SingleTurnsAreTexts) {
  const auto problem = [](const std::string& column) {
    const auto read = read_text(R"({"instruction":"a","output":"b",)" + column + "}", "alpaca");
    return read ? std::string("read") : read.error().message();
  };
  EXPECT_EQ(problem(R"("input":null,"history":null)"), "read");
  EXPECT_EQ(problem(R"("input":"","history":"")"), "read");
  EXPECT_EQ(problem(R"("input":"c","history":[["d","e"]])"), "read");
  EXPECT_NE(problem(R"("input":["longer question"])").find("input: is a list, a text is needed"), std::string::npos);
  EXPECT_NE(problem(R"("input":5)").find("input: is the number 5"), std::string::npos);
  EXPECT_NE(problem(R"("history":"x")").find("history: is the text 'x', a list"), std::string::npos);
}

TEST(Conversations, APathThatIsTooLongLeavesNoFolder) {
  const auto conversation = read_text(R"({"images":[")" + std::string(5000, 'a') +
                                          R"("],"messages":[{"role":"user","content":"<image>"},
                                            {"role":"assistant","content":"b"}]})",
                                      "messages");
  ASSERT_FALSE(conversation);
  EXPECT_NE(conversation.error().message().find("File name too long"), std::string::npos)
      << conversation.error().message();
}

TEST(RecordList, RecordsOfListsAndLinesAreFoundByNumber) {
  const DataFolder folder;
  const std::vector<std::string> records = {R"({"a": "x,]}\"["})", R"([1, {"b": [2]}])", "3", R"("t\\")", "{}"};
  std::string list = "\xef\xbb\xbf [\n", lines;
  for (size_t i = 0; i < records.size(); ++i) {
    list += (i > 0 ? " ,\n" : "") + records[i];
    lines += records[i] + (i % 2 == 0 ? "\n" : "\r\n\n");
  }
  for (const auto& path : {folder.write("a.json", list + " ]\n"), folder.write("a.jsonl", lines)}) {
    const Result<RecordList> file = RecordList::open(path);
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_EQ(file->size(), 5) << path;
    for (size_t i = 0; i < records.size(); ++i)
      EXPECT_EQ(*file->read(static_cast<int64_t>(i)), Json::parse(records[i])) << path;
  }
  const auto problem = [&](const std::string& text) {
    const Result<RecordList> file = RecordList::open(folder.write("b.json", text));
    return file ? std::string("opened") : file.error().message();
  };
  EXPECT_NE(problem("").find("empty"), std::string::npos);
  EXPECT_NE(problem(" \n\n").find("no records"), std::string::npos);
  EXPECT_NE(problem("[]").find("no records"), std::string::npos);
  EXPECT_NE(problem("[{\"a\": 1}, ").find("ends inside its list"), std::string::npos);
  const RecordList torn = *RecordList::open(folder.write("c.jsonl", "{\"a\":1}\n{broken\n{\"a\":2}"));
  EXPECT_EQ(torn.size(), 3);
  EXPECT_FALSE(torn.read(1)) << "one broken line is one broken sample";
  // What Python's replacement makes of it: one character for each byte that begins nothing, one for a cut-off
  // character.
  const RecordList bytes = *RecordList::open(folder.write("d.jsonl", "{\"a\": \"x\xff\xfe\xe4\xbd\"}\n"));
  ASSERT_TRUE(bytes.read(0)) << bytes.read(0).error().message();
  EXPECT_EQ((*bytes.read(0))["a"], "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ((*torn.read(2))["a"], 2);
}

TEST(RecordList, RecordsOverSeveralBlocksAreWhole) {
  const DataFolder folder;
  std::string list = "[";
  for (int i = 0; i < 40; ++i)
    list += (i > 0 ? "," : "") + ("{\"n\":" + std::to_string(i) + ",\"t\":\"" + std::string(90'000, 'a') + "\\\"]\"}");
  const RecordList file = *RecordList::open(folder.write("big.json", list + "]"));
  ASSERT_EQ(file.size(), 40);
  for (int i = 0; i < 40; ++i) EXPECT_EQ((*file.read(i))["n"], i);
}

/// A model's text with one of the small tokenizers and a template.
ModelText model_text(const std::string& name) {
  ModelText text{.tokenizer = *Tokenizer::read_folder(kData / "qwen2_form"), .chat = std::nullopt};
  text.chat = *ChatTemplate::parse(*read_file(kData / "templates" / (name + ".jinja"), 1 << 20), name);
  text.variables = {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eos|>"}, {"date_string", "1 Jan 2025"}};
  return text;
}

/// The text of what is learnt, a bar between turns.
std::string learnt(const ModelText& text, const Json& messages, LossOn loss) {
  const Conversation conversation{.messages = messages, .tools = nullptr, .media = {}};
  PieceCache cache;
  const EncodedText encoded =
      *encode_conversation(text, *text.chat, {}, {.loss = loss}, conversation, {}, cache, "sample");
  std::string all;
  bool was_learnt = false;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    if (encoded.targets[i] == kNoTarget) {
      was_learnt = false;
      continue;
    }
    EXPECT_EQ(encoded.targets[i], encoded.ids[i + 1]);
    if (!was_learnt && !all.empty()) all += '|';
    all += text.tokenizer.bytes_of(encoded.targets[i]);
    was_learnt = true;
  }
  return all;
}

TEST(EncodeConversation, TheAssistantsTurnsAreLearnt) {
  const Json messages = Json::parse(
      R"([{"role":"system","content":"S"},{"role":"user","content":"one"},{"role":"assistant","content":"ab c"},
          {"role":"user","content":"two"},{"role":"assistant","content":"d"}])");
  const ModelText qwen = model_text("vision_parts");
  EXPECT_EQ(learnt(qwen, messages, LossOn::kAssistant), "ab c<|im_end|>\n|d<|im_end|>\n");
  EXPECT_EQ(learnt(qwen, messages, LossOn::kLastTurn), "d<|im_end|>\n");
  const std::string all = learnt(qwen, messages, LossOn::kEverything);
  EXPECT_TRUE(all.ends_with("assistant\nd<|im_end|>\n")) << all;
  EXPECT_NE(all.find("one"), std::string::npos);
  const ModelText llama = model_text("header_turns");
  EXPECT_EQ(learnt(llama, messages, LossOn::kAssistant), "ab c<|eot_id|>|d<|eot_id|>");
  EXPECT_EQ(learnt(model_text("macro_parts"), messages, LossOn::kAssistant), "ab c<|eos|>|d<|eos|>")
      << "the template's own marks";
}

TEST(EncodeConversation, ThoughtsThatATemplateDropsAreNotLearnt) {
  const Json messages = Json::parse(
      R"([{"role":"user","content":"one"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nyes"},
          {"role":"user","content":"two"},{"role":"assistant","content":"<think>\nso\n</think>\n\nno"}])");
  EXPECT_EQ(learnt(model_text("chatml_tools"), messages, LossOn::kAssistant),
            "yes<|im_end|>\n|<think>\nso\n</think>\n\nno<|im_end|>\n");
}

TEST(EncodeConversation, MediaTokensAreRepeatedAndNeverLearnt) {
  ModelText text = model_text("vision_parts");
  // The small tokenizer has other added tokens: <|a|> stands for an image here.
  text.chat = *ChatTemplate::parse(
      "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "
      "%}"
      "{{ p.text if p.type == 'text' else '<|a|>' }}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt "
      "%}[assistant]{% endif %}",
      "t");
  const int64_t image = *text.tokenizer.find("<|a|>");
  MediaTokenRule rule;
  rule.image.id = image;
  const auto conversation = *read_text(
      R"({"images":["a.png","b.png"],"messages":[{"role":"user","content":"<image>x<image>"},{"role":"assistant","content":"y"}]})",
      "messages");
  PieceCache cache;
  const std::vector<MediaSize> sizes = {{.tokens = 3}, {.tokens = 5}};
  const EncodedText encoded = *encode_conversation(text, *text.chat, rule, {}, conversation, sizes, cache, "s");
  EXPECT_EQ(std::count(encoded.ids.begin(), encoded.ids.end(), image), 8);
  EXPECT_EQ(std::count(encoded.targets.begin(), encoded.targets.end(), image), 0);
  const auto problem = [&](const EncodeSettings& settings, const MediaTokenRule& own) {
    const auto made = encode_conversation(text, *text.chat, own, settings, conversation, sizes, cache, "s");
    return made ? std::string("made") : made.error().message();
  };
  EXPECT_NE(problem({.cutoff_tokens = 10}, rule).find("would lose media"), std::string::npos);
  EXPECT_NE(problem({}, MediaTokenRule{}).find("2 media"), std::string::npos);
  const auto smuggled =
      *read_text(R"({"messages":[{"role":"user","content":"<|a|>"},{"role":"assistant","content":"y"}]})", "messages");
  const auto refused = encode_conversation(text, *text.chat, rule, {}, smuggled, {}, cache, "s");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("no such media"), std::string::npos);
}

TEST(EncodeConversation, TurnsAreLearntInWhateverOrderTheyAreWritten) {
  const Json messages = Json::parse(
      R"([{"role":"user","content":"one"},{"role":"assistant","content":"ab"},{"role":"user","content":"two"},
          {"role":"assistant","content":"cd"}])");
  ModelText text = model_text("vision_parts");
  text.chat = *ChatTemplate::parse(
      "{% for m in messages|reverse %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "t");
  EXPECT_EQ(learnt(text, messages, LossOn::kAssistant), "cd|ab");
  EXPECT_EQ(learnt(text, messages, LossOn::kLastTurn), "cd");
  text.chat = *ChatTemplate::parse(
      "{% for m in messages %}[{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% generation %}.{% endgeneration %};{% endgeneration %}{% else %}{{ m.content }}{% endif %}]{% endfor %}",
      "t");
  EXPECT_EQ(learnt(text, messages, LossOn::kAssistant), "ab.;|cd.;");
  EXPECT_EQ(learnt(text, messages, LossOn::kLastTurn), "cd.;");
}

TEST(EncodeConversation, ASampleThatIsTooLongIsNotMade) {
  ModelText text = model_text("vision_parts");
  text.chat = *ChatTemplate::parse("{% for m in messages %}<|a|>{% endfor %}", "t");
  MediaTokenRule rule;
  rule.image.id = *text.tokenizer.find("<|a|>");
  const Conversation conversation{.messages = Json::parse(R"([{"role":"user","content":""}])"),
                                  .tools = nullptr,
                                  .media = {{.kind = MediaKind::kImage, .files = {"a.png"}}}};
  PieceCache cache;
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  const auto encoded = encode_conversation(text, *text.chat, rule, {.loss = LossOn::kEverything, .max_tokens = 4096},
                                           conversation, {{.tokens = 90'000'000}}, cache, "sample");
  ASSERT_FALSE(encoded);
  EXPECT_NE(encoded.error().message().find("has 90000000 tokens, but the model's"), std::string::npos)
      << encoded.error().message();
  EXPECT_LT(peak_kib() - before, 300 * 1024) << "its tokens alone would take 700 MB";
}

TEST(SampleOrder, AnEpochSeesEveryRecordOnceAndHeldOutOnesNever) {
  const SampleOrder order(
      {{.num_records = 57, .num_held_out = 5}, {.num_records = 1}, {.num_records = 130, .num_held_out = 13}}, 7);
  ASSERT_EQ(order.epoch_samples(), 52 + 1 + 117);
  std::set<std::pair<size_t, int64_t>> held_out;
  for (int64_t i = 0; i < order.num_held_out(); ++i) held_out.emplace(order.held_out(i).set, order.held_out(i).record);
  EXPECT_EQ(held_out.size(), 18u);
  std::vector<SampleOrder::Place> first;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::pair<size_t, int64_t>> seen;
    std::vector<SampleOrder::Place> places;
    for (int64_t i = 0; i < order.epoch_samples(); ++i) {
      places.push_back(order.at(epoch * order.epoch_samples() + i));
      EXPECT_TRUE(seen.emplace(places.back().set, places.back().record).second);
      EXPECT_FALSE(held_out.contains({places.back().set, places.back().record}));
    }
    if (epoch == 0) first = places;
    EXPECT_EQ(places == first, epoch == 0) << "epochs have orders of their own";
  }
  EXPECT_NE(order.at(3), order.at(3, 1)) << "what stands in for a broken sample";
}

TEST(SampleOrder, WeightsAreKeptWhateverTheSizes) {
  const SampleOrder order({{.num_records = 10, .weight = 3}, {.num_records = 1000, .weight = 1}}, 1);
  std::vector<int64_t> counts(2);
  std::map<int64_t, int> records;
  for (int64_t i = 0; i < 40'960; ++i) {
    const SampleOrder::Place place = order.at(i);
    ++counts[place.set];
    if (place.set == 0) ++records[place.record];
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{30'720, 10'240}));
  for (const auto& [record, count] : records) EXPECT_EQ(count, 3072) << record;
}

TEST(DataSettings, MindSpeedsKeysMeanTheSame) {
  const auto settings = *read_data_settings(*parse_document(R"({"dataset_param":{"dataset_type":"huggingface",
        "preprocess_parameters":{"model_name_or_path":"m","image_max_pixels":262144,"video_fps":2.0,"video_maxlen":14},
        "basic_parameters":{"template":"qwen2vl","dataset_dir":"./data","dataset":"./data/a.json","cutoff_len":1024,
                            "train_on_prompt":false,"mask_history":true,"max_samples":null},
        "attr":{"system":null,"images":"pics","videos":null,"messages":"talk","role_tag":"who","content_tag":"what",
                "user_tag":"u","assistant_tag":"a","observation_tag":null,"function_tag":null,"system_tag":null}}})",
                                                            "data.json", Syntax::kJson),
                                            "/x");
  ASSERT_EQ(settings.files.size(), 1u);
  EXPECT_EQ(settings.files[0].file, "/x/./data/a.json");
  EXPECT_EQ(settings.files[0].columns->images, "pics");
  EXPECT_EQ(settings.files[0].columns->videos, "");
  EXPECT_EQ(settings.files[0].columns->role_tag, "who");
  EXPECT_EQ(settings.files[0].columns->system_tag, "system");
  EXPECT_EQ(settings.encode.loss, LossOn::kLastTurn);
  EXPECT_EQ(settings.encode.cutoff_tokens, 1024);
  EXPECT_EQ(settings.limits.image_max_pixels, 262144);
  EXPECT_EQ(settings.limits.video_max_frames, 14);
  EXPECT_EQ(settings.limits.video_fps, 2);
}

TEST(DataSettings, OwnSettingsAreReadAndUnknownKeysRefused) {
  const auto read = [](const std::string& text) {
    return read_data_settings(*parse_document(text, "data.yaml", Syntax::kYaml), "/x");
  };
  const auto settings = *read(
      "{sets: [{file: a.jsonl, weight: 2}, {file: b.json, form: llava, weight: 1, folder: pics, columns: {images: "
      "photo}}],"
      " loss: everything, cutoff_tokens: 100, held_out_share: 0.1, pack: true}");
  EXPECT_EQ(settings.files[1].folder, "/x/pics");
  EXPECT_EQ(settings.files[1].columns->images, "photo");
  EXPECT_EQ(settings.files[1].columns->user_tag, "human");
  EXPECT_TRUE(settings.packs);
  EXPECT_NE(read("{sets: [{file: a}], pack: true}").error().message().find("cutoff_tokens"), std::string::npos);
  EXPECT_NE(read("{sets: [{file: a, wieght: 2}]}").error().message().find("wieght"), std::string::npos);
  EXPECT_NE(read("{sets: [{file: a, weight: 2}, {file: b}]}").error().message().find("weight"), std::string::npos);
  EXPECT_NE(read("{sets: []}").error().message().find("sets"), std::string::npos);
}

TEST(SkipReport, TooManyBrokenSamplesAreAnError) {
  SkipReport report;
  for (int i = 0; i < 30; ++i) {
    report.count_used();
    if (i % 5 == 0) report.add(Error{.source = "f", .problem = "lacks file 'x" + std::to_string(i) + "' of 3"});
  }
  EXPECT_EQ(report.num_broken(), 6);
  ASSERT_EQ(report.kinds().size(), 1u) << "one kind of problem";
  EXPECT_EQ(report.kinds().begin()->second, 6);
  EXPECT_FALSE(report.find_too_many(0.2, "data"));
  EXPECT_TRUE(report.find_too_many(0.1, "data"));
}

TEST(SkipReport, AnApostropheIsNoName) {
  SkipReport report;
  for (const char* problem : {"has 5001 tokens, but the model's max_position_embeddings is 4096",
                              "has 77 tokens, but the model's max_position_embeddings is 512"})
    report.add(Error{.source = "f", .problem = problem});
  report.add(Error{.source = "f", .problem = "lacks 'it's 3.png' of 'x' and the ranks' 4 files"});
  EXPECT_EQ(report.kinds(),
            (std::map<std::string, int64_t>{{"has # tokens, but the model's max_position_embeddings is #", 2},
                                            {"lacks '...' of '...' and the ranks' # files", 1}}));
}

TEST(Survey, SummariesKeepTheMean) {
  std::vector<double> values;
  double sum = 0;
  for (int i = 0; i < 5000; ++i) {
    values.push_back((i * 7919) % 4000);
    sum += values.back();
  }
  const Distribution few = summarized(values, 48, 1);
  EXPECT_LE(few.outcomes().size(), 48u);
  EXPECT_NEAR(few.mean(), sum / 5000, 0.5);
  const Distribution exact = summarized({0, 1, 1, 2}, 48, 1);
  EXPECT_EQ(exact, Distribution::weighted({{0, 1}, {1, 2}, {2, 1}}));
}

TEST(Conversations, MediaBesideAFileOfTheWorkingDirectoryAreInItsFolder) {
  const Document document = *parse_document("sets: [{file: chats.jsonl}]", "t", Syntax::kYaml);
  const DataSettings settings = *read_data_settings(document, "");
  EXPECT_EQ(settings.files.front().folder, ".");
  const std::string record =
      R"({"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"A."}],"images":["a/b.jpg"]})";
  const Result<Conversation> conversation = read_text(record, "messages", settings.files.front().folder);
  ASSERT_TRUE(conversation) << conversation.error().message();
  EXPECT_EQ(conversation->media.front().files.front().lexically_normal(), "a/b.jpg");
}

}  // namespace
}  // namespace weft
