// Ways of being hard on the protocol, at full size; cpp/tests/coll has the same at the size of a test.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>

#include "cases.hpp"

namespace rapidsmpf::bench {

namespace {

constexpr OpId op = 10;
constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::size_t gib = std::size_t{1} << 30U;

// The sums that tell whether what came out went in.
struct Sums {
    std::uint64_t chunks{0};
    std::uint64_t bytes{0};
    std::uint64_t sum{0};
    void add(std::span<std::byte const> data) {
        ++chunks;
        bytes += data.size();
        sum += mix(crc32c(data) + data.size());
    }
    [[nodiscard]] std::vector<std::uint64_t> values() const { return {chunks, bytes, sum}; }
};

class Pattern {
  public:
    Pattern(Job& job, std::shared_ptr<BufferResource> br) : job_{job}, br_{std::move(br)} {}

    [[nodiscard]] std::unique_ptr<coll::Shuffler> open(std::size_t partitions, OpId id = op) const {
        return std::make_unique<coll::Shuffler>(
            job_.comm(), id, static_cast<coll::PartitionId>(partitions), br_,
            coll::PartitionAssignment::round_robin, job_.settings());
    }

    void insert(coll::Shuffler& shuffler, std::size_t partition, std::size_t size) {
        auto buffer = br_->allocate(MemoryType::DEVICE, size);
        auto const bytes = buffer->mutable_host_bytes();
        // Cheap to make, and no two chunks alike.
        std::memset(bytes.data(), static_cast<int>(number_ & 0xffU), size);
        auto const label = mix(++number_ + (static_cast<std::uint64_t>(job_.rank()) << 48U));
        std::memcpy(bytes.data(), &label, std::min(size, sizeof(label)));
        sent_.add(bytes);
        shuffler.insert(
            static_cast<coll::PartitionId>(partition),
            PackedData{std::vector<std::uint8_t>(8, 7), std::move(buffer)});
    }

    void take(coll::Shuffler& shuffler, coll::PartitionId partition) {
        for (auto& chunk : shuffler.extract(partition)) {
            // What was spilled is read back, one chunk after the other.
            auto const data = br_->move_to_host_access(std::move(chunk.data));
            came_.add(data->host_bytes());
        }
    }

    void take_all(coll::Shuffler& shuffler) {
        for (std::size_t i = 0; i < shuffler.local_partitions().size(); ++i) {
            take(shuffler, shuffler.wait_any());
        }
    }

    void check() { job_.expect_equal_sums(sent_.values(), came_.values(), "pattern"); }
    [[nodiscard]] Job& job() noexcept { return job_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return sent_.bytes; }
    [[nodiscard]] std::uint64_t chunks() const noexcept { return sent_.chunks; }

