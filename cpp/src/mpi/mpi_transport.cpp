#include "mpi/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

#include "mpi/mpi_check.hpp"

namespace rapidsmpf::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int header_tag = 0;
// Our tag, the size, and the MPI tag of the bytes that follow.
constexpr std::size_t header_size = 2 * sizeof(std::uint64_t) + sizeof(std::uint32_t);
// Messages up to this size travel in their header: beyond, copying costs more than a second message.
constexpr std::size_t inline_limit = std::size_t{16} << 10;
// MPI tags from 1 up to this are used in turn; more messages than that are never on their way to one rank.
constexpr int most_payload_tags = 1 << 20;
// Headers that are taken in before other work is done.
constexpr int most_headers = 64;
// How long a thread that waits leaves the driving to the progress thread, which may have been stopped.
constexpr std::chrono::milliseconds longest_wait{1};

int tag_upper_bound() {
    int* bound = nullptr;
    int found = 0;
    RAPIDSMPF_MPI(Comm_get_attr, MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    return found != 0 ? *bound : 32767;  // what the standard guarantees
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::size_t chunk_bytes, std::function<void()> on_posted)
    : comm_{comm}, chunk_bytes_{chunk_bytes}, on_posted_{std::move(on_posted)} {
    RAPIDSMPF_MPI(Comm_rank, comm_, &rank_);
    RAPIDSMPF_MPI(Comm_size, comm_, &nranks_);
    largest_tag_ = std::min(tag_upper_bound(), most_payload_tags);
    next_payload_tag_.assign(static_cast<std::size_t>(nranks_), 1);
    headers_.resize(static_cast<std::size_t>(nranks_));
}

void MpiTransport::check_open() const {
    if (closed_) {
        throw std::logic_error{"this communicator is closed: MPI has been finalised"};
    }
}

void MpiTransport::watch(MPI_Request request, MpiOperationPtr const& operation) {
    if (operation->pending_++ == 0) {
        in_flight_.fetch_add(1, std::memory_order_relaxed);
    }
    requests_.push_back(request);
    owners_.push_back(operation);
}

void MpiTransport::complete(MpiOperation& operation, std::string error) {
    released_.push_back(std::move(operation.keep_alive_));
    operation.error_ = std::move(error);
    operation.complete_.store(true, std::memory_order_release);
}

MpiOperationPtr MpiTransport::send(
    Rank peer, std::uint64_t tag, void const* bytes, std::size_t size,
    std::shared_ptr<void const> keep_alive) {
    bool const whole = size <= inline_limit;
    auto message = std::make_shared<std::vector<std::uint8_t>>();
    std::vector<std::shared_ptr<void const>> released;
    MpiOperationPtr operation;
    {
        MutexLock const lock{mutex_};
        check_open();
        auto& next = next_payload_tag_.at(static_cast<std::size_t>(peer));
        int const payload_tag = whole ? 0 : next;
        if (!whole) {
            next = next == largest_tag_ ? 1 : next + 1;
        }
        ByteWriter writer;
        writer.integer(tag).integer(std::uint64_t{size}).integer(static_cast<std::uint32_t>(payload_tag));
        if (whole) {
            writer.raw({static_cast<std::uint8_t const*>(bytes), size});
        }
        *message = writer.take();
        auto const header =
            std::make_shared<MpiOperation>(MpiOperation::Kind::send, peer, tag, message->size(), message);
        MPI_Request request = MPI_REQUEST_NULL;
        RAPIDSMPF_MPI(
            Isend, message->data(), static_cast<int>(message->size()), MPI_BYTE, peer, header_tag, comm_,
            &request);
        watch(request, header);

        operation =
            std::make_shared<MpiOperation>(MpiOperation::Kind::send, peer, tag, size, std::move(keep_alive));
        if (whole) {
            complete(*operation);
        } else {
            auto const* const begin = static_cast<std::byte const*>(bytes);
            for (std::size_t at = 0; at < size; at += chunk_bytes_) {
                auto const count = static_cast<int>(std::min(chunk_bytes_, size - at));
                RAPIDSMPF_MPI(Isend, begin + at, count, MPI_BYTE, peer, payload_tag, comm_, &request);
                watch(request, operation);
            }
        }
        released.swap(released_);
    }
    on_posted_();
    return operation;
}

void MpiTransport::post_receive(
    MpiOperationPtr const& operation, Rank source, int payload_tag, std::byte* bytes, std::size_t size) {
    for (std::size_t at = 0; at < size; at += chunk_bytes_) {
        auto const count = static_cast<int>(std::min(chunk_bytes_, size - at));
        MPI_Request request = MPI_REQUEST_NULL;
        RAPIDSMPF_MPI(Irecv, bytes + at, count, MPI_BYTE, source, payload_tag, comm_, &request);
        watch(request, operation);
    }
}

// The message is the receive's.
void MpiTransport::deliver(MpiOperationPtr const& receive, Message message) {
    bool const fits = message.size == receive->size_;
    if (message.payload_tag == 0) {
        if (fits && message.size > 0) {
            std::memcpy(receive->target_, message.bytes.data(), message.size);
        }
    } else if (fits) {
        post_receive(receive, message.source, message.payload_tag, receive->target_, receive->size_);
        return;
    } else {
        // Its sender waits to get rid of it.
        auto const scratch = std::make_shared<std::vector<std::uint8_t>>(message.size);
        post_receive(
            std::make_shared<MpiOperation>(
                MpiOperation::Kind::receive, message.source, receive->tag_, message.size, scratch),
            message.source, message.payload_tag, reinterpret_cast<std::byte*>(scratch->data()), message.size);
    }
    complete(
        *receive, fits ? std::string{}
                       : "rank " + std::to_string(message.source) + " sent " + std::to_string(message.size)
                             + " bytes where " + std::to_string(receive->size_) + " were expected");
}

MpiOperationPtr MpiTransport::receive(
    Rank peer, std::uint64_t tag, std::byte* bytes, std::size_t size,
    std::shared_ptr<void const> keep_alive) {
    auto operation =
        std::make_shared<MpiOperation>(MpiOperation::Kind::receive, peer, tag, size, std::move(keep_alive));
    operation->target_ = bytes;
    std::vector<std::shared_ptr<void const>> released;
    {
        MutexLock const lock{mutex_};
        check_open();
        auto& stream = streams_[tag][peer];
        if (stream.arrived.empty()) {
            stream.posted.push_back(operation);
        } else {
            auto message = std::move(stream.arrived.front());
            stream.arrived.pop_front();
            deliver(operation, std::move(message));
            tidy(tag, peer);
        }
        released.swap(released_);
    }
    on_posted_();
    return operation;
}

void MpiTransport::cancel(MpiOperation& operation) {
    MutexLock const lock{mutex_};
    // Its caller holds the operation, and lets go of it after this.
    std::erase_if(streams_[operation.tag_][operation.peer_].posted, [&](auto const& other) {
        return other.get() == &operation;
    });
    tidy(operation.tag_, operation.peer_);
}

void MpiTransport::tidy(std::uint64_t tag, Rank source) {
    auto const streams = streams_.find(tag);
    auto const stream = streams->second.find(source);
    if (stream->second.arrived.empty() && stream->second.posted.empty()) {
        streams->second.erase(stream);
        if (streams->second.empty()) {
            streams_.erase(streams);
        }
    }
}

std::optional<Communicator::Arrived> MpiTransport::take_any(std::uint64_t tag) {
    MutexLock const lock{mutex_};
    auto const streams = streams_.find(tag);
    if (streams == streams_.end() || closed_) {
        return std::nullopt;
    }
    // Begins behind the source that was served last, so that none has to wait for ever.
    auto& by_source = streams->second;
    auto entry = by_source.lower_bound(next_source_);
    for (std::size_t i = 0; i < by_source.size(); ++i, ++entry) {
        if (entry == by_source.end()) {
            entry = by_source.begin();
        }
        auto& arrived = entry->second.arrived;
        if (arrived.empty()) {
            continue;
        }
        auto& message = arrived.front();
        if (message.payload_tag != 0 && !message.coming) {
            message.coming_bytes = std::make_shared<std::vector<std::uint8_t>>(message.size);
            message.coming = std::make_shared<MpiOperation>(
                MpiOperation::Kind::receive, message.source, tag, message.size, message.coming_bytes);
            post_receive(
                message.coming, message.source, message.payload_tag,
                reinterpret_cast<std::byte*>(message.coming_bytes->data()), message.size);
        }
        if (message.coming && !message.coming->is_complete()) {
            continue;
        }
        next_source_ = message.source + 1;
        Communicator::Arrived result{
            message.source, message.coming ? std::move(*message.coming_bytes) : std::move(message.bytes)};
        arrived.pop_front();
        tidy(tag, result.source);
        return result;
    }
    return std::nullopt;
}

void MpiTransport::on_header(Rank source, std::vector<std::uint8_t> bytes) {
    if (bytes.size() < header_size) {
        throw MpiProtocolError{source, "it sent a message without a header"};
    }
    ByteReader reader{bytes};
    auto const tag = reader.integer<std::uint64_t>();
    auto const size = reader.integer<std::uint64_t>();
    auto const payload_tag = reader.integer<std::uint32_t>();
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header_size));
    if (payload_tag > static_cast<std::uint32_t>(most_payload_tags)
        || (payload_tag == 0 && size != bytes.size())) {
        throw MpiProtocolError{source, "it sent a message whose header contradicts itself"};
    }
    Message message{source, size, static_cast<int>(payload_tag), std::move(bytes)};
    auto& stream = streams_[tag][source];
    if (stream.posted.empty()) {
        stream.arrived.push_back(std::move(message));
        return;
    }
    auto const receive = std::move(stream.posted.front());
    stream.posted.pop_front();
    deliver(receive, std::move(message));
    tidy(tag, source);
}

