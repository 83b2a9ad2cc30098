// Snappy streams and Parquet chunks for tests: random ones, which use all that the format has, and what they decode to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

namespace rapidsmpf::pages {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::size_t slack = 8;  // bytes before and behind a chunk: whole words are read

inline void put_varint(Bytes& to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        to.push_back(static_cast<std::uint8_t>(value | 0x80));
    }
    to.push_back(static_cast<std::uint8_t>(value));
}

inline void put_little_endian(Bytes& to, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
        to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
}

// Elements one after the other, and what they make.
class StreamWriter {
  public:
    void literal(Bytes const& bytes, unsigned extra_length_bytes = 0) {
        auto const length = bytes.size() - 1;
        auto extra = extra_length_bytes;
        while (extra < 4 && (length >> (8 * extra)) != 0 && !(extra == 0 && length < 60)) {
            ++extra;
        }
        if (extra == 0) {
            elements_.push_back(static_cast<std::uint8_t>(length << 2));
        } else {
            elements_.push_back(static_cast<std::uint8_t>((59 + extra) << 2));
            put_little_endian(elements_, length, extra);
        }
        elements_.insert(elements_.end(), bytes.begin(), bytes.end());
        made_.insert(made_.end(), bytes.begin(), bytes.end());
    }

    // width: bytes of the offset, 1, 2 or 4; more if it does not fit.
    void copy(std::size_t offset, std::size_t length, unsigned width) {
        if (width == 1 && (offset >= 2048 || length < 4 || length > 11)) {
            width = 2;
        }
        if (width == 2 && offset >= 65536) {
            width = 4;
        }
        if (width == 1) {
            elements_.push_back(static_cast<std::uint8_t>(1 | (length - 4) << 2 | (offset >> 8) << 5));
            elements_.push_back(static_cast<std::uint8_t>(offset));
        } else {
            elements_.push_back(static_cast<std::uint8_t>((width == 2 ? 2 : 3) | (length - 1) << 2));
            put_little_endian(elements_, offset, width);
        }
        for (std::size_t i = 0; i < length; ++i) {
            made_.push_back(made_[made_.size() - offset]);
        }
    }

    [[nodiscard]] Bytes const& made() const { return made_; }
    [[nodiscard]] Bytes stream() const {
        Bytes all;
        put_varint(all, made_.size());
        all.insert(all.end(), elements_.begin(), elements_.end());
        return all;
    }

  private:
    Bytes elements_;
    Bytes made_;
};

// A stream of about `bytes`, of fragments of 64 KiB as compressors make them. `taste` decides what is in it.
inline StreamWriter random_stream(std::mt19937_64& random, std::size_t bytes, unsigned taste) {
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    StreamWriter writer;
    while (writer.made().size() < bytes) {
        auto const place = writer.made().size();
        auto const in_fragment = place % 65536;
        auto const room = std::min<std::size_t>(65536 - in_fragment, bytes - place);
        auto const is_literal = in_fragment == 0 || (taste == 4 ? below(20) == 0 : below(2) == 0);
        if (is_literal) {
            std::size_t length = 1;
            switch (taste) {
                case 0:
                    length = 1 + below(8);
                    break;
                case 1:
                    length = 1 + below(below(10) == 0 ? 3000 : 20);
                    break;
                case 2:
                    length = 1 + below(70000);
                    break;
                default:
                    length = 1 + below(100);
            }
            Bytes values(std::min(length, room));
            for (auto& value : values) {
                // Bytes that look like the heads of long elements, too.
                value = static_cast<std::uint8_t>(taste == 3 ? 0xf0 | below(16) : below(256));
            }
            writer.literal(values, below(30) == 0 ? static_cast<unsigned>(below(5)) : 0);
        } else {
            auto const near = below(3) != 0;
            auto const offset = 1 + below(std::min<std::size_t>(in_fragment, near ? 16 : 65536));
            auto const length = std::min<std::size_t>(1 + below(taste == 0 ? 12 : 64), room);
            constexpr unsigned widths[] = {1, 1, 2, 4};
            writer.copy(offset, length, widths[below(4)]);
        }
    }
    return writer;
}

// A compressor as others are: of 64 KiB at a time, matches of four bytes and more found by a hash.
inline Bytes compressed(Bytes const& data) {
    StreamWriter writer;
    for (std::size_t begin = 0; begin < data.size(); begin += 65536) {
        auto const end = std::min<std::size_t>(begin + 65536, data.size());
        std::vector<std::size_t> last(16384, SIZE_MAX);
        auto literal_from = begin;
        auto const put_literal = [&](std::size_t to) {
            if (to > literal_from) {
                writer.literal(Bytes(
                    data.begin() + static_cast<std::ptrdiff_t>(literal_from),
                    data.begin() + static_cast<std::ptrdiff_t>(to)));
            }
        };
        for (auto at = begin; at + 4 <= end;) {
            std::uint32_t word = 0;
            for (unsigned i = 0; i < 4; ++i) {
                word |= static_cast<std::uint32_t>(data[at + i]) << (8 * i);
            }
            auto& candidate = last[(word * 0x1e35a7bdU) >> 18];
            auto const from = candidate;
            candidate = at;
            if (from == SIZE_MAX || !std::equal(&data[from], &data[from] + 4, &data[at])) {
                ++at;
                continue;
            }
            put_literal(at);
            auto length = std::size_t{4};
            while (length < 64 && at + length < end && data[from + length] == data[at + length]) {
                ++length;
            }
            writer.copy(at - from, length, 1);
            at += length;
            literal_from = at;
        }
        put_literal(end);
    }
    return writer.stream();
}

