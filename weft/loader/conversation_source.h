#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "weft/data/conversations/conversation_sets.h"
#include "weft/data/conversations/media_rules.h"
#include "weft/data/sample_form.h"
#include "weft/data/sample_source.h"
#include "weft/prepare/log_mel.h"

namespace weft {

/// Conversations of files, with everything that makes samples of them: tokenizer, template, rules for media. What it
/// reads does not change; several threads may read.
class ConversationData {
 public:
  /// `model_folder` has the tokenizer, the chat template and the preprocessor's settings. The error names the file.
  static Result<std::shared_ptr<ConversationData>> open(const Model& model, const SampleForm& form,
                                                        const std::filesystem::path& model_folder,
                                                        const DataSettings& settings);

  /// The same without any files: for conversations that come from elsewhere.
  static Result<std::shared_ptr<ConversationData>> open_for_prompts(const Model& model, const SampleForm& form,
                                                                    const std::filesystem::path& model_folder);

  const ConversationSets& sets() const { return sets_; }
  const Tokenizer& tokenizer() const { return text_.tokenizer; }
  const SampleForm& form() const { return form_; }
  const EncodeSettings& encode() const { return encode_; }

  /// A record without its media's content, and what is needed to add that.
  struct Draft {
    Sample sample;
    SampleRows rows;
    std::vector<MediaReference> media;
    std::vector<MediaShape> shapes;
  };
  /// The errors are about this record alone.
  Result<Draft> read(const SampleOrder::Place& place) const;
  /// A conversation that ends where an answer is asked for.
  Result<Draft> read_prompt(const Conversation& conversation, const std::string& name) const;
  std::optional<Error> add_content(Draft& draft, const SampleContent& wanted) const;

 private:
  ConversationData(ConversationSets sets, ModelText text) : sets_(std::move(sets)), text_(std::move(text)) {}

  /// What one thread at a time works with.
  struct Bench {
    PieceCache cache;
    std::unique_ptr<LogMel> mel;
  };
  static Result<std::shared_ptr<ConversationData>> open_with(ConversationSets sets, const Model& model,
                                                             const SampleForm& form,
                                                             const std::filesystem::path& model_folder,
                                                             const DataSettings& settings);
  Result<Draft> draft_of(const Conversation& conversation, const EncodeSettings& settings,
                         const std::string& name) const;
  std::unique_ptr<Bench> take_bench() const;
  void give_back(std::unique_ptr<Bench> bench) const;
  /// Of its mel frames a part: [mel bins, part.size()].
  Result<std::vector<float>> read_clip(const MediaReference& media, const MediaShape& shape, Range part) const;
  void add_shape(const MediaReference& media, const MediaShape& shape, Draft& draft) const;

  ConversationSets sets_;
  ModelText text_;
  const ChatTemplate* chat_ = nullptr;
  MediaTokenRule tokens_;
  MediaRules media_;
  EncodeSettings encode_;
  SampleForm form_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Bench>> benches_;
};

/// Records that are known not to be usable, and why. Several threads may ask.
class LeftOutRecords {
 public:
  void add(const SampleOrder::Place& place, const std::string& problem);
  std::optional<std::string> find(const SampleOrder::Place& place) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<size_t, int64_t>, std::string> problems_;  ///< by set and record
};

/// Samples of conversations, in the order that seed and epoch give, or those that are held out.
class ConversationSource : public SampleSource {
 public:
  /// Held-out samples repeat after the last; there must be some.
  ConversationSource(std::shared_ptr<const ConversationData> data, uint64_t seed, bool is_held_out);

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override;
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& skipped) override;
  int64_t num_different() const override;
  bool is_synthetic() const override { return false; }

 private:
  SampleOrder::Place place_of(int64_t index, int64_t attempt) const;
  /// The first record for this sample that can be used, with the number of its attempt.
  struct Found {
    ConversationData::Draft draft;
    int64_t attempt = 0;
  };
  Result<Found> find(int64_t index, std::vector<SkippedSample>& skipped) const;

  std::shared_ptr<const ConversationData> data_;
  SampleOrder order_;
  bool is_held_out_;
  LeftOutRecords left_out_;
};

}  // namespace weft
