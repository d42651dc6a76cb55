// What every backend's groups must do, against a naive oracle. all_ranks() says on which ranks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "tests/support/draws.h"
#include "weft/comm/failure.h"
#include "weft/comm/suite.h"

namespace weft::suite {
namespace {

INSTANTIATE_TEST_SUITE_P(Comm, OnRanks, testing::ValuesIn(all_ranks()), name_of_ranks);

/// None, fewer than ranks, one each, odd, more than a vector register, and more than one piece of a thread's work.
const std::vector<int64_t> kCounts = {0, 1, 3, 8, 1025, 70'001};

/// All ranks' inputs, as they are in the world that `present` is in.
std::vector<Numbers> inputs_of(int64_t num_ranks, int64_t count, DataType type, uint64_t seed, bool is_fake,
                               int64_t present) {
  std::vector<Numbers> inputs;
  for (int64_t r = 0; r < num_ranks; ++r) {
    inputs.push_back(is_fake && r != present ? Numbers(static_cast<size_t>(count), 0) : input_of(r, count, type, seed));
  }
  return inputs;
}

std::string what(DataType type, int64_t count) {
  return std::string(name_of(type)) + " x " + std::to_string(count);
}

/// Part sizes that differ, among them zero: 0, 2, 1, 0, 2, ...
std::vector<int64_t> uneven(int64_t num_ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < num_ranks; ++r) counts.push_back((r * 2 + scale) % 3 * scale);
  return counts;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

TEST_P(OnRanks, AllReduceGivesEveryoneTheReduction) {
  run([&](World& world) {
    Group& group = world.all();
    for (const DataType type : kAllDataTypes) {
      for (int64_t count : kCounts) {
        count = std::min(count, most_elements);
        for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kAvg}) {
          if (!can_reduce(reduction, type)) continue;
          const auto inputs = inputs_of(group.size(), count, type, 1, is_fake(), group.rank());
          const Memory expected(reduced(reduction, type, inputs), type);
          Memory in(inputs[static_cast<size_t>(group.rank())], type), out(count, type);
          const Memory in_before = in;
          group.all_reduce(in.buffer(), out.buffer(), reduction).wait();
          EXPECT_EQ(out, expected) << what(type, count) << " " << name_of(reduction);
          EXPECT_EQ(in, in_before);
          group.all_reduce(in.buffer(), reduction).wait();
          EXPECT_EQ(in, expected) << what(type, count) << " in place";
        }
      }
    }
  });
}

TEST_P(OnRanks, AllGatherGivesEveryoneAllInputs) {
  run([&](World& world) {
    Group& group = world.all();
    for (const DataType type : kAllDataTypes) {
      for (int64_t count : {0, 1, 5, 1025, 20'000}) {
        count = std::min<int64_t>(count, most_elements);
        for (const bool is_uneven : {false, true}) {
          const auto counts =
              is_uneven ? uneven(group.size(), count) : std::vector<int64_t>(static_cast<size_t>(group.size()), count);
          Numbers expected;
          for (int64_t r = 0; r < group.size(); ++r) {
            const int64_t part = counts[static_cast<size_t>(r)];
            const Numbers input =
                inputs_of(group.size(), part, type, 2, is_fake(), group.rank())[static_cast<size_t>(r)];
            expected.insert(expected.end(), input.begin(), input.end());
          }
          Memory in(input_of(group.rank(), counts[static_cast<size_t>(group.rank())], type, 2), type);
          Memory out(sum(counts), type);
          group.all_gather(in.buffer(), out.buffer(), is_uneven ? counts : std::vector<int64_t>{}).wait();
          EXPECT_EQ(out, Memory(expected, type)) << what(type, count) << (is_uneven ? " uneven" : "");
        }
      }
    }
  });
}

TEST_P(OnRanks, AllGatherWorksInPlace) {
  run([&](World& world) {
    Group& group = world.all();
    const auto counts = uneven(group.size(), 7);
    Numbers expected;
    for (int64_t r = 0; r < group.size(); ++r) {
      const auto inputs =
          inputs_of(group.size(), counts[static_cast<size_t>(r)], DataType::kFp32, 3, is_fake(), group.rank());
      const Numbers& input = inputs[static_cast<size_t>(r)];
      expected.insert(expected.end(), input.begin(), input.end());
    }
    const PartRange own = part_of(sum(counts), counts, group.rank(), group.size());
    Memory out(sum(counts), DataType::kFp32);
    out.put(own.begin, Numbers(expected.begin() + own.begin, expected.begin() + own.begin + own.size));
    group.all_gather(out.buffer().part(own.begin, own.size), out.buffer(), counts).wait();
    EXPECT_EQ(out, Memory(expected, DataType::kFp32));
  });
}

TEST_P(OnRanks, ReduceScatterGivesEveryoneItsPart) {
  run([&](World& world) {
    Group& group = world.all();
    for (const DataType type : kAllDataTypes) {
      for (int64_t count : {0, 1, 5, 1025, 20'000}) {
        count = std::min<int64_t>(count, most_elements);
        for (const bool is_uneven : {false, true}) {
          const auto counts =
              is_uneven ? uneven(group.size(), count) : std::vector<int64_t>(static_cast<size_t>(group.size()), count);
          const auto inputs = inputs_of(group.size(), sum(counts), type, 4, is_fake(), group.rank());
          const Numbers whole = reduced(Reduction::kSum, type, inputs);
          const PartRange own = part_of(sum(counts), counts, group.rank(), group.size());
          const Memory expected(Numbers(whole.begin() + own.begin, whole.begin() + own.begin + own.size), type);
          Memory in(inputs[static_cast<size_t>(group.rank())], type), out(own.size, type);
          const auto given = is_uneven ? counts : std::vector<int64_t>{};
          group.reduce_scatter(in.buffer(), out.buffer(), Reduction::kSum, given).wait();
          EXPECT_EQ(out, expected) << what(type, count) << (is_uneven ? " uneven" : "");
          const Buffer own_part = in.buffer().part(own.begin, own.size);
          group.reduce_scatter(in.buffer(), own_part, Reduction::kSum, given).wait();
          EXPECT_EQ(in.bytes(own.begin, own.size), expected.bytes()) << what(type, count) << " in place";
        }
      }
    }
  });
}

/// How many elements a rank sends another in the uneven all-to-all: none for some pairs and some ranks.
int64_t sent_between(int64_t from, int64_t to, int64_t scale) {
  return from % 3 == 2 ? 0 : (from * 5 + to * 3) % 4 * scale;
}

TEST_P(OnRanks, AllToAllBringsEveryPartToItsRank) {
  run([&](World& world) {
    Group& group = world.all();
    const int64_t size = group.size(), me = group.rank();
    for (const DataType type : kAllDataTypes) {
      for (int64_t count : {0, 1, 5, 1025, 20'000}) {
        count = std::min<int64_t>(count, most_elements);
        for (const bool is_uneven : {false, true}) {
          const auto amount = [&](int64_t from, int64_t to) {
            return is_uneven ? sent_between(from, to, count) : count;
          };
          Numbers input, expected;
          std::vector<int64_t> in_counts, out_counts;
          for (int64_t r = 0; r < size; ++r) {
            in_counts.push_back(amount(me, r));
            out_counts.push_back(amount(r, me));
            const Numbers to_r = input_of(me, amount(me, r), type, static_cast<uint64_t>(r));
            input.insert(input.end(), to_r.begin(), to_r.end());
            Numbers from_r = input_of(r, amount(r, me), type, static_cast<uint64_t>(me));
            if (is_fake() && r != me) std::fill(from_r.begin(), from_r.end(), 0);
            expected.insert(expected.end(), from_r.begin(), from_r.end());
          }
          Memory in(input, type), out(static_cast<int64_t>(expected.size()), type);
          if (is_uneven) {
            group.all_to_all(in.buffer(), out.buffer(), in_counts, out_counts).wait();
          } else {
            group.all_to_all(in.buffer(), out.buffer()).wait();
          }
          EXPECT_EQ(out, Memory(expected, type)) << what(type, count) << (is_uneven ? " uneven" : "");
        }
      }
    }
  });
}

TEST_P(OnRanks, BroadcastGivesEveryoneTheRootsBuffer) {
  run([&](World& world) {
    Group& group = world.all();
    for (int64_t root = 0; root < group.size(); ++root) {
      for (const DataType type : kAllDataTypes) {
        for (int64_t count : kCounts) {
          count = std::min(count, most_elements);
          const auto inputs = inputs_of(group.size(), count, type, 6, is_fake(), group.rank());
          Memory in_out(inputs[static_cast<size_t>(group.rank())], type);
          group.broadcast(in_out.buffer(), root).wait();
          EXPECT_EQ(in_out, Memory(inputs[static_cast<size_t>(root)], type)) << what(type, count) << " from " << root;
        }
      }
    }
  });
}

TEST_P(OnRanks, MessagesArriveInTheOrderInWhichTheyWereSent) {
  run([&](World& world) {
    Group& group = world.all();
    const int64_t next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
    const std::vector<int64_t> counts = {3, 0, 50'000, 1, 17};
    std::vector<Memory> sent, received;
    for (size_t i = 0; i < counts.size(); ++i) {
      sent.emplace_back(input_of(group.rank(), counts[i], DataType::kFp64, i), DataType::kFp64);
      received.emplace_back(counts[i], DataType::kFp64);
    }
    std::vector<Work> works;
    for (size_t i = 0; i < counts.size(); ++i) works.push_back(group.send(sent[i].buffer(), next));
    for (size_t i = 0; i < counts.size(); ++i) works.push_back(group.recv(received[i].buffer(), last));
    for (Work& work : works) work.wait();
    for (size_t i = 0; i < counts.size(); ++i) {
      const Numbers expected =
          is_fake() ? Numbers(static_cast<size_t>(counts[i]), 0) : input_of(last, counts[i], DataType::kFp64, i);
      EXPECT_EQ(received[i], Memory(expected, DataType::kFp64)) << i;
    }
  });
}

TEST_P(OnRanks, NobodyLeavesABarrierBeforeAllHaveCome) {
  if (is_fake()) GTEST_SKIP() << "the fake's other ranks are always there";
  run([&](World& world) {
    Group& group = world.all();
    for (int64_t late = 0; late < group.size(); ++late) {
      if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto now = [] { return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count()); };
      Memory came({now()}, DataType::kFp64);
      group.barrier().wait();
      Memory left({-now()}, DataType::kFp64);
      group.all_reduce(came.buffer(), Reduction::kMax).wait();
      group.all_reduce(left.buffer(), Reduction::kMax).wait();
      EXPECT_GE(-left.number(), came.number());
    }
  });
}

TEST_P(OnRanks, ManyOperationsMayBeInFlightAndWaitedForInAnyOrder) {
  run([&](World& world) {
    Group& group = world.all();
    std::vector<Memory> memories;
    std::vector<Memory> expected;
    std::vector<Work> works;
    constexpr uint64_t kOperations = 40;
    for (uint64_t i = 0; i < kOperations; ++i) {
      const int64_t count = i % 4 == 0 ? 30'000 : static_cast<int64_t>(i);
      const auto inputs = inputs_of(group.size(), count, DataType::kFp32, i, is_fake(), group.rank());
      memories.emplace_back(inputs[static_cast<size_t>(group.rank())], DataType::kFp32);
      expected.emplace_back(reduced(Reduction::kSum, DataType::kFp32, inputs), DataType::kFp32);
    }
    for (Memory& memory : memories) works.push_back(group.all_reduce(memory.buffer(), Reduction::kSum));
    // Every rank in an order of its own.
    std::vector<size_t> order(works.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<uint32_t>(group.rank()) + 1));
    for (const size_t i : order) {
      works[i].wait();
      EXPECT_TRUE(works[i].is_done());
      EXPECT_EQ(memories[i], expected[i]) << i;
    }
  });
}

TEST_P(OnRanks, IsDoneBecomesTrueWithoutWaiting) {
  run([&](World& world) {
    Memory memory({1.0}, DataType::kFp64);
    Work work = world.all().all_reduce(memory.buffer(), Reduction::kSum);
    while (!work.is_done()) std::this_thread::yield();
    EXPECT_EQ(memory, Memory({is_fake() ? 1.0 : static_cast<double>(world.size())}, DataType::kFp64));
    work.wait();
  });
}

TEST_P(OnRanks, GroupsAlongAMeshsAxesAreIndependent) {
  run([&](World& world) {
    const int64_t inner = world.size() % 2 == 0 ? 2 : 1;
    const Mesh mesh = *Mesh::contiguous({{"tp", inner}, {"dp", world.size() / inner}});
    Group tp = *world.group(mesh, {0}), dp = *world.group(mesh, {1}), both = *world.group(mesh, {1, 0});
    EXPECT_EQ(tp.name(), "tp");
    EXPECT_EQ(both.name(), "tp+dp");
    EXPECT_EQ(tp.size(), inner);
    EXPECT_EQ(dp.rank(), world.rank() / inner);
    const auto expected_sum = [&](const Group& group) {
      double total = 0;
      for (const int64_t rank : group.ranks()) total += is_fake() && rank != world.rank() ? 0 : 1.0 + double(rank);
      return Memory({total}, DataType::kFp64);
    };
    for (int round = 0; round < 5; ++round) {
      const double own = 1.0 + static_cast<double>(world.rank());
      Memory a({own}, DataType::kFp64), b({own}, DataType::kFp64), c({own}, DataType::kFp64);
      Work tp_work = tp.all_reduce(a.buffer(), Reduction::kSum);
      Work dp_work = dp.all_reduce(b.buffer(), Reduction::kSum);
      Work both_work = both.all_reduce(c.buffer(), Reduction::kSum);
      // Groups are waited for in an order that differs between ranks.
      if (world.rank() % 2 == 0) {
        tp_work.wait();
        dp_work.wait();
        both_work.wait();
      } else {
        both_work.wait();
        dp_work.wait();
        tp_work.wait();
      }
      EXPECT_EQ(a, expected_sum(tp));
      EXPECT_EQ(b, expected_sum(dp));
      EXPECT_EQ(c, expected_sum(both));
    }
    tp.close();
    dp.close();
    both.close();
  });
}

TEST_P(OnRanks, AGroupsOrderOfRanksIsTheOrderOfParts) {
  run([&](World& world) {
    std::vector<int64_t> backwards;
    for (int64_t r = world.size(); r-- > 0;) backwards.push_back(r);
    Group group = *world.group("backwards", backwards);
    EXPECT_EQ(group.rank(), world.size() - 1 - world.rank());
    Memory in({static_cast<double>(world.rank())}, DataType::kInt64), out(world.size(), DataType::kInt64);
    group.all_gather(in.buffer(), out.buffer()).wait();
    Numbers expected(backwards.begin(), backwards.end());
    for (double& rank : expected) rank = is_fake() && rank != static_cast<double>(world.rank()) ? 0 : rank;
    EXPECT_EQ(out, Memory(expected, DataType::kInt64));
  });
}

TEST_P(OnRanks, GroupsOfTheSameNameAndRanksAreDifferentGroups) {
  run([&](World& world) {
    Group first = *world.group("pair", {world.all().ranks().begin(), world.all().ranks().end()});
    Group second = *world.group("pair", {world.all().ranks().begin(), world.all().ranks().end()});
    Memory a({1.0}, DataType::kFp32), b({2.0}, DataType::kFp32);
    // Started in a different order on different ranks, which one group would not allow.
    if (world.rank() % 2 == 0) {
      Work x = first.all_reduce(a.buffer(), Reduction::kMax), y = second.all_reduce(b.buffer(), Reduction::kMax);
      x.wait();
      y.wait();
    } else {
      Work y = second.all_reduce(b.buffer(), Reduction::kMax), x = first.all_reduce(a.buffer(), Reduction::kMax);
      x.wait();
      y.wait();
    }
    EXPECT_EQ(a, Memory({1.0}, DataType::kFp32));
    EXPECT_EQ(b, Memory({2.0}, DataType::kFp32));
  });
}

TEST_P(OnRanks, SumsAreInRankOrderAndRoundedOnce) {
  if (!GetParam().sums_in_rank_order) GTEST_SKIP() << "NCCL sums in an order of its own";
  run([&](World& world) {
    Group& group = world.all();
    for (const int64_t count : {1, 1000, 300'000}) {
      // Numbers whose sum depends on the order.
      std::vector<std::vector<float>> inputs;
      for (int64_t r = 0; r < group.size(); ++r) {
        std::minstd_rand random(static_cast<uint32_t>(r + 7));
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) {
          value = std::ldexp(static_cast<float>(random() % 2048) - 1024, static_cast<int>(random() % 24) - 20);
          if (is_fake() && r != group.rank()) value = 0;
        }
        inputs.push_back(std::move(values));
      }
      std::vector<float> own = inputs[static_cast<size_t>(group.rank())];
      std::vector<uint16_t> own_bf16(own.size()), expected_bf16(own.size());
      std::vector<float> expected(own.size());
      for (size_t i = 0; i < own.size(); ++i) {
        float total = inputs[0][i], total_of_bf16 = bf16_to_float(float_to_bf16(inputs[0][i]));
        for (size_t r = 1; r < inputs.size(); ++r) {
          total += inputs[r][i];
          total_of_bf16 += bf16_to_float(float_to_bf16(inputs[r][i]));
        }
        expected[i] = total;
        expected_bf16[i] = float_to_bf16(total_of_bf16);
        own_bf16[i] = float_to_bf16(own[i]);
      }
      const auto memory_of = [](const auto& values, DataType type) {
        const auto* begin = reinterpret_cast<const std::byte*>(values.data());
        return Memory(std::vector<std::byte>(begin, begin + values.size() * sizeof(values[0])), type);
      };
      Memory fp32 = memory_of(own, DataType::kFp32), bf16 = memory_of(own_bf16, DataType::kBf16);
      group.all_reduce(fp32.buffer(), Reduction::kSum).wait();
      EXPECT_EQ(fp32, memory_of(expected, DataType::kFp32)) << count;
      group.all_reduce(bf16.buffer(), Reduction::kSum).wait();
      EXPECT_EQ(bf16, memory_of(expected_bf16, DataType::kBf16)) << count;
    }
  });
}

/// One random operation after another, the same on all ranks, several in flight.
TEST_P(OnRanks, RandomProgramsEqualTheOracle) {
  run([&](World& world) {
    Group& group = world.all();
    for (uint64_t seed = 0; seed < draws(uint64_t{12}); ++seed) {
      std::mt19937_64 random(seed);
      const auto draw = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
      std::vector<Memory> ins, outs, expected;
      std::vector<Operation> operations;
      for (uint64_t i = 0; i < 12; ++i) {
        const DataType type = kAllDataTypes[draw(8)];
        const int64_t count = draw(5) == 0 ? draw(60'000) : draw(40);
        const auto inputs = inputs_of(group.size(), count, type, seed * 100 + i, is_fake(), group.rank());
        const Numbers& own = inputs[static_cast<size_t>(group.rank())];
        ins.emplace_back(own, type);
        switch (draw(3)) {
          case 0:
            operations.push_back({.kind = OperationKind::kAllReduce});
            expected.emplace_back(reduced(Reduction::kSum, type, inputs), type);
            outs.emplace_back(count, type);
            break;
          case 1: {
            Numbers all;
            for (const Numbers& input : inputs) all.insert(all.end(), input.begin(), input.end());
            operations.push_back({.kind = OperationKind::kAllGather});
            expected.emplace_back(all, type);
            outs.emplace_back(count * group.size(), type);
            break;
          }
          default: {
            const int64_t root = draw(group.size());
            operations.push_back({.kind = OperationKind::kBroadcast, .peer = root});
            expected.emplace_back(inputs[static_cast<size_t>(root)], type);
            outs.emplace_back(own, type);
          }
        }
      }
      std::vector<Work> works;
      for (size_t i = 0; i < operations.size(); ++i) {
        if (operations[i].kind == OperationKind::kAllReduce) {
          works.push_back(group.all_reduce(ins[i].buffer(), outs[i].buffer(), Reduction::kSum));
        } else if (operations[i].kind == OperationKind::kAllGather) {
          works.push_back(group.all_gather(ins[i].buffer(), outs[i].buffer()));
        } else {
          works.push_back(group.broadcast(outs[i].buffer(), operations[i].peer));
        }
      }
      for (size_t i = 0; i < works.size(); ++i) {
        works[i].wait();
        EXPECT_EQ(outs[i], expected[i]) << "seed " << seed << " operation " << i << " " << name_of(operations[i].kind);
      }
    }
  });
}

template <typename Function>
std::string misuse(const Function& function) {
  try {
    function();
  } catch (const CommMisuse& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_P(OnRanks, MistakesAreToldWithRankWhatItHasAndWhatWasExpected) {
  run([&](World& world) {
    Group group = *world.group("tp", {world.all().ranks().begin(), world.all().ranks().end()});
    const std::string who = "rank " + std::to_string(world.rank());
    Memory a(4, DataType::kFp32), b(5, DataType::kFp32), c(4, DataType::kBf16), d(4, DataType::kInt64);
    const auto expect = [&](const std::string& found, const std::string& part) {
      EXPECT_NE(found.find(part), std::string::npos) << found;
      EXPECT_EQ(found.find(who), 0u) << found;
      EXPECT_NE(found.find("group 'tp'"), std::string::npos) << found;
    };
    expect(misuse([&] { group.all_reduce(a.buffer(), b.buffer(), Reduction::kSum).wait(); }),
           "the output has 5 elements, expected 4");
    expect(misuse([&] { group.all_reduce(a.buffer(), c.buffer(), Reduction::kSum).wait(); }),
           "the input is fp32, the output bf16");
    expect(misuse([&] { group.all_reduce(d.buffer(), Reduction::kAvg).wait(); }), "the avg of int64");
    expect(misuse([&] { group.all_gather(a.buffer(), Memory(3, DataType::kFp32).buffer()).wait(); }),
           "the output has 3 elements, expected " + std::to_string(4 * world.size()));
    expect(misuse([&] { group.all_gather(a.buffer(), b.buffer(), std::vector<int64_t>(99, 1)).wait(); }),
           "99 counts are given, expected one for each of");
    expect(misuse([&] { group.broadcast(a.buffer(), world.size()).wait(); }),
           "rank " + std::to_string(world.size()) + " is asked for, expected 0 to");
    expect(misuse([&] { group.recv(Buffer{nullptr, 4, DataType::kFp32}, 0).wait(); }), "has no memory");
    expect(misuse([&] { group.send(Buffer{a.buffer().data, -1, DataType::kFp32}, 0).wait(); }), "-1 elements");
    expect(misuse([&] { group.all_reduce(a.buffer().part(0, 2), a.buffer().part(1, 2), Reduction::kSum).wait(); }),
           "overlap");
    Buffer on_gpu = a.buffer();
    on_gpu.device = {DeviceKind::kCuda, 99};
    expect(misuse([&] { group.all_reduce(on_gpu, Reduction::kSum).wait(); }), "memory on cuda:99, expected memory on ");
    expect(misuse([&] { group.all_reduce(a.buffer(), on_gpu, Reduction::kSum).wait(); }),
           "the input is on " + text(a.buffer().device) + ", the output on cuda:99");
    // No mistake reached the others: the group still works.
    Memory one({1.0}, DataType::kFp32);
    group.all_reduce(one.buffer(), Reduction::kMax).wait();
    group.close();
    expect(misuse([&] { group.barrier().wait(); }), "the group was closed");
  });
}

TEST_P(OnRanks, AMeshThatNeedsMoreRanksThanThereAreIsRefused) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"tp", world.size() + 1}});
    const Result<Group> refused = world.group(mesh, {0});
    ASSERT_FALSE(refused.ok());
    const std::string message = refused.error().message(), needed = std::to_string(world.size() + 1);
    EXPECT_NE(message.find("rank " + std::to_string(world.rank())), std::string::npos) << message;
    EXPECT_NE(message.find("needs " + needed + " ranks"), std::string::npos) << message;
    EXPECT_NE(message.find("the world has " + std::to_string(world.size())), std::string::npos) << message;
    EXPECT_FALSE(world.group("x", {world.rank(), world.rank()}).ok());
    EXPECT_FALSE(world.group("x", {}).ok());
    if (world.size() > 1) {
      EXPECT_FALSE(world.group("x", {(world.rank() + 1) % world.size()}).ok());
    }
  });
}

