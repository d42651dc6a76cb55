// A stand-in for libnccl.so.2 on machines without a GPU, for tests: processes of one host exchange small files, and
// every call returns when it is done. Collectives are made of messages, and reductions are Weft's own.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "weft/comm/reduce.h"

#define STAND_IN extern "C" __attribute__((visibility("default")))

namespace {

/// Nothing may be copied from nowhere to nowhere.
void copy_bytes(void* to, const void* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

struct UniqueId {
  char internal[128];
};

struct Comm {
  std::string prefix;
  int size = 1;
  int rank = 0;
  std::map<int, uint64_t> num_sent, num_received;
  std::atomic<bool> is_aborted{false};
};

constexpr int kInvalidArgument = 4, kRemoteError = 6;

/// What was asked for between ncclGroupStart and ncclGroupEnd, sends first: a send never waits.
thread_local int depth = 0;
thread_local std::vector<std::function<int()>> sends, recvs;

int finish_group() {
  int status = 0;
  for (auto* calls : {&sends, &recvs}) {
    for (const auto& call : *calls) {
      if (const int one = call(); status == 0) status = one;
    }
    calls->clear();
  }
  return status;
}

int send_bytes(Comm& comm, const std::string& bytes, int to) {
  const std::string name =
      comm.prefix + std::to_string(comm.rank) + "-" + std::to_string(to) + "-" + std::to_string(comm.num_sent[to]++);
  std::ofstream(name + ".part", std::ios::binary) << bytes;
  return std::rename((name + ".part").c_str(), name.c_str()) == 0 ? 0 : kRemoteError;
}

int recv_bytes(Comm& comm, std::string& bytes, int from) {
  const std::string name = comm.prefix + std::to_string(from) + "-" + std::to_string(comm.rank) + "-" +
                           std::to_string(comm.num_received[from]++);
  while (access(name.c_str(), F_OK) != 0) {
    if (comm.is_aborted) return kRemoteError;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::ostringstream text;
  text << std::ifstream(name, std::ios::binary).rdbuf();
  bytes = text.str();
  unlink(name.c_str());
  return 0;
}

int64_t element_bytes(int type) {
  constexpr int64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? kBytes[type] : 0;
}

weft::DataType type_of(int type) {
  switch (type) {
    case 2:
      return weft::DataType::kInt32;
    case 4:
      return weft::DataType::kInt64;
    case 6:
      return weft::DataType::kFp16;
    case 7:
      return weft::DataType::kFp32;
    case 8:
      return weft::DataType::kFp64;
    case 9:
      return weft::DataType::kBf16;
    default:
      return weft::DataType::kUint8;
  }
}

/// Everyone's bytes, by rank.
int gather(Comm& comm, const void* in, size_t bytes, std::vector<std::string>& all) {
  const std::string own(static_cast<const char*>(in), bytes);
  all.assign(static_cast<size_t>(comm.size), own);
  int status = 0;
  for (int r = 0; r < comm.size; ++r) {
    if (r != comm.rank) status |= send_bytes(comm, own, r);
  }
  for (int r = 0; r < comm.size && status == 0; ++r) {
    if (r == comm.rank) continue;
    status = recv_bytes(comm, all[static_cast<size_t>(r)], r);
    if (status == 0 && all[static_cast<size_t>(r)].size() != bytes) status = kInvalidArgument;
  }
  return status;
}

int reduce_all(Comm& comm, const void* in, std::string& out, size_t count, int type, int operation) {
  std::vector<std::string> all;
  out.resize(count * static_cast<size_t>(element_bytes(type)));
  if (const int status = gather(comm, in, out.size(), all)) return status;
  std::vector<const std::byte*> inputs;
  for (const std::string& one : all) inputs.push_back(reinterpret_cast<const std::byte*>(one.data()));
  auto* output = reinterpret_cast<std::byte*>(out.data());
  const weft::Reduction reduction = operation == 2   ? weft::Reduction::kMax
                                    : operation == 4 ? weft::Reduction::kAvg
                                                     : weft::Reduction::kSum;
  weft::reduce(reduction, type_of(type), inputs, {&output, 1}, static_cast<int64_t>(count));
  return 0;
}

/// A collective, at once or with its group.
int call(std::function<int()> work) {
  if (depth == 0) return work();
  recvs.push_back(std::move(work));
  return 0;
}

Comm& comm_of(void* comm) {
  return *static_cast<Comm*>(comm);
}

}  // namespace

STAND_IN int ncclGetVersion(int* version) {
  *version = 22800;
  return 0;
}
STAND_IN const char* ncclGetErrorString(int status) {
  return status == 0 ? "no error" : "the stand-in failed";
}
STAND_IN const char* ncclGetLastError(void*) {
  return "";
}
STAND_IN int ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof(id->internal), "%s/weft-stand-in-%08x%08x-",
                std::filesystem::temp_directory_path().c_str(), random(), random());
  return 0;
}
STAND_IN int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  auto* made = new Comm;
  made->prefix = id.internal;
  made->size = size;
  made->rank = rank;
  *comm = made;
  std::vector<std::string> all;
  return gather(*made, "x", 1, all);
}
STAND_IN int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return 0;
}
STAND_IN int ncclCommAbort(void* comm) {
  comm_of(comm).is_aborted = true;
  return 0;
}
STAND_IN int ncclCommGetAsyncError(void*, int* status) {
  *status = 0;
  return 0;
}
STAND_IN int ncclGroupStart() {
  ++depth;
  return 0;
}
STAND_IN int ncclGroupEnd() {
  return --depth == 0 ? finish_group() : 0;
}
STAND_IN int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation, void* comm, void*) {
  return call([=] {
    std::string result;
    const int status = reduce_all(comm_of(comm), in, result, count, type, operation);
    if (status == 0) copy_bytes(out, result.data(), result.size());
    return status;
  });
}
STAND_IN int ncclReduce(const void* in, void* out, size_t count, int type, int operation, int root, void* comm, void*) {
  return call([=] {
    std::string result;
    const int status = reduce_all(comm_of(comm), in, result, count, type, operation);
    if (status == 0 && comm_of(comm).rank == root) copy_bytes(out, result.data(), result.size());
    return status;
  });
}
STAND_IN int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void*) {
  return call([=] {
    std::vector<std::string> all;
    const size_t bytes = count * static_cast<size_t>(element_bytes(type));
    const int status = gather(comm_of(comm), in, bytes, all);
    for (size_t r = 0; r < all.size() && status == 0; ++r)
      copy_bytes(static_cast<char*>(out) + r * bytes, all[r].data(), bytes);
    return status;
  });
}
STAND_IN int ncclReduceScatter(const void* in, void* out, size_t count, int type, int operation, void* comm, void*) {
  return call([=] {
    std::string result;
    const auto size = static_cast<size_t>(comm_of(comm).size), rank = static_cast<size_t>(comm_of(comm).rank);
    const int status = reduce_all(comm_of(comm), in, result, count * size, type, operation);
    const size_t bytes = count * static_cast<size_t>(element_bytes(type));
    if (status == 0) copy_bytes(out, result.data() + rank * bytes, bytes);
    return status;
  });
}
STAND_IN int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void*) {
  return call([=] {
    std::vector<std::string> all;
    const int status = gather(comm_of(comm), in, count * static_cast<size_t>(element_bytes(type)), all);
    if (status == 0) copy_bytes(out, all[static_cast<size_t>(root)].data(), all[static_cast<size_t>(root)].size());
    return status;
  });
}
STAND_IN int ncclSend(const void* in, size_t count, int type, int peer, void* comm, void*) {
  const auto work = [=] {
    return send_bytes(comm_of(comm),
                      std::string(static_cast<const char*>(in), count * static_cast<size_t>(element_bytes(type))),
                      peer);
  };
  if (depth == 0) return work();
  sends.emplace_back(work);
  return 0;
}
STAND_IN int ncclRecv(void* out, size_t count, int type, int peer, void* comm, void*) {
  return call([=] {
    std::string bytes;
    if (const int status = recv_bytes(comm_of(comm), bytes, peer)) return status;
    if (bytes.size() != count * static_cast<size_t>(element_bytes(type))) return kInvalidArgument;
    copy_bytes(out, bytes.data(), bytes.size());
    return 0;
  });
}
