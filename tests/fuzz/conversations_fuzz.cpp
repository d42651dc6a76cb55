#include <cstdio>
#include <unistd.h>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/data/conversations/conversation_sets.h"

using namespace weft;

/// A data set's records are read one by one or refused one by one, in every form; data settings are read or refused.
int weft::fuzz_conversations(const uint8_t* data, size_t size) {
  if (const Result<Document> document = document_of(data, size)) {
    const Result<DataSettings> settings = read_data_settings(*document, "/nowhere");
    if (!settings) {
      claim_good_message(settings);
    } else {
      claim(!settings->files.empty());
      for (const DataFile& file : settings->files) claim(file.file.native().find('\0') == std::string::npos);
    }
  }
  char path[] = "/tmp/weft_fuzz_XXXXXX";
  const int descriptor = mkstemp(path);
  if (descriptor < 0) return 0;
  claim(write(descriptor, data, size) == static_cast<ssize_t>(size));
  close(descriptor);
  DataSettings settings;
  settings.files.push_back({.file = path, .folder = "/nowhere"});
  const Result<ConversationSets> sets = ConversationSets::open(settings);
  if (!sets) {
    claim_good_message(sets);
  } else {
    for (int64_t i = 0; i < std::min<int64_t>(sets->num_records(0), 64); ++i) {
      const Result<Conversation> conversation = sets->read({.set = 0, .record = i});
      if (!conversation) {
        claim_good_message(conversation);
        continue;
      }
      claim(conversation->messages.is_array() && !conversation->messages.empty());
      for (const MediaReference& media : conversation->media) {
        for (const auto& file : media.files) claim(file.lexically_normal().string().starts_with("/nowhere/"));
      }
    }
  }
  unlink(path);
  return 0;
}
