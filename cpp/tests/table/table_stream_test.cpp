#include <rapidsmpf/table/table_stream.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

using testing::int64_table;

ArrowStreamOwner stream_of(std::function<std::optional<Table>()> next) {
    ArrowStreamOwner stream;
    export_table_stream(int64_table({}).schema(), std::move(next), stream.out());
    return stream;
}

std::string message_of(auto const& call) {
    try {
        call();
    } catch (std::runtime_error const& error) {
        return error.what();
    }
    return "no error";
}

TEST(TableStream, gives_tables_until_the_end_and_then_nothing) {
    int left = 3;
    TableReader reader{stream_of([&]() -> std::optional<Table> {
        return left-- > 0 ? std::optional{int64_table({left})} : std::nullopt;
    })};
    for (int i = 2; i >= 0; --i) {
        EXPECT_EQ(testing::row_texts(*reader.next()), testing::row_texts(int64_table({i})));
    }
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.next());
}

TEST(TableStream, of_one_table) {
    ArrowStreamOwner stream;
    int64_table({4, 5}).export_stream(stream.out());
    TableReader reader{std::move(stream)};
    EXPECT_EQ(reader.next()->num_rows(), 2);
    EXPECT_FALSE(reader.next());
}

TEST(TableStream, an_exception_reaches_the_reader_each_time) {
    TableReader reader{
        stream_of([]() -> std::optional<Table> { throw std::runtime_error{"rank 3 is gone"}; })};
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(message_of([&] { static_cast<void>(reader.next()); }), "rank 3 is gone");
    }
}

TEST(TableStream, lack_of_memory_has_its_own_code) {
    auto stream = stream_of([]() -> std::optional<Table> { throw std::bad_alloc{}; });
    ArrowArrayOwner array;
    EXPECT_EQ(stream->get_next(stream.get(), array.out()), ENOMEM);
}

TEST(TableStream, drops_its_source_at_the_end_and_when_closed) {
    auto const held = std::make_shared<int>(0);
    TableReader ended{stream_of([held]() -> std::optional<Table> { return std::nullopt; })};
    EXPECT_FALSE(ended.next());
    EXPECT_EQ(held.use_count(), 1);
    TableReader closed{stream_of([held]() -> std::optional<Table> { return std::nullopt; })};
    closed.close();
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_FALSE(closed.next());
}

TEST(TableReader, refuses_a_released_stream) {
    EXPECT_THROW(TableReader{ArrowStreamOwner{}}, std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf
