#include <rapidsmpf/streaming/actors.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

class ActorsTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    // Runs the actors with one that pulls from `out` and gives what it took.
    std::vector<Message> run(std::vector<Actor> actors, ChannelPtr const& out) {
        auto messages = std::make_shared<std::vector<Message>>();
        actors.push_back(pull_from_channel(out, messages));
        run_actor_network(*context.executor(), std::move(actors));
        return std::move(*messages);
    }
    // Rows 0, 1, ... in tables of so many rows.
    static std::vector<Message> tables(std::vector<std::int64_t> const& sizes) {
        std::vector<Message> messages;
        std::int64_t first = 0;
        for (auto const size : sizes) {
            messages.emplace_back(messages.size(), make_table(count_rows(first, size)));
            first += size;
        }
        return messages;
    }
    static Rows rows_of_all(std::vector<Message> const& messages) {
        Rows rows;
        for (auto const& message : messages) {
            testing::append(rows, message.get<Table>());
        }
        return rows;
    }

    Context context{
        config::Options{}, nullptr, BufferResource::make(), std::make_shared<Executor>(GetParam())};
    ChannelPtr in = context.create_channel();
    ChannelPtr out = context.create_channel();
};

TEST_P(ActorsTest, MapAndFilter) {
    auto const middle = context.create_channel();
    std::vector<Message> numbers;
    for (int i = 0; i < 10; ++i) {
        numbers.emplace_back(static_cast<std::uint64_t>(i), int{i});
    }
    std::vector<Actor> actors;
    actors.push_back(push_to_channel(in, std::move(numbers)));
    actors.push_back(filter(context, in, middle, [](Message const& m) { return m.get<int>() % 2 == 1; }));
    actors.push_back(map(
        context, middle, out, [](Message m) { return Message{m.sequence(), std::to_string(m.get<int>())}; }));
    std::string text;
    for (auto const& message : run(std::move(actors), out)) {
        text += message.get<std::string>();
    }
    EXPECT_EQ(text, "13579");
    EXPECT_THROW((void)map(context, in, out, nullptr), std::invalid_argument);
}

TEST_P(ActorsTest, AFunctionThatThrowsEndsTheNetwork) {
    std::vector<Actor> actors;
    actors.push_back(push_to_channel(in, tables({5, 5})));
    actors.push_back(map_tables(context, in, out, [](Table) -> Table { throw std::domain_error{"no"}; }));
    EXPECT_THROW((void)run(std::move(actors), out), std::domain_error);
}

TEST_P(ActorsTest, RepartitionKeepsRowsAndOrder) {
    BatchSizes sizes;
    sizes.enough_rows = 100;
    sizes.most_rows = 150;
    std::vector<Actor> actors;
    actors.push_back(push_to_channel(in, tables({1, 30, 0, 70, 500, 3, 149, 10, 1})));
    actors.push_back(repartition(context, in, out, sizes));
    auto const messages = run(std::move(actors), out);
    EXPECT_EQ(rows_of_all(messages), count_rows(0, 764));
    for (std::size_t i = 0; i < messages.size(); ++i) {
        EXPECT_EQ(messages[i].sequence(), i);
        EXPECT_LE(messages[i].get<Table>().num_rows(), 150);
    }
    EXPECT_LE(messages.size(), 9);
}

TEST_P(ActorsTest, ConcatGivesOneTable) {
    for (auto const& sizes : std::vector<std::vector<std::int64_t>>{{10, 20, 0, 3}, {7}, {}}) {
        in = context.create_channel();
        out = context.create_channel();
        std::int64_t rows = 0;
        for (auto const size : sizes) {
            rows += size;
        }
        std::vector<Actor> actors;
        actors.push_back(push_to_channel(in, tables(sizes)));
        actors.push_back(concat_tables(context, in, out));
        auto const messages = run(std::move(actors), out);
        EXPECT_EQ(messages.size(), sizes.empty() ? 0 : 1);
        EXPECT_EQ(rows_of_all(messages), count_rows(0, rows));
    }
}

TEST_P(ActorsTest, ScanReadsEveryPathAndTheSinkIsAStream) {
    std::vector<std::string> const paths{"0", "100", "200"};
    auto const open = [](std::string const& path) {
        if (path == "broken") {
            throw std::domain_error{"cannot open " + path};
        }
        return testing::stream_of_rows(count_rows(std::stol(path), 100), 7);
    };
    BatchSizes sizes;
    sizes.enough_rows = 20;
    for (std::size_t const readers : {1, 3}) {
        out = context.create_channel();
        std::vector<Actor> actors;
        actors.push_back(scan(context, paths, open, out, readers, sizes));
        auto stream = channel_stream(context, out, testing::row_schema());
        auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
        auto rows = testing::read_rows(std::move(stream));
        network.get();
        if (readers > 1) {
            std::ranges::sort(rows);
        }
        EXPECT_EQ(rows, count_rows(0, 300));
    }
    out = context.create_channel();
    std::vector<Actor> actors;
    actors.push_back(scan(context, {"0", "broken", "100"}, open, out, 2));
    EXPECT_THROW((void)run(std::move(actors), out), std::domain_error);
}

TEST_P(ActorsTest, AStreamThatIsReleasedStopsTheScan) {
    std::vector<Actor> actors;
    std::atomic<int> opened{0};
    std::vector<std::string> const paths(10'000, "0");
    BatchSizes sizes;
    sizes.enough_rows = 10;
    auto const open = [&opened](std::string const&) {
        ++opened;
        return testing::stream_of_rows(count_rows(0, 100), 10);
    };
    actors.push_back(scan(context, paths, open, out, 1, sizes));
    {
        TableReader reader{channel_stream(context, out, testing::row_schema())};
        auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
        EXPECT_EQ(reader.next()->num_rows(), 10);
        reader.close();
        network.get();
    }
    EXPECT_LT(opened.load(), 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, ActorsTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace rapidsmpf::streaming