bool MpiTransport::take_in_headers() {
    bool any = false;
    for (int i = 0; i < most_headers; ++i) {
        int found = 0;
        MPI_Message handle = MPI_MESSAGE_NULL;
        MPI_Status status;
        RAPIDSMPF_MPI(Improbe, MPI_ANY_SOURCE, header_tag, comm_, &found, &handle, &status);
        if (found == 0) {
            break;
        }
        any = true;
        int size = 0;
        RAPIDSMPF_MPI(Get_count, &status, MPI_BYTE, &size);
        auto& queue = headers_.at(static_cast<std::size_t>(status.MPI_SOURCE));
        auto& header = queue.emplace_back(static_cast<std::size_t>(size));
        ++headers_coming_;
        RAPIDSMPF_MPI(Imrecv, header.bytes.data(), size, MPI_BYTE, &handle, &header.request);
    }
    if (headers_coming_ == 0) {
        return any;
    }
    for (Rank source = 0; source < nranks_; ++source) {
        auto& queue = headers_[static_cast<std::size_t>(source)];
        while (!queue.empty()) {
            int done = 0;
            RAPIDSMPF_MPI(Test, &queue.front().request, &done, MPI_STATUS_IGNORE);
            if (done == 0) {
                break;
            }
            auto bytes = std::move(queue.front().bytes);
            queue.pop_front();
            --headers_coming_;
            any = true;
            on_header(source, std::move(bytes));
        }
    }
    return any;
}

