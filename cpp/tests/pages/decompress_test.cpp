// Pages are decompressed by the code that kernels run, on the CPU, and compared with what made them; where there is a GPU, there
// as well.
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "pages/gpu_memory.hpp"
#include "pages/plan.hpp"
#include "pages/streams.hpp"

namespace rapidsmpf::pages {
namespace {

// What a reader would get; empty results and the problem if there is one.
struct Result {
    Problem problem{Problem::none};
    std::vector<Bytes> chunks;
};

constexpr std::uint8_t untouched = 0xa5;

// The bytes that the chunks need, in one block of memory, each at another alignment.
struct Block {
    explicit Block(std::vector<TestChunk> const& inputs) {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            bytes.resize(bytes.size() + slack + i % 5);
            stored_at.push_back(bytes.size());
            bytes.insert(bytes.end(), inputs[i].stored.begin(), inputs[i].stored.end());
            bytes.resize(bytes.size() + slack);
        }
        for (auto const& input : inputs) {
            bytes.resize((bytes.size() + 255) / 256 * 256);
            out_at.push_back(bytes.size());
            bytes.resize(bytes.size() + room_for(input.uncompressed));
            bytes.resize(bytes.size() + slack, untouched);
        }
    }

    [[nodiscard]] std::vector<Chunk> chunks(std::vector<TestChunk> const& inputs, std::uint8_t* base) const {
        std::vector<Chunk> chunks;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            chunks.push_back(
                Chunk{
                    .data = base + stored_at[i],
                    .bytes = inputs[i].stored.size(),
                    .values = inputs[i].values,
                    .out = base + out_at[i],
                    .room = room_for(inputs[i].uncompressed)});
        }
        return chunks;
    }

    Bytes bytes;
    std::vector<std::size_t> stored_at;
    std::vector<std::size_t> out_at;
};

// `head`: chunks and counters as decompression has left them; `block`: the bytes.
Result result_of(
    PlanLayout const& layout, std::vector<Chunk> const& chunks, Counters counters, Block const& block) {
    Result result;
    result.problem = static_cast<Problem>(counters.error);
    for (std::size_t i = 0; i < layout.chunks; ++i) {
        auto const* const out = block.bytes.data() + block.out_at[i];
        for (std::size_t at = 0; at < slack; ++at) {
            EXPECT_EQ(out[chunks[i].room + at], untouched);
        }
        if (result.problem == Problem::none) {
            result.chunks.emplace_back(out, out + chunks[i].out_bytes);
        }
    }
    return result;
}

Result decompress(std::vector<TestChunk> const& inputs) {
    Block block{inputs};
    auto chunks = block.chunks(inputs, block.bytes.data());
    auto const layout = PlanLayout::of(chunks);
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), chunks.size() * sizeof(Chunk));
    auto const plan = layout.in(memory.data());
    *plan.counters = Counters{};
    decompress_on_cpu(plan);
    std::memcpy(chunks.data(), memory.data(), chunks.size() * sizeof(Chunk));
    return result_of(layout, chunks, *plan.counters, block);
}

#ifdef RAPIDSMPF_HAVE_CUDA
Result decompress_there(std::vector<TestChunk> const& inputs) {
    Block block{inputs};
    There const bytes{block.bytes.data(), block.bytes.size()};
    auto chunks = block.chunks(inputs, static_cast<std::uint8_t*>(bytes.data()));
    auto const layout = PlanLayout::of(chunks);
    There const memory{layout.bytes};
    check(cudaMemcpy(memory.data(), chunks.data(), chunks.size() * sizeof(Chunk), cudaMemcpyHostToDevice));
    auto const plan = layout.in(static_cast<std::byte*>(memory.data()));
    Counters counters;
    check(cudaMemcpy(plan.counters, &counters, sizeof counters, cudaMemcpyHostToDevice));
    decompress_on_gpu(plan, nullptr);
    check(cudaMemcpy(&counters, plan.counters, sizeof counters, cudaMemcpyDeviceToHost));
    memory.read(chunks.data(), chunks.size() * sizeof(Chunk));
    bytes.read(block.bytes.data(), block.bytes.size());
    return result_of(layout, chunks, counters, block);
}

TEST(PagesOnGpu, AreThoseOfTheCpu) {
    if (!has_gpu()) {
        GTEST_SKIP() << "there is no GPU";
    }
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        std::vector<TestChunk> chunks(1 + seed % 40);
        for (auto& chunk : chunks) {
            chunk = random_chunk(random);
            if (seed % 4 == 3 && random() % 8 == 0) {
                chunk.stored[random() % chunk.stored.size()] = static_cast<std::uint8_t>(random());
            }
        }
        auto const here = decompress(chunks);
        auto const there = decompress_there(chunks);
        ASSERT_EQ(here.problem == Problem::none, there.problem == Problem::none);
        ASSERT_TRUE(here.chunks == there.chunks);
    }
}
#endif

TestChunk chunk_of(Bytes const& plain, Bytes const& stream) {
    TestPage page;
    page.values = 100;
    page.body = stream;
    page.plain = plain;
    TestChunk chunk;
    add_page(chunk, page);
    return chunk;
}

void expect_same(std::vector<TestChunk> const& inputs) {
    auto const result = decompress(inputs);
    ASSERT_EQ(result.problem, Problem::none);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(result.chunks[i].size(), inputs[i].plain.size()) << "chunk " << i;
        ASSERT_TRUE(result.chunks[i] == inputs[i].plain) << "chunk " << i;
    }
}

