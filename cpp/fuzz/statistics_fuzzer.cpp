// Statistics as ranks send them to each other.
#include <cmath>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/statistics_snapshot.hpp>

#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    bool const seal = (input.byte() & 1) != 0;
    auto message = copied(input.rest());
    if (seal) {
        auto const crc = crc32(message);
        for (unsigned i = 0; i < 4; ++i) {
            message.push_back(static_cast<std::uint8_t>(crc >> (8 * i)));
        }
    }
    static_cast<void>(takes([&] {
        auto const snapshot = StatisticsSnapshot::deserialize(message);
        require(snapshot.serialize() == message, "statistics say the same again");
        static_cast<void>(snapshot.report("of a rank"));
        StatisticsSnapshot sum;
        sum.merge(snapshot);
        sum.merge(snapshot);
        static_cast<void>(sum.report(""));
        static_cast<void>(takes<std::invalid_argument>([&] { static_cast<void>(sum.to_json("")); }));
    }));
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> all;
    StatisticsSnapshot snapshot;
    for (int round = 0; round < 4; ++round) {
        auto const bytes = snapshot.serialize();
        all.push_back(with_kind(0, bytes));
        all.push_back(with_kind(1, std::span{bytes}.first(bytes.size() - 4)));
        StatisticsSnapshot::Entry entry;
        entry.stat.count = 3;
        entry.stat.value = 1.5 * round;
        entry.stat.max = std::pow(10.0, 4 * round);
        entry.unit = static_cast<StatisticUnit>(round % 3);
        entry.kind = static_cast<StatisticKind>(round % 2);
        snapshot.add("spill-bytes-host-to-disk-" + std::to_string(round), entry);
    }
    return all;
}

}  // namespace rapidsmpf::fuzz