// ---- Pages

struct TestPage {
    int type{0};
    Bytes body;   // as it is in the file
    Bytes plain;  // without compression
    std::int64_t values{0};
    std::int64_t definition_bytes{0};  // of data_v2
    std::int64_t repetition_bytes{0};
    bool is_compressed{true};
    int encoding{0};        // of values
    int level_encoding{3};  // of data pages, not of data_v2
    Bytes statistics;       // some bytes of a minimum, in the header
};

inline std::uint64_t zigzag(std::int64_t value) {
    return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}

inline Bytes page_header(TestPage const& page, std::size_t compressed_bytes) {
    Bytes to;
    auto const number = [&](std::int64_t value) { put_varint(to, zigzag(value)); };
    to.push_back(0x15);
    number(page.type);
    to.push_back(0x15);
    number(static_cast<std::int64_t>(page.plain.size()));
    to.push_back(0x15);
    number(static_cast<std::int64_t>(compressed_bytes));
    if (page.type == 0) {
        to.push_back(0x2c);  // field 5
        to.push_back(0x15);
        number(page.values);
        for (auto const encoding : {page.encoding, page.level_encoding, 3}) {
            to.push_back(0x15);
            number(encoding);
        }
        if (!page.statistics.empty()) {
            to.push_back(0x1c);
            to.push_back(0x58);  // field 5, binary
            put_varint(to, page.statistics.size());
            to.insert(to.end(), page.statistics.begin(), page.statistics.end());
            to.push_back(0x11);  // a field that is true
            to.push_back(0);
        }
        to.push_back(0);
    } else if (page.type == 2) {
        to.push_back(0x4c);  // field 7
        to.push_back(0x15);
        number(page.values);
        to.push_back(0x15);
        number(page.encoding);
        to.push_back(0);
    } else {
        to.push_back(0x5c);  // field 8
        for (auto const value : {page.values, std::int64_t{0}, page.values, std::int64_t{page.encoding}}) {
            to.push_back(0x15);
            number(value);
        }
        to.push_back(0x15);
        number(page.definition_bytes);
        to.push_back(0x15);
        number(page.repetition_bytes);
        to.push_back(page.is_compressed ? 0x11 : 0x12);
        to.push_back(0);
    }
    to.push_back(0);
    return to;
}

// The chunk as a file has it, and as a reader wants it without compression.
struct TestChunk {
    Bytes stored;
    Bytes plain;
    std::uint64_t values{0};
    std::uint64_t uncompressed{0};  // what a footer says
};

inline void add_page(TestChunk& chunk, TestPage const& page) {
    auto const header = page_header(page, page.body.size());
    chunk.stored.insert(chunk.stored.end(), header.begin(), header.end());
    chunk.stored.insert(chunk.stored.end(), page.body.begin(), page.body.end());
    auto const plain_header = page_header(page, page.plain.size());
    chunk.plain.insert(chunk.plain.end(), plain_header.begin(), plain_header.end());
    chunk.plain.insert(chunk.plain.end(), page.plain.begin(), page.plain.end());
    chunk.values += page.type == 2 ? 0 : static_cast<std::uint64_t>(page.values);
    chunk.uncompressed += header.size() + page.plain.size();
}

inline TestPage random_page(std::mt19937_64& random, std::size_t bytes, unsigned taste, int type) {
    TestPage page;
    page.type = type;
    page.values = 1 + static_cast<std::int64_t>(random() % 20000);
    auto const writer = random_stream(random, bytes, taste);
    if (type == 3) {
        page.definition_bytes = static_cast<std::int64_t>(random() % 50);
        page.repetition_bytes = static_cast<std::int64_t>(random() % 3);
        page.is_compressed = random() % 4 != 0;
        for (auto i = page.definition_bytes + page.repetition_bytes; i > 0; --i) {
            page.plain.push_back(static_cast<std::uint8_t>(random()));
        }
        page.body = page.plain;
    } else if (random() % 2 == 0) {
        page.statistics.resize(1 + random() % 70, 0x15);
    }
    page.plain.insert(page.plain.end(), writer.made().begin(), writer.made().end());
    auto const values = page.is_compressed ? writer.stream() : writer.made();
    page.body.insert(page.body.end(), values.begin(), values.end());
    return page;
}

inline TestChunk random_chunk(std::mt19937_64& random) {
    TestChunk chunk;
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    auto const size = [&] {
        constexpr std::size_t most[] = {1, 100, 5000, 70000, 300000};
        return below(most[below(5)] + 1);
    };
    if (below(3) != 0) {
        add_page(chunk, random_page(random, size(), static_cast<unsigned>(below(5)), 2));
    }
    auto const version = below(2) == 0 ? 0 : 3;
    for (auto n = 1 + below(6); n > 0; --n) {
        add_page(chunk, random_page(random, size(), static_cast<unsigned>(below(5)), version));
    }
    return chunk;
}

}  // namespace rapidsmpf::pages