TEST_P(OnRanks, BytesAreCountedAsStepsArePriced) {
  run([&](World& world) {
    Group group = *world.group("counted", {world.all().ranks().begin(), world.all().ranks().end()});
    Memory in(8, DataType::kFp32), out(8 * world.size(), DataType::kFp32);
    group.all_gather(in.buffer(), out.buffer()).wait();
    EXPECT_EQ(group.traffic(), (Traffic{32 * (world.size() - 1), 32 * (world.size() - 1)}));
    group.all_to_all(out.buffer(), Memory(8 * world.size(), DataType::kFp32).buffer()).wait();
    EXPECT_EQ(group.traffic(), (Traffic{64 * (world.size() - 1), 64 * (world.size() - 1)}));
  });
}

TEST_P(OnRanks, WorldsCountByGroupAndOperation) {
  run([&](World& world) {
    const std::vector<int64_t> ranks(world.all().ranks().begin(), world.all().ranks().end());
    const TrafficList before = world.traffic();
    Memory numbers(4, DataType::kFp64);
    {
      Group gone = *world.group("counted", ranks);
      gone.all_reduce(numbers.buffer(), Reduction::kSum).wait();
    }
    Group group = *world.group("counted", ranks);
    group.all_reduce(numbers.buffer(), Reduction::kSum).wait();
    group.barrier().wait();
    const std::vector<GroupTraffic> done = traffic_since(before, world.traffic());
    ASSERT_EQ(done.size(), world.size() == 1 ? 0u : 1u);
    if (done.empty()) return;
    EXPECT_EQ(done.front().name, "counted");
    EXPECT_EQ(done.front().ranks, ranks);
    const auto count = [&](OperationKind kind) { return done.front().operations[static_cast<size_t>(kind)]; };
    EXPECT_EQ(count(OperationKind::kAllReduce).calls, 2);
    EXPECT_EQ(count(OperationKind::kAllReduce).bytes,
              (Traffic{2 * group.traffic().sent, 2 * group.traffic().received}));
    EXPECT_EQ(count(OperationKind::kBarrier), (OperationCount{.calls = 1, .bytes = {}}));
    EXPECT_EQ(count(OperationKind::kSend), OperationCount());
  });
}

