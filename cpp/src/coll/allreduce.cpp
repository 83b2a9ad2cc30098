#include <rapidsmpf/coll/allreduce.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "coll/per_rank.hpp"

namespace rapidsmpf::coll {

// An exchange of 2 n partitions on n ranks: partition r is the values' segments that rank r reduces, partition
// n + r the reduced segments that rank r gets, of each rank that reduces. Unless the array is large, rank 0 reduces
// the only segment, and the others have none.

namespace {

using exchange::Operation;

// From this size on the ranks divide the arrays. Below it a second round of messages to all costs more than it spares.
constexpr std::size_t cut_from = std::size_t{256} << 10U;

// How the ranks divide the values into segments.
struct Segmentation {
    std::size_t size;
    std::size_t element_size;
    std::size_t nranks;

    [[nodiscard]] std::size_t segments() const noexcept {
        return element_size > 0 && size >= cut_from ? nranks : 1;
    }
    // Where segment i begins.
    [[nodiscard]] std::size_t begin(std::size_t i) const noexcept {
        if (segments() == 1) {
            return i == 0 ? 0 : size;
        }
        std::size_t const elements = size / element_size;
        return (elements / nranks * i + std::min(i, elements % nranks)) * element_size;
    }
    [[nodiscard]] std::span<std::byte const> segment(
        std::span<std::byte const> bytes, std::size_t i) const noexcept {
        return bytes.subspan(begin(i), begin(i + 1) - begin(i));
    }
};

// What travels with each segment: the size of the whole, which all ranks must agree on.
std::vector<std::uint8_t> encode_size(std::uint64_t size) {
    std::vector<std::uint8_t> metadata(sizeof size);
    std::memcpy(metadata.data(), &size, sizeof size);
    return metadata;
}

std::uint64_t decode_size(Operation::Chunk const& chunk) {
    std::uint64_t size = 0;
    RAPIDSMPF_EXPECTS(
        chunk.data.metadata.size() == sizeof size,
        "rank " + std::to_string(chunk.source) + " sent no segment", FormatError);
    std::memcpy(&size, chunk.data.metadata.data(), sizeof size);
    return size;
}

void check_sizes(
    std::string const& name, std::vector<Operation::Chunk> const& chunks, Segmentation const& segmentation) {
    std::string sizes;
    bool agree = true;
    for (auto const& chunk : chunks) {
        auto const size = decode_size(chunk);
        agree = agree && size == segmentation.size;
        sizes += (sizes.empty() ? "rank " : ", rank ") + std::to_string(chunk.source) + " "
                 + std::to_string(size) + " bytes";
    }
    // A rank that divides its value otherwise may have sent nothing here.
    RAPIDSMPF_EXPECTS(
        agree && chunks.size() == segmentation.nranks,
        "the ranks give " + name
            + " values of different sizes, or reductions with and without elements: " + sizes,
        std::invalid_argument);
}

// Reduces the segment of this rank and gives it to everyone.
void reduce(
    Operation& operation, PartitionId own, Segmentation const& segmentation, Reduction const& reduction,
    BufferResource& br) {
    auto chunks = operation.extract(own);
    if (chunks.empty()) {
        return;  // this rank reduces nothing
    }
    check_sizes(operation.str(), chunks, segmentation);
    auto const sum = to_host(br, std::move(chunks.front().data.data));
    for (std::size_t i = 1; i < chunks.size(); ++i) {
        auto const next = to_host(br, std::move(chunks[i].data.data));
        RAPIDSMPF_EXPECTS(
            next->size() == sum->size(),
            "the ranks give " + operation.str() + " different reductions: elements of different sizes",
            std::invalid_argument);
        reduction.combine(sum->mutable_host_bytes(), next->host_bytes());
    }
    std::vector<std::pair<PartitionId, PackedData>> results;
    std::vector<PartitionId> partitions;
    for (std::size_t rank = 0; rank < segmentation.nranks; ++rank) {
        partitions.push_back(static_cast<PartitionId>(segmentation.nranks + rank));
        results.emplace_back(
            partitions.back(), PackedData{encode_size(segmentation.size), host_copy(br, sum->host_bytes())});
    }
    operation.insert(std::move(results));
    operation.insert_finished(partitions);
}

}  // namespace

AllReduce::AllReduce(
    std::shared_ptr<Communicator> comm, OpId op, std::span<std::byte const> input, Reduction reduction,
    exchange::Settings const& settings, std::shared_ptr<BufferResource> br)
    : comm_{std::move(comm)}, op_{op}, br_{br ? std::move(br) : BufferResource::make()}, size_{input.size()} {
    auto& ranks = require_comm(comm_, "an all-reduce");
    RAPIDSMPF_EXPECTS(reduction.combine != nullptr, "an all-reduce needs a function", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        reduction.element_size == 0 || input.size() % reduction.element_size == 0,
        "the input of an all-reduce has " + std::to_string(input.size())
            + " bytes, which is no multiple of the element size " + std::to_string(reduction.element_size),
        std::invalid_argument);
    auto const n = static_cast<PartitionId>(ranks.nranks());
    auto const me = static_cast<PartitionId>(ranks.rank());
    Segmentation const segmentation{input.size(), reduction.element_size, n};
    Operation::Plan plan;
    plan.kind = "allreduce";
    plan.op = op;
    plan.total = 2 * n;
    plan.owner = [n](PartitionId partition) { return static_cast<Rank>(partition % n); };
    plan.settings = settings;
    auto const runs_on = reduction.runs_on;
    auto run = [segmentation, reduction = std::move(reduction), br = br_, me](Operation& operation) {
        reduce(operation, me, segmentation, reduction, *br);
    };
    if (runs_on == RunsOn::waiting_thread) {
        reduce_ = std::move(run);
    } else {
        plan.completed = [run = std::move(run), me](Operation& operation, PartitionId partition) {
            if (partition == me) {
                run(operation);
            }
        };
    }
    operation_ = Operation::open(ranks, br_, std::move(plan));
    std::vector<std::pair<PartitionId, PackedData>> segments;
    std::vector<PartitionId> finished;
    for (PartitionId p = 0; p < n; ++p) {
        finished.push_back(p);
        if (p < segmentation.segments()) {
            segments.emplace_back(
                p, PackedData{encode_size(input.size()), host_copy(*br_, segmentation.segment(input, p))});
        }
    }
    if (me >= segmentation.segments()) {
        // Reduces nothing, so it gives no results.
        for (PartitionId p = n; p < 2 * n; ++p) {
            finished.push_back(p);
        }
    }
    operation_->insert(std::move(segments));
    operation_->insert_finished(finished);
}

AllReduce::~AllReduce() = default;

void AllReduce::reduce_here() {
    // Throws for values that will not come.
    operation_->wait_complete(static_cast<PartitionId>(comm_->rank()), std::chrono::milliseconds{0});
    std::function<void(exchange::Operation&)> reduce;
    {
        MutexLock const lock{mutex_};
        reduce = std::exchange(reduce_, nullptr);
    }
    if (reduce) {
        try {
            reduce(*operation_);
        } catch (std::exception const& error) {
            operation_->abandon(error.what());
            throw;
        }
    }
}

std::vector<std::byte> AllReduce::wait_and_extract(Timeout timeout) {
    RAPIDSMPF_EXPECTS(
        !extracted_, "the result of " + operation_->str() + " has been taken", std::logic_error);
    auto const n = static_cast<PartitionId>(comm_->nranks());
    auto const me = static_cast<PartitionId>(comm_->rank());
    auto const begin = std::chrono::steady_clock::now();
    // First the values, because that wait can name the ranks that have not come.
    operation_->wait_complete(me, timeout);
    reduce_here();
    if (timeout) {
        auto const passed =
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
        timeout = std::max(*timeout - passed, std::chrono::milliseconds{0});
    }
    operation_->wait_complete(n + me, timeout);
    RAPIDSMPF_EXPECTS(
        !extracted_.exchange(true), "the result of " + operation_->str() + " has been taken",
        std::logic_error);
    auto chunks = operation_->extract(n + me);  // by the rank that reduced them: in order
    operation_->release_id();
    std::vector<std::byte> result;
    result.reserve(size_);
    for (auto& chunk : chunks) {
        auto const data = to_host(*br_, std::move(chunk.data.data));
        auto const bytes = data->host_bytes();
        result.insert(result.end(), bytes.begin(), bytes.end());
    }
    RAPIDSMPF_EXPECTS(
        result.size() == size_,
        "the result of " + operation_->str() + " has " + std::to_string(result.size()) + " bytes, the input "
            + std::to_string(size_),
        std::invalid_argument);
    return result;
}

bool AllReduce::finished() const {
    return operation_->all_complete();
}

void AllReduce::tell_when_values_are_there(std::function<void()> told) {
    operation_->tell_when_complete(static_cast<PartitionId>(comm_->rank()), std::move(told));
}

void AllReduce::tell_when_complete(std::function<void()> told) {
    operation_->tell_when_complete(
        static_cast<PartitionId>(comm_->nranks() + comm_->rank()), std::move(told));
}

}  // namespace rapidsmpf::coll
