#include "coll/suite_support.hpp"

#include <cstring>

#include "coll/abandon_suite.hpp"
#include "coll/allgather_suite.hpp"
#include "coll/allreduce_suite.hpp"
#include "coll/lifetime_suite.hpp"
#include "coll/shuffler_suite.hpp"
#include "coll/small_suite.hpp"
#include "coll/sparse_alltoall_suite.hpp"
#include "coll/split_suite.hpp"

namespace rapidsmpf::suite {

std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

namespace {

std::uint64_t key_of(std::uint64_t salt, Rank source, std::uint32_t partition, std::uint64_t index) {
    return mix(mix(mix(mix(salt) ^ static_cast<std::uint64_t>(source)) ^ partition) ^ index);
}

void fill(std::uint8_t* bytes, std::size_t size, std::uint64_t key) {
    for (std::size_t i = 0; i < size; i += 8) {
        auto const word = mix(key + i);
        std::memcpy(bytes + i, &word, std::min<std::size_t>(8, size - i));
    }
}

}  // namespace

std::size_t size_of(
    std::uint64_t salt, Rank source, std::uint32_t partition, std::uint64_t index, std::size_t largest) {
    auto const bits = mix(key_of(salt, source, partition, index) ^ 1U);
    // The largest power of two that it may reach is itself random.
    std::size_t const bound = largest >> ((bits >> 56U) % 8);
    return bound == 0 ? 0 : (bits & 0xffffffffffffU) % (bound + 1);
}

PackedData make_chunk(
    BufferResource& br, std::uint64_t salt, Rank source, std::uint32_t partition, std::uint64_t index,
    std::size_t size, MemoryType type) {
    Label const label{salt, source, partition, index};
    std::vector<std::uint8_t> metadata(sizeof(Label));
    std::memcpy(metadata.data(), &label, sizeof(Label));
    // Metadata of different lengths, so that the tests cover how the receiver splits it, too.
    metadata.resize(sizeof(Label) + mix(index) % 5, 0xab);
    std::vector<std::uint8_t> content(size);
    fill(content.data(), size, key_of(salt, source, partition, index));
    auto data = br.allocate(type, size);
    if (size > 0) {
        data->write(
            [&](std::byte* bytes, Stream stream) { br.device().copy(bytes, content.data(), size, stream); });
        data->synchronize();
    }
    return PackedData{std::move(metadata), std::move(data)};
}

Label check_chunk(PackedData const& chunk) {
    SUITE_CHECK(chunk.metadata.size() >= sizeof(Label));
    Label label;
    std::memcpy(&label, chunk.metadata.data(), sizeof(Label));
    SUITE_CHECK(chunk.metadata.size() == sizeof(Label) + mix(label.index) % 5);
    auto const& data = *chunk.data;
    std::unique_ptr<Buffer> copy;
    if (!data.is_host_accessible()) {
        auto memory = data.resource()->reserve(MemoryType::HOST, data.size(), AllowOverbooking::yes).first;
        copy = data.resource()->copy(data, 0, data.size(), memory);
    }
    auto const bytes = (copy ? *copy : data).host_bytes();
    std::vector<std::uint8_t> expected(bytes.size());
    fill(expected.data(), expected.size(), key_of(label.salt, label.source, label.partition, label.index));
    SUITE_CHECK(bytes.empty() || std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0);
    return label;
}

std::vector<Body> const& bodies() {
    static std::vector<Body> const all = [] {
        std::vector<Body> list;
        for (auto const& part :
             {shuffler_bodies(), allgather_bodies(), allreduce_bodies(), sparse_alltoall_bodies(),
              small_bodies(), lifetime_bodies(), abandon_bodies(), split_bodies()}) {
            list.insert(list.end(), part.begin(), part.end());
        }
        return list;
    }();
    return all;
}

}  // namespace rapidsmpf::suite