bool MpiTransport::test_requests() {
    if (requests_.empty()) {
        return false;
    }
    tested_.resize(requests_.size());
    int count = 0;
    RAPIDSMPF_MPI(
        Testsome, static_cast<int>(requests_.size()), requests_.data(), &count, tested_.data(),
        MPI_STATUSES_IGNORE);
    if (count <= 0) {  // MPI_UNDEFINED is negative
        return false;
    }
    for (int i = 0; i < count; ++i) {
        auto& operation = *owners_[static_cast<std::size_t>(tested_[static_cast<std::size_t>(i)])];
        if (--operation.pending_ == 0) {
            in_flight_.fetch_sub(1, std::memory_order_relaxed);
            complete(operation);
        }
    }
    // Those that are done were set to null.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i] != MPI_REQUEST_NULL) {
            requests_[kept] = requests_[i];
            if (kept != i) {
                owners_[kept] = std::move(owners_[i]);
            }
            ++kept;
        }
    }
    requests_.resize(kept);
    owners_.resize(kept);
    return true;
}

bool MpiTransport::progress() {
    std::vector<std::shared_ptr<void const>> released;
    bool moved = false;
    {
        MutexLock const lock{mutex_};
        if (closed_) {
            return false;
        }
        moved = take_in_headers();
        moved = test_requests() || moved;
        released.swap(released_);
    }
    if (moved) {
        moved_.notify_all();
    }
    return moved;
}