TEST_P(OnRanks, RanksThatDisagreeAreToldSo) {
  if (is_fake() || GetParam().size == 1) GTEST_SKIP() << "there is nobody to disagree with";
  run([&](World& world) {
    const std::vector<int64_t> everyone(world.all().ranks().begin(), world.all().ranks().end());
    const bool is_odd_one = world.rank() == world.size() - 1;
    const auto told = [&](const std::function<void(Group&)>& ask) {
      Group group = *world.group("tp", everyone);
      try {
        ask(group);
      } catch (const RanksDisagree& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    const std::string last = "rank " + std::to_string(world.size() - 1);
    Memory a(64, DataType::kFp32), b(64, DataType::kInt32), c(64, DataType::kFp32);
    const std::string operation = told([&](Group& group) {
      is_odd_one ? group.barrier().wait() : group.all_reduce(a.buffer(), Reduction::kSum).wait();
    });
    EXPECT_NE(operation.find("rank 0 asks for all_reduce of 64 fp32 (sum), " + last + " for barrier"),
              std::string::npos)
        << operation;
    EXPECT_NE(operation.find("group 'tp'"), std::string::npos) << operation;
    const std::string type =
        told([&](Group& group) { group.all_reduce(is_odd_one ? b.buffer() : a.buffer(), Reduction::kSum).wait(); });
    EXPECT_NE(type.find(last + " for all_reduce of 64 int32"), std::string::npos) << type;
    const std::string count =
        told([&](Group& group) { group.all_reduce(a.buffer().part(0, is_odd_one ? 63 : 64), Reduction::kSum).wait(); });
    EXPECT_NE(count.find("all_reduce of 63 fp32"), std::string::npos) << count;
    const std::string parts = told([&](Group& group) {
      std::vector<int64_t> sent(static_cast<size_t>(world.size()), 1), received = sent;
      // The last rank sends two to the first, which expects one.
      if (is_odd_one) sent[0] = 2;
      group.all_to_all(a.buffer().part(0, sum(sent)), c.buffer().part(0, sum(received)), sent, received).wait();
    });
    EXPECT_NE(parts.find(last + " sends 2 elements to rank 0, which expects 1"), std::string::npos) << parts;
    const std::string message = told([&](Group& group) {
      if (world.rank() == 0) group.send(a.buffer(), world.size() - 1).wait();
      if (is_odd_one) group.recv(c.buffer().part(0, 60), 0).wait();
      if (world.rank() != 0 && !is_odd_one) throw RanksDisagree("which expects 60 fp32");
    });
    // A sender may be done before its message is compared.
    if (world.rank() != 0) {
      EXPECT_NE(message.find("which expects 60 fp32"), std::string::npos) << message;
    }
    world.all().barrier().wait();
  });
}

}  // namespace
}  // namespace weft::suite