TEST(Pages, RandomChunks) {
    for (std::uint64_t seed = 0; seed < 80; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random{seed};
        std::vector<TestChunk> chunks(1 + seed % 4);
        for (auto& chunk : chunks) {
            chunk = random_chunk(random);
        }
        expect_same(chunks);
        if (HasFatalFailure()) {
            return;
        }
    }
}

// A dictionary of sorted or of random integers: short literals and short copies by the hundred thousand.
TEST(Pages, DictionariesOfIntegers) {
    std::mt19937_64 random{7};
    for (auto const is_sorted : {true, false}) {
        Bytes plain;
        std::uint64_t value = 1000;
        for (int i = 0; i < 110000; ++i) {
            value = is_sorted ? value + random() % 50 : random() % 10000000;
            for (unsigned byte = 0; byte < 8; ++byte) {
                plain.push_back(static_cast<std::uint8_t>(value >> (8 * byte)));
            }
        }
        expect_same({chunk_of(plain, compressed(plain))});
    }
}

TEST(Pages, ZerosAndPeriods) {
    for (std::size_t period : {1, 2, 3, 7, 31, 32, 33, 64, 1000}) {
        Bytes plain(200000);
        for (std::size_t i = 0; i < plain.size(); ++i) {
            plain[i] = static_cast<std::uint8_t>(i % period * 37);
        }
        expect_same({chunk_of(plain, compressed(plain))});
    }
    expect_same({chunk_of({}, {0})});
    expect_same({chunk_of({5}, {1, 0, 5})});
}

// Elements or copies over the border of a fragment: no compressor makes them, and a reader of all streams has to take over.
TEST(Pages, FragmentsThatDependOnEachOtherAreReported) {
    std::mt19937_64 random{3};
    StreamWriter crossing;
    crossing.literal(Bytes(65000, 1));
    for (int i = 0; i < 3000; ++i) {
        crossing.literal({2, 3, 4});
    }
    EXPECT_EQ(decompress({chunk_of(crossing.made(), crossing.stream())}).problem, Problem::dependency);
    StreamWriter far;
    far.literal(Bytes(65536, 1));
    far.copy(100, 64, 2);
    EXPECT_EQ(decompress({chunk_of(far.made(), far.stream())}).problem, Problem::dependency);
}

TEST(Pages, WrongStreamsAreReported) {
    auto const problem = [](Bytes const& plain, Bytes const& stream) {
        return decompress({chunk_of(plain, stream)}).problem;
    };
    EXPECT_EQ(problem(Bytes(3), {3, 8, 1, 2}), Problem::chain);      // a literal that ends behind the stream
    EXPECT_EQ(problem(Bytes(3), {4, 8, 1, 2, 3}), Problem::length);  // another length than the header says
    EXPECT_EQ(problem(Bytes(4), {4, 8, 1, 2, 3}), Problem::chain);   // makes too little
    EXPECT_EQ(problem(Bytes(2), {2, 8, 1, 2, 3}), Problem::chain);   // makes too much
    EXPECT_EQ(
        problem(Bytes(8), {8, 0, 1, 10, 0, 0, 12, 1, 2, 3, 4}), Problem::dependency);  // an offset of zero
    EXPECT_EQ(
        problem(Bytes(8), {8, 0, 1, 10, 9, 0, 12, 1, 2, 3, 4}),
        Problem::dependency);  // before the first byte
    EXPECT_EQ(
        problem(Bytes(3), {3, 0, 7, 7, 1, 0, 0, 0x80}), Problem::dependency);  // an offset beyond any page
    EXPECT_EQ(problem(Bytes(8), {0x88, 0x80, 0x80, 0x80, 0x80, 0x80}), Problem::length);
    EXPECT_EQ(problem(Bytes(8), {}), Problem::length);
}

// Whatever the bytes are, nothing outside of the pages is touched (sanitizers watch), and it ends.
TEST(Pages, DamagedChunks) {
    std::size_t reported = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        std::mt19937_64 random{seed};
        auto chunk = random_chunk(random);
        for (auto n = 1 + random() % 4; n > 0; --n) {
            chunk.stored[random() % chunk.stored.size()] = static_cast<std::uint8_t>(random());
        }
        if (random() % 3 == 0) {
            chunk.stored.resize(random() % chunk.stored.size() + 1);
        }
        std::vector<TestChunk> chunks(random() % 3, chunk);
        chunks.push_back(random_chunk(random));
        chunks.insert(chunks.begin(), chunk);
        reported += decompress(chunks).problem != Problem::none ? 1 : 0;
    }
    EXPECT_GT(reported, 25U);
}

TEST(Pages, HeadersAreReadWholeOrNotAtAll) {
    std::mt19937_64 random{11};
    for (int i = 0; i < 200; ++i) {
        auto const page = random_page(random, 50, 0, i % 2 == 0 ? 0 : 3);
        auto const bytes = page_header(page, page.body.size());
        PageHeader header;
        ASSERT_TRUE(read_page_header(bytes.data(), bytes.size(), header));
        EXPECT_EQ(header.bytes, bytes.size());
        EXPECT_EQ(header.values, page.values);
        EXPECT_EQ(header.compressed_bytes, page.body.size());
        EXPECT_EQ(header.uncompressed_bytes, page.plain.size());
        EXPECT_EQ(header.is_compressed, page.is_compressed);
        for (std::size_t n = 0; n < bytes.size(); ++n) {
            EXPECT_FALSE(read_page_header(bytes.data(), n, header));
        }
    }
}

}  // namespace
}  // namespace rapidsmpf::pages