std::size_t MpiTransport::in_flight_with(Rank peer) const {
    MutexLock const lock{mutex_};
    auto count = static_cast<std::size_t>(std::count_if(
        owners_.begin(), owners_.end(), [&](auto const& operation) { return operation->peer_ == peer; }));
    for (auto const& [tag, by_source] : streams_) {
        if (auto const found = by_source.find(peer); found != by_source.end()) {
            count += found->second.posted.size();
        }
    }
    return count;
}

bool MpiTransport::wait_until(Clock::time_point deadline, std::function<bool()> const& done) {
    UniqueLock lock{mutex_};
    for (;;) {
        if (done()) {
            return true;
        }
        auto const now = Clock::now();
        if (now >= deadline) {
            return false;
        }
        if (moved_.wait_until(lock, std::min(deadline, now + longest_wait)) == std::cv_status::timeout) {
            lock.unlock();
            progress();
            lock.lock();
        }
    }
}

bool MpiTransport::drain(
    Clock::time_point deadline, std::function<bool(Rank)> const& has_closed,
    std::function<bool()> const& stop) {
    bool stopped = false;
    bool const done = wait_until(deadline, [&]() RAPIDSMPF_REQUIRES(mutex_) {
        stopped = stop();
        return stopped || std::none_of(owners_.begin(), owners_.end(), [&](auto const& operation) {
                   return operation->kind_ == MpiOperation::Kind::send && !has_closed(operation->peer_);
               });
    });
    return done && !stopped;
}

bool MpiTransport::meet(Clock::time_point deadline, std::function<bool()> const& stop) {
    auto const operation = std::make_shared<MpiOperation>(MpiOperation::Kind::send, rank_, 0, 0, nullptr);
    {
        MutexLock const lock{mutex_};
        MPI_Request request = MPI_REQUEST_NULL;
        RAPIDSMPF_MPI(Ibarrier, comm_, &request);
        watch(request, operation);
    }
    on_posted_();
    bool stopped = false;
    bool const done = wait_until(deadline, [&] {
        stopped = stop();
        return stopped || operation->is_complete();
    });
    return done && !stopped;
}

void MpiTransport::close(Parted parted) noexcept {
    std::vector<std::shared_ptr<void const>> released;
    MutexLock const lock{mutex_};
    if (std::exchange(closed_, true)) {
        return;
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (owners_[i]->kind_ == MpiOperation::Kind::receive && requests_[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&requests_[i]);
        }
    }
    if (!requests_.empty()) {
        int count = 0;
        tested_.resize(requests_.size());
        MPI_Testsome(
            static_cast<int>(requests_.size()), requests_.data(), &count, tested_.data(),
            MPI_STATUSES_IGNORE);
    }
    bool pending = headers_coming_ > 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i] != MPI_REQUEST_NULL) {
            // MPI may use these bytes as long as it lives, and no thread will test the request again.
            static_cast<void>(std::make_unique<MpiOperationPtr>(std::move(owners_[i])).release());
            pending = true;
        }
    }
    if (headers_coming_ > 0) {
        static_cast<void>(std::make_unique<std::vector<std::deque<Header>>>(std::move(headers_)).release());
    }
    if (parted == Parted::yes && !pending) {
        MPI_Comm_free(&comm_);
    }
    released.swap(released_);
}

}  // namespace rapidsmpf::detail
