// Sets of strings by the code that kernels run, on the CPU, against a map; where there is a GPU, there as well.
#include <rapidsmpf/pages/detail/code_strings.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pages/gpu_memory.hpp"
#include "pages/string_set.hpp"

namespace rapidsmpf::pages {
namespace {

using Strings = std::vector<std::optional<std::string>>;

Strings random_strings(std::mt19937_64& random, std::size_t count, std::size_t values, std::size_t longest) {
    std::vector<std::string> some(values);
    for (auto& string : some) {
        string.resize(random() % (longest + 1));
        std::ranges::generate(string, [&] { return static_cast<char>(random()); });
    }
    Strings strings;
    for (std::size_t i = 0; i < count; ++i) {
        strings.push_back(random() % 9 == 0 ? std::nullopt : std::optional{some[random() % values]});
    }
    return strings;
}

// Strings in Arrow's layout.
struct ArrowStrings {
    explicit ArrowStrings(Strings const& strings) : valid(strings.size() / 32 + 1) {
        wide_offsets.push_back(0);
        for (std::size_t i = 0; i < strings.size(); ++i) {
            if (strings[i]) {
                characters += *strings[i];
                valid[i / 32] |= 1U << (i % 32);
            }
            wide_offsets.push_back(static_cast<std::int64_t>(characters.size()));
        }
        offsets.assign(wide_offsets.begin(), wide_offsets.end());
    }
    [[nodiscard]] StringList list(bool wide) const {
        return {
            .places = nullptr,
            .characters = characters.data(),
            .offsets = wide ? static_cast<void const*>(wide_offsets.data()) : offsets.data(),
            .has_wide_offsets = wide,
            .valid = valid.data()};
    }

    std::string characters;
    std::vector<std::int32_t> offsets;
    std::vector<std::int64_t> wide_offsets;
    std::vector<std::uint32_t> valid;
};

// The places of strings. They are kept by `strings`.
std::vector<StringPlace> places_of(Strings const& strings) {
    std::vector<StringPlace> places;
    for (auto const& string : strings) {
        places.push_back(
            string ? StringPlace{.data = string->data(), .bytes = static_cast<std::int32_t>(string->size())}
                   : StringPlace{});
    }
    return places;
}

// Ranges that cover all strings but every tenth, in any order.
std::vector<StringRange> some_ranges(std::mt19937_64& random, std::size_t count) {
    std::vector<StringRange> ranges;
    for (std::uint32_t first = 0; first < count;) {
        auto const length =
            std::min<std::uint32_t>(1 + random() % 50, static_cast<std::uint32_t>(count) - first);
        if (random() % 10 != 0) {
            ranges.push_back({.first = first, .count = length});
        }
        first += length;
    }
    std::ranges::shuffle(ranges, random);
    return ranges;
}

class OwnSet {
  public:
    OwnSet(std::uint32_t strings, std::uint32_t bytes)
        : layout{StringSetLayout::of(strings, bytes)}, memory(layout.bytes, std::byte{0xAB}) {
        std::fill_n(memory.begin(), layout.zero_bytes, std::byte{0});
        set = layout.in(memory.data());
    }
    StringSetLayout layout;
    std::vector<std::byte> memory;
    StringSet set;
};

constexpr std::int32_t not_written = -77;

std::vector<std::int32_t> add(
    StringSet const& set, StringList const& list, std::vector<StringRange> const& ranges, std::size_t count) {
    std::vector<std::uint32_t> slots(count);
    std::vector<std::int32_t> codes(count, not_written);
    std::uint32_t most = 0;
    for (auto const& range : ranges) {
        most = std::max(most, range.count);
    }
    add_strings_on_cpu(
        {.set = set,
         .list = list,
         .ranges = ranges.data(),
         .n_ranges = static_cast<std::uint32_t>(ranges.size()),
         .most_in_range = most,
         .slots = slots.data(),
         .codes = codes.data()});
    return codes;
}

// Codes must be one to one with strings, now and in what was added before.
class Codebook {
  public:
    void check(
        Strings const& strings, std::vector<StringRange> const& ranges,
        std::vector<std::int32_t> const& codes) {
        std::vector<bool> in_range(strings.size());
        for (auto const& [first, count] : ranges) {
            for (std::uint32_t i = first; i < first + count; ++i) {
                in_range[i] = true;
                if (!strings[i]) {
                    ASSERT_EQ(codes[i], 0);
                    continue;
                }
                auto const [found, is_new] = code_of_.try_emplace(*strings[i], codes[i]);
                ASSERT_EQ(found->second, codes[i]);
                if (is_new) {
                    ASSERT_TRUE(string_of_.try_emplace(codes[i], *strings[i]).second);
                }
            }
        }
        for (std::size_t i = 0; i < strings.size(); ++i) {
            if (!in_range[i]) {
                ASSERT_EQ(codes[i], not_written);
            }
        }
    }
    [[nodiscard]] std::map<std::string, std::int32_t> const& codes() const { return code_of_; }
    [[nodiscard]] std::map<std::int32_t, std::string> const& strings() const { return string_of_; }

