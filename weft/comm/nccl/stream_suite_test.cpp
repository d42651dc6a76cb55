// What groups promise of a GPU's streams. all_ranks() says on which ranks; without a GPU's memory there is nothing to
// test.
#include "weft/comm/cuda/gpu_place.h"
#include "weft/comm/suite.h"

namespace weft::suite {
namespace {

class OnStreams : public OnRanks {
 protected:
  /// Runs the body with the GPU's memory, if the ranks use that.
  void run_on_gpu(const std::function<void(World&, const GpuPlace&)>& body) {
    bool has_run = false;
    run([&](World& world) {
      const auto* place = dynamic_cast<const GpuPlace*>(current_place);
      if (place == nullptr) return;
      has_run = true;
      body(world, *place);
    });
    if (!has_run) GTEST_SKIP() << "the memory is the host's";
  }
};
INSTANTIATE_TEST_SUITE_P(Comm, OnStreams, testing::ValuesIn(all_ranks()), name_of_ranks);

constexpr int64_t kLong = int64_t{1} << 20;  // elements

/// Keeps a stream busy for some milliseconds, and then fills a buffer of bytes.
void fill_late(const GpuPlace& place, const Buffer& buffer, unsigned char value, CudaStreamHandle stream) {
  const CudaDevice& gpu = *place.cuda();
  const OnCudaDevice on(gpu);
  const auto to = reinterpret_cast<CudaAddress>(buffer.data);
  const auto half = static_cast<size_t>(buffer.num_bytes() / 2);
  gpu.check(gpu.driver().cuMemsetD8Async(to, 0xee, 2 * half, stream), "cuMemsetD8Async");
  for (int i = 0; i < 400; ++i) gpu.check(gpu.driver().cuMemcpyDtoDAsync_v2(to + half, to, half, stream), "copy");
  gpu.check(gpu.driver().cuMemsetD8Async(to, value, 2 * half, stream), "cuMemsetD8Async");
}

void copy(const GpuPlace& place, const Buffer& from, const Buffer& to, CudaStreamHandle stream) {
  const CudaDevice& gpu = *place.cuda();
  const OnCudaDevice on(gpu);
  gpu.check(gpu.driver().cuMemcpyDtoDAsync_v2(reinterpret_cast<CudaAddress>(to.data),
                                              reinterpret_cast<CudaAddress>(from.data),
                                              static_cast<size_t>(from.num_bytes()), stream),
            "cuMemcpyDtoDAsync");
}

std::vector<std::byte> filled(int64_t count, int64_t value) {
  return std::vector<std::byte>(static_cast<size_t>(count), static_cast<std::byte>(value));
}

TEST_P(OnStreams, WhatWasPutOnTheStreamBeforeComesFirst) {
  run_on_gpu([&](World& world, const GpuPlace& place) {
    for (int round = 0; round < 3; ++round) {
      Memory memory(kLong, DataType::kUint8), sum(kLong, DataType::kUint8);
      const auto own = static_cast<unsigned char>(world.rank() + 1 + round);
      fill_late(place, memory.buffer(), own, place.stream());
      world.all().all_reduce(memory.buffer(), sum.buffer(), Reduction::kMax).wait();
      EXPECT_EQ(sum.bytes(), filled(kLong, world.size() + round));
      EXPECT_EQ(memory.bytes(), filled(kLong, own));
    }
  });
}

TEST_P(OnStreams, WhatIsPutOnTheStreamAfterWaitingComesAfter) {
  run_on_gpu([&](World& world, const GpuPlace& place) {
    Memory memory(kLong, DataType::kUint8), seen(kLong, DataType::kUint8);
    std::vector<std::vector<std::byte>> all_seen;
    for (int round = 0; round < 4; ++round) {
      fill_late(place, memory.buffer(), static_cast<unsigned char>(world.rank() + round), place.stream());
      world.all().all_reduce(memory.buffer(), Reduction::kMax).wait();
      // Reads the result and then overwrites it, without asking the host.
      copy(place, memory.buffer(), seen.buffer(), place.stream());
      fill_late(place, memory.buffer(), 0x77, place.stream());
      EXPECT_EQ(seen.bytes(), filled(kLong, world.size() - 1 + round));
    }
  });
}

TEST_P(OnStreams, InputAndOutputMayHaveStreamsOfTheirOwn) {
  run_on_gpu([&](World& world, const GpuPlace& place) {
    const CudaStream other(place.cuda());
    Memory in(kLong, DataType::kUint8), out(kLong, DataType::kUint8), kept(kLong, DataType::kUint8);
    fill_late(place, in.buffer(), static_cast<unsigned char>(world.rank() + 3), place.stream());
    // The output's memory is still read and written elsewhere.
    fill_late(place, out.buffer(), 0x42, other.handle());
    copy(place, out.buffer(), kept.buffer(), other.handle());
    Buffer out_on_other = out.buffer();
    out_on_other.stream = other.handle();
    world.all().all_reduce(in.buffer(), out_on_other, Reduction::kMax).wait();
    EXPECT_EQ(out.bytes(), filled(kLong, world.size() + 2));
    EXPECT_EQ(kept.bytes(), filled(kLong, 0x42));
  });
}

TEST_P(OnStreams, ARankMaySendToItselfInEitherOrder) {
  run_on_gpu([&](World& world, const GpuPlace& place) {
    Group& group = world.all();
    for (const bool sends_first : {true, false}) {
      Memory in(kLong, DataType::kUint8), out(kLong, DataType::kUint8);
      fill_late(place, in.buffer(), 7, place.stream());
      std::vector<Work> works;
      if (sends_first) works.push_back(group.send(in.buffer(), group.rank()));
      works.push_back(group.recv(out.buffer(), group.rank()));
      if (!sends_first) works.push_back(group.send(in.buffer(), group.rank()));
      for (Work& work : works) work.wait();
      EXPECT_EQ(out.bytes(), filled(kLong, 7));
    }
  });
}

TEST_P(OnStreams, MessagesAndSumsOfManyStreamsMayBeInFlight) {
  run_on_gpu([&](World& world, const GpuPlace& place) {
    Group& group = world.all();
    const int64_t next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
    std::vector<std::unique_ptr<CudaStream>> streams;
    std::vector<Memory> sent, received, summed;
    std::vector<Work> works;
    const auto on = [](Memory& memory, const CudaStream& stream) {
      Buffer buffer = memory.buffer();
      buffer.stream = stream.handle();
      return buffer;
    };
    for (int i = 0; i < 4; ++i) {
      streams.push_back(std::make_unique<CudaStream>(place.cuda()));
      sent.emplace_back(kLong, DataType::kUint8);
      received.emplace_back(kLong, DataType::kUint8);
      summed.emplace_back(kLong, DataType::kUint8);
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      const auto own = static_cast<unsigned char>(group.rank() * 10 + static_cast<int64_t>(i));
      fill_late(place, sent[i].buffer(), own, streams[i]->handle());
      fill_late(place, summed[i].buffer(), own, streams[i]->handle());
      works.push_back(group.send(on(sent[i], *streams[i]), next));
      works.push_back(group.all_reduce(on(summed[i], *streams[i]), Reduction::kMax));
      works.push_back(group.recv(on(received[i], *streams[i]), last));
    }
    for (Work& work : works) work.wait();
    for (size_t i = 0; i < streams.size(); ++i) {
      // Promised is what comes after on that stream, and the memory is read on another.
      place.cuda()->check(place.cuda()->driver().cuStreamSynchronize(streams[i]->handle()), "cuStreamSynchronize");
      EXPECT_EQ(received[i].bytes(), filled(kLong, last * 10 + static_cast<int64_t>(i)));
      EXPECT_EQ(summed[i].bytes(), filled(kLong, (group.size() - 1) * 10 + static_cast<int64_t>(i)));
    }
  });
}

}  // namespace
}  // namespace weft::suite