  private:
    Job& job_;
    std::shared_ptr<BufferResource> br_;
    std::uint64_t number_{0};
    Sums sent_;
    Sums came_;
};

// Rank 0 has one core's worth of other work between two partitions.
void slow_receiver(Pattern& p) {
    auto const n = p.job().nranks();
    auto const shuffler = p.open(32 * n);
    for (std::size_t i = 0; i < 16 * 32 * n; ++i) {
        p.insert(*shuffler, i % (32 * n), mib / 2);
    }
    shuffler->insert_finished();
    std::vector<std::uint64_t> work(mib / 8);
    for (std::size_t i = 0; i < 32; ++i) {
        p.take(*shuffler, shuffler->wait_any());
        for (std::size_t k = 0; p.job().rank() == 0 && k < 40 * work.size(); ++k) {
            work[k % work.size()] = mix(work[k % work.size()] + k);
        }
    }
    if (p.job().rank() == 0 && work[0] == 0) {
        throw std::runtime_error{"the work was not done"};
    }
}

void one_sender(Pattern& p) {
    auto const n = p.job().nranks();
    auto const shuffler = p.open(16 * n);
    for (std::size_t i = 0; p.job().rank() == 0 && i < 1024; ++i) {
        p.insert(*shuffler, i % (16 * n), mib);
    }
    shuffler->insert_finished();
    p.take_all(*shuffler);
}

void tiny_chunks(Pattern& p) {
    auto const n = p.job().nranks();
    auto const shuffler = p.open(8 * n);
    for (std::size_t i = 0; i < 1'000'000 / n; ++i) {
        p.insert(*shuffler, i % (8 * n), 16);
    }
    shuffler->insert_finished();
    p.take_all(*shuffler);
}

void one_huge_chunk(Pattern& p) {
    auto const shuffler = p.open(p.job().nranks());
    if (p.job().rank() == 0) {
        p.insert(*shuffler, 1, 5 * gib);
    }
    shuffler->insert_finished();
    p.take_all(*shuffler);
}

void many_partitions(Pattern& p) {
    auto const total = 4096 * p.job().nranks();
    auto const shuffler = p.open(total);
    for (std::size_t i = 0; i < total; ++i) {
        p.insert(*shuffler, i, 4096);
    }
    shuffler->insert_finished();
    p.take_all(*shuffler);
}

void many_shuffles(Pattern& p) {
    auto const n = p.job().nranks();
    std::vector<std::unique_ptr<coll::Shuffler>> shufflers;
    for (OpId i = 0; i < 200; ++i) {
        shufflers.push_back(p.open(4 * n, op + i));
    }
    for (std::size_t chunk = 0; chunk < 4 * n; ++chunk) {
        for (auto const& shuffler : shufflers) {
            p.insert(*shuffler, chunk, 256 << 10U);
        }
    }
    for (auto const& shuffler : shufflers) {
        shuffler->insert_finished();
    }
    for (auto const& shuffler : shufflers) {
        p.take_all(*shuffler);
    }
}

// Four times what the memory of a rank holds, on every rank (see `limit` below).
void all_out_of_memory(Pattern& p) {
    auto const n = p.job().nranks();
    auto const shuffler = p.open(32 * n);
    for (std::size_t i = 0; i < 1024; ++i) {
        p.insert(*shuffler, i % (32 * n), mib);
    }
    shuffler->insert_finished();
    for (auto const partition : shuffler->local_partitions()) {
        shuffler->wait_on(partition);
        p.take(*shuffler, partition);
    }
}

}  // namespace

void pattern(Job& job, Arguments const& arguments) {
    std::map<std::string, std::function<void(Pattern&)>> const patterns{
        {"slow_receiver", slow_receiver},
        {"one_sender", one_sender},
        {"tiny_chunks", tiny_chunks},
        {"one_huge_chunk", one_huge_chunk},
        {"many_partitions", many_partitions},
        {"many_shuffles", many_shuffles},
        {"all_out_of_memory", all_out_of_memory},
    };
    auto const name = arguments.text("name", "");
    arguments.check_all_used();
    auto const found = patterns.find(name);
    if (found == patterns.end()) {
        throw std::invalid_argument{"there is no pattern '" + name + "'"};
    }
    auto settings = BufferResource::settings_from_options(job.options());
    if (name == "all_out_of_memory") {
        settings.limits[0] = static_cast<std::int64_t>(256 * mib);
    }
    auto const limit = settings.limits[0];
    Pattern p{job, BufferResource::make(std::move(settings))};
    reset_peak_resident();
    Series series;
    series.add(job.measure([&] { found->second(p); }));
    p.check();
    Record record;
    record.text("case", "pattern");
    record.text("name", name);
    record.number("ranks", std::uint64_t{job.nranks()});
    record.numbers("bytes", job.of_all_ranks(p.bytes()));
    record.numbers("chunks", job.of_all_ranks(p.chunks()));
    record.series("all", series);
    record.number("limit", static_cast<std::uint64_t>(limit));
    record.numbers("peak_resident", job.of_all_ranks(peak_resident()));
    job.write(record);
}

}  // namespace rapidsmpf::bench