  private:
    std::map<std::string, std::int32_t> code_of_;
    std::map<std::int32_t, std::string> string_of_;
};

TEST(CodeStrings, AreOneToOneWithStrings) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        std::mt19937_64 random{seed};
        OwnSet own{500, 30'000};
        Codebook book;
        for (int call = 0; call < 4; ++call) {
            auto const strings = random_strings(random, random() % 2000, 1 + random() % 100, random() % 60);
            auto const places = places_of(strings);
            ArrowStrings const column{strings};
            auto const by_places = random() % 2 == 0;
            auto const list =
                by_places ? StringList{.places = places.data()} : column.list(random() % 2 == 0);
            auto const ranges = some_ranges(random, strings.size());
            auto const codes = add(own.set, list, ranges, strings.size());
            ASSERT_EQ(own.set.state->is_full, 0U);
            book.check(strings, ranges, codes);
            ASSERT_EQ(own.set.state->strings, book.codes().size());
        }
        // Codes are 0, 1, 2, ..., and the set has their strings.
        for (auto const& [code, string] : book.strings()) {
            ASSERT_LT(static_cast<std::uint32_t>(code), own.set.state->strings);
            auto const& place = own.set.strings[code];
            ASSERT_EQ(std::string(place.data, static_cast<std::size_t>(place.bytes)), string);
        }
    }
}

TEST(CodeStrings, AreFound) {
    std::mt19937_64 random{5};
    OwnSet own{300, 30'000};
    auto const strings = random_strings(random, 1000, 200, 40);
    auto const places = places_of(strings);
    std::vector<StringRange> const all{{.first = 0, .count = 1000}};
    auto const codes = add(own.set, {.places = places.data()}, all, strings.size());
    auto others = random_strings(random, 1000, 300, 40);
    for (std::size_t i = 0; i < others.size(); i += 3) {
        others[i] = strings[i];
    }
    others[1] = std::string(longest_coded + 1, 'x');
    std::map<std::string, std::int32_t> known;
    for (std::size_t i = 0; i < strings.size(); ++i) {
        if (strings[i]) {
            known[*strings[i]] = codes[i];
        }
    }
    ArrowStrings const column{others};
    std::vector<std::int32_t> found(others.size());
    find_strings_on_cpu(own.set, column.list(false), others.size(), found.data());
    for (std::size_t i = 0; i < others.size(); ++i) {
        auto const expected = !others[i] ? 0 : known.contains(*others[i]) ? known[*others[i]] : -1;
        ASSERT_EQ(found[i], expected) << i;
    }
}

TEST(CodeStrings, CodesStayWhenNothingFitsAnyMore) {
    struct Case {
        std::uint32_t strings;
        std::uint32_t bytes;
        std::size_t longest;
    };
    for (auto const& [most_strings, most_bytes, longest] :
         {Case{50, 100'000, 30}, Case{1000, 600, 30}, Case{1000, 1'000'000, 4 * longest_coded}}) {
        std::mt19937_64 random{most_strings};
        OwnSet own{most_strings, most_bytes};
        auto const few = random_strings(random, 100, 10, 20);
        auto const few_places = places_of(few);
        std::vector<StringRange> const of_few{{.first = 0, .count = 100}};
        auto const codes = add(own.set, {.places = few_places.data()}, of_few, few.size());
        ASSERT_EQ(own.set.state->is_full, 0U);

        auto const many = random_strings(random, 3000, 3000, longest);
        auto const many_places = places_of(many);
        std::vector<StringRange> const of_many{{.first = 0, .count = 3000}};
        (void)add(own.set, {.places = many_places.data()}, of_many, many.size());
        ASSERT_EQ(own.set.state->is_full, 1U);

        // What was there is found, and its strings are read.
        std::vector<std::int32_t> found(few.size());
        find_strings_on_cpu(own.set, {.places = few_places.data()}, few.size(), found.data());
        ASSERT_EQ(found, codes);
        ArrowStrings const column{few};
        std::vector<StringPlace> read(few.size());
        places_of_codes_on_cpu(
            own.set, {.numbers = codes.data(), .valid = column.valid.data(), .rows = codes.size()},
            read.data());
        for (std::size_t i = 0; i < few.size(); ++i) {
            ASSERT_EQ(read[i].data == nullptr, !few[i]);
            if (few[i]) {
                ASSERT_EQ(std::string(read[i].data, static_cast<std::size_t>(read[i].bytes)), *few[i]);
            }
        }
        // Nothing is added: codes are undefined, and no memory of the set changes.
        auto const before = own.memory;
        (void)add(own.set, {.places = many_places.data()}, of_many, many.size());
        ASSERT_EQ(own.memory, before);
    }
}

TEST(CodeStrings, OfRowsRefuseNumbersOutOfRange) {
    std::vector<std::int32_t> const codes{4, -1, 6};
    auto const code_rows = [&](std::vector<std::int32_t> const& numbers, std::uint32_t valid,
                               std::uint32_t& error) {
        std::vector<std::int32_t> row_codes(numbers.size(), not_written);
        code_rows_on_cpu(
            codes.data(), 3, {.numbers = numbers.data(), .valid = &valid, .rows = numbers.size()},
            row_codes.data(), &error);
        return row_codes;
    };
    std::uint32_t error = 0;
    EXPECT_EQ(code_rows({0, 2, 99, 2, 0}, 0b11011, error), (std::vector<std::int32_t>{4, 6, 0, 6, 4}));
    EXPECT_EQ(error, 0U);
    (void)code_rows({0, 3}, 0b11, error);
    EXPECT_NE(error, 0U);
    error = 0;
    (void)code_rows({0, 1}, 0b11, error);
    EXPECT_NE(error, 0U);
    error = 0;
    (void)code_rows({0, -1}, 0b11, error);
    EXPECT_NE(error, 0U);
}

#ifdef RAPIDSMPF_HAVE_CUDA
TEST(CodeStrings, OnGpu) {
    if (!has_gpu()) {
        GTEST_SKIP() << "kernels run on a GPU, and there is none";
    }
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        std::mt19937_64 random{seed};
        // Many threads look for the same strings at a time.
        auto const count = 1 + random() % 300'000;
        auto const values = 1 + random() % 3000;
        auto const strings = random_strings(random, count, values, 30);
        ArrowStrings const column{strings};
        There const characters{column.characters.data(), column.characters.size()};
        There const offsets{column.offsets.data(), column.offsets.size() * sizeof(std::int32_t)};
        There const valid{column.valid.data(), column.valid.size() * sizeof(std::uint32_t)};
        auto const ranges = some_ranges(random, count);
        There const ranges_there{ranges.data(), ranges.size() * sizeof(StringRange)};
        std::uint32_t most = 0;
        for (auto const& range : ranges) {
            most = std::max(most, range.count);
        }
        auto const is_small = seed % 5 == 4;
        auto const layout =
            StringSetLayout::of(is_small ? static_cast<std::uint32_t>(values / 2) : 4000, 200'000);
        There const memory{layout.bytes};
        check(cudaMemset(memory.data(), 0, layout.zero_bytes));
        auto const set = layout.in(static_cast<std::byte*>(memory.data()));
        There const slots{count * sizeof(std::uint32_t)};
        std::vector<std::int32_t> codes(count, not_written);
        There const codes_there{codes.data(), count * sizeof(std::int32_t)};
        StringList const list{
            .places = nullptr,
            .characters = static_cast<char const*>(characters.data()),
            .offsets = offsets.data(),
            .has_wide_offsets = false,
            .valid = static_cast<std::uint32_t const*>(valid.data())};
        add_strings_on_gpu(
            {.set = set,
             .list = list,
             .ranges = static_cast<StringRange const*>(ranges_there.data()),
             .n_ranges = static_cast<std::uint32_t>(ranges.size()),
             .most_in_range = most,
             .slots = static_cast<std::uint32_t*>(slots.data()),
             .codes = static_cast<std::int32_t*>(codes_there.data())},
            nullptr);
        check(cudaDeviceSynchronize());
        codes_there.read(codes.data(), count * sizeof(std::int32_t));
        StringSetState state;
        check(cudaMemcpy(&state, set.state, sizeof state, cudaMemcpyDeviceToHost));
        if (is_small && ranges.size() > 200) {
            EXPECT_EQ(state.is_full, 1U);
            continue;
        }
        if (state.is_full != 0) {
            continue;
        }
        Codebook book;
        book.check(strings, ranges, codes);
        ASSERT_EQ(state.strings, book.codes().size());

        There const found_there{count * sizeof(std::int32_t)};
        find_strings_on_gpu(set, list, count, static_cast<std::int32_t*>(found_there.data()), nullptr);
        check(cudaDeviceSynchronize());
        std::vector<std::int32_t> found(count);
        found_there.read(found.data(), count * sizeof(std::int32_t));
        for (std::size_t i = 0; i < count; ++i) {
            auto const in_set = strings[i] && book.codes().contains(*strings[i]);
            ASSERT_EQ(found[i], !strings[i] ? 0 : in_set ? book.codes().at(*strings[i]) : -1);
        }
    }
}
#endif

}  // namespace
}  // namespace rapidsmpf::pages
