#include <rapidsmpf/communicator/loopback.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/communicator/detail/lifetime.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf {
namespace loopback {

namespace {

// splitmix64: mixes the coordinates of a message into independent-looking bits.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

// What a request and the wires share about one send or receive.
struct Transfer {
    std::shared_ptr<Buffer> target;  // of a receive
    std::size_t offset{0};
    std::size_t size{0};
    std::string error;  // written before done
    std::atomic<bool> done{false};
};

struct Message {
    std::uint64_t release{0};  // the receiver's tick from which on it can be seen
    std::vector<std::uint8_t> bytes;
    std::shared_ptr<Buffer const> buffer;  // instead of bytes
    std::size_t offset{0};
    std::size_t size{0};
    std::shared_ptr<Transfer> transfer;
};

// Messages of one source with one tag to one destination, and the receives that wait for them.
struct Stream {
    std::deque<Message> messages;
    std::deque<std::shared_ptr<Transfer>> posted;
    std::uint64_t count{0};
    std::uint64_t last_release{0};
};

void copy_into(Transfer& receive, Message const& message) {
    if (message.size != receive.size) {
        receive.error = "received " + std::to_string(message.size) + " bytes where "
                        + std::to_string(receive.size) + " were expected";
        return;
    }
    auto& device = receive.target->resource()->device();
    receive.target->write([&](std::byte* bytes, rapidsmpf::Stream stream) {
        auto const* const from = message.buffer
                                     ? static_cast<void const*>(message.buffer->data() + message.offset)
                                     : static_cast<void const*>(message.bytes.data());
        device.copy(bytes + receive.offset, from, message.size, stream);
    });
}

}  // namespace

// The messages between all ranks of a cluster. One lock: this is for tests, not for speed.
class Wires {
  public:
    Wires(Rank nranks, LoopbackFaults const& faults)
        : faults_{faults}, nranks_{nranks}, ends_(static_cast<std::size_t>(nranks)) {}

    [[nodiscard]] Rank nranks() const noexcept { return nranks_; }

    void attach(Rank rank, std::shared_ptr<ProgressThread> progress_thread) {
        MutexLock lock{mutex_};
        end(rank).progress_thread = std::move(progress_thread);
    }

    void detach(Rank rank) {
        MutexLock lock{mutex_};
        lose_messages(end(rank));
        end(rank).progress_thread.reset();
        if (end(rank).dead) {
            return;
        }
        for (Rank other = 0; other < nranks(); ++other) {
            auto& stays = end(other);
            if (other != rank && stays.progress_thread) {
                // The news takes its own time: it may overtake messages, or come long after them.
                auto const bits =
                    mix(mix(mix(faults_.seed) ^ static_cast<std::uint64_t>(rank))
                        ^ static_cast<std::uint64_t>(other));
                stays.closings.emplace_back(rank, stays.tick + delay(bits));
                stays.progress_thread->wake();
            }
        }
    }

    std::shared_ptr<Transfer> send(Rank source, Rank destination, Tag tag, Message message) {
        MutexLock lock{mutex_};
        auto transfer = std::make_shared<Transfer>();
        message.transfer = transfer;
        auto& from = end(source);
        if (faults_.dying_rank == source && !from.dead && from.sent == faults_.dies_after) {
            die(source, "killed by the test after " + std::to_string(from.sent) + " messages");
        }
        auto& to = end(destination);
        if (from.dead || to.dead || !to.progress_thread) {
            transfer->done = true;  // into the void: a transport does not notice
            return transfer;
        }
        ++from.sent;
        auto& stream = to.streams[{tag.value(), source}];
        auto const bits =
            mix(mix(mix(faults_.seed) ^ (static_cast<std::uint64_t>(source) << 32U) ^ tag.value())
                ^ (static_cast<std::uint64_t>(destination) << 32U) ^ stream.count++);
        message.release = std::max(stream.last_release, to.tick + delay(bits));
        stream.last_release = message.release;
        if (!message.buffer) {
            transfer->done = true;  // the bytes are ours now
        }
        stream.messages.push_back(std::move(message));
        ++to.pending;
        to.progress_thread->wake();
        return transfer;
    }

    void post(Rank rank, Rank source, Tag tag, std::shared_ptr<Transfer> const& receive) {
        MutexLock lock{mutex_};
        end(rank).streams[{tag.value(), source}].posted.push_back(receive);
        if (end(rank).progress_thread) {
            end(rank).progress_thread->wake();
        }
    }

    void cancel(Rank rank, Rank source, Tag tag, std::shared_ptr<Transfer> const& receive) {
        MutexLock lock{mutex_};
        if (!receive->done) {
            auto& posted = end(rank).streams[{tag.value(), source}].posted;
            posted.erase(std::remove(posted.begin(), posted.end(), receive), posted.end());
        }
    }

    std::optional<Communicator::Arrived> take(Rank rank, Tag tag) {
        MutexLock lock{mutex_};
        auto& here = end(rank);
        // Starts at another source each time, so that none is served first for ever.
        Rank const first = here.next_source++ % nranks();
        for (Rank i = 0; i < nranks(); ++i) {
            Rank const source = (first + i) % nranks();
            auto const found = here.streams.find({tag.value(), source});
            if (found == here.streams.end() || found->second.messages.empty()
                || found->second.messages.front().release > here.tick) {
                continue;
            }
            auto message = std::move(found->second.messages.front());
            found->second.messages.pop_front();
            --here.pending;
            if (message.buffer) {
                auto const bytes = message.buffer->host_bytes().subspan(message.offset, message.size);
                auto const* const begin = reinterpret_cast<std::uint8_t const*>(bytes.data());
                message.bytes.assign(begin, begin + bytes.size());
                complete(source, *message.transfer);
            }
            return Communicator::Arrived{source, std::move(message.bytes)};
        }
        return std::nullopt;
    }

    // What a rank is to be told now.
    struct News {
        std::optional<RankFailure> failure;
        std::vector<Rank> left;
    };

    // One tick of a rank.
    bool progress(Rank rank, News& news) {
        MutexLock lock{mutex_};
        auto& here = end(rank);
        ++here.tick;
        bool busy = !here.closings.empty();
        std::erase_if(here.closings, [&](auto const& closing) {
            if (closing.second > here.tick) {
                return false;
            }
            news.left.push_back(closing.first);
            return true;
        });
        if (here.failure && !here.told) {
            busy = true;
            if (here.tick >= here.tell_at) {
                here.told = true;
                news.failure = here.failure;
            }
        }
        if (here.pending == 0) {
            return busy;
        }
        for (auto& [key, stream] : here.streams) {
            while (!stream.messages.empty() && !stream.posted.empty()
                   && stream.messages.front().release <= here.tick) {
                copy_into(*stream.posted.front(), stream.messages.front());
                stream.posted.front()->done = true;
                complete(key.second, *stream.messages.front().transfer);
                stream.posted.pop_front();
                stream.messages.pop_front();
                --here.pending;
                busy = true;
            }
            // A message that is held back needs more ticks.
            busy = busy || (!stream.messages.empty() && stream.messages.back().release > here.tick);
        }
        return busy;
    }

    void kill(Rank rank, std::string const& reason) {
        MutexLock lock{mutex_};
        die(rank, reason);
    }

    [[nodiscard]] std::uint64_t sent(Rank rank) const {
        MutexLock lock{mutex_};
        return ends_.at(static_cast<std::size_t>(rank)).sent;
    }

  private:
    struct End {
        std::shared_ptr<ProgressThread> progress_thread;  // null: not attached
        std::map<std::pair<std::uint64_t, Rank>, Stream> streams;
        std::uint64_t tick{0};
        std::uint64_t sent{0};
        std::size_t pending{0};  // messages in streams
        Rank next_source{0};
        bool dead{false};
        std::optional<RankFailure> failure;
        std::uint64_t tell_at{0};
        bool told{false};
        std::vector<std::pair<Rank, std::uint64_t>> closings;  // who has left, and the tick to say so
    };

    [[nodiscard]] End& end(Rank rank) RAPIDSMPF_REQUIRES(mutex_) {
        return ends_.at(static_cast<std::size_t>(rank));
    }

    [[nodiscard]] std::uint64_t delay(std::uint64_t bits) const {
        auto const chance = static_cast<double>(bits >> 40U) / static_cast<double>(1U << 24U);
        if (chance >= faults_.delay_probability || faults_.longest_delay == 0) {
            return 0;
        }
        return 1 + (bits & 0xffffffU) % faults_.longest_delay;
    }

    void complete(Rank source, Transfer& transfer) RAPIDSMPF_REQUIRES(mutex_) {
        transfer.done = true;
        if (end(source).progress_thread) {
            end(source).progress_thread->wake();
        }
    }

    // No rank will receive them; for their senders they are sent.
    void lose_messages(End& here) RAPIDSMPF_REQUIRES(mutex_) {
        for (auto& [key, stream] : here.streams) {
            for (auto& message : stream.messages) {
                complete(key.second, *message.transfer);
            }
        }
        here.streams.clear();
        here.pending = 0;
    }

    void die(Rank rank, std::string const& reason) RAPIDSMPF_REQUIRES(mutex_) {
        auto& victim = end(rank);
        if (victim.dead) {
            return;
        }
        victim.dead = true;
        lose_messages(victim);
        for (Rank other = 0; other < nranks(); ++other) {
            auto& survivor = end(other);
            if (!survivor.failure) {
                survivor.failure = RankFailure{rank, "loopback", 0, reason};
                auto const bits = mix(mix(faults_.seed) ^ static_cast<std::uint64_t>(other));
                survivor.tell_at =
                    survivor.tick + (other == rank ? 0 : bits % (std::uint64_t{faults_.longest_delay} + 1));
            }
            if (survivor.progress_thread) {
                survivor.progress_thread->wake();
            }
        }
    }

    LoopbackFaults const faults_;
    Rank const nranks_;
    mutable Mutex mutex_;
    std::vector<End> ends_ RAPIDSMPF_GUARDED_BY(mutex_);
};

namespace {

class SendRequest final : public Communicator::Request {
  public:
    explicit SendRequest(std::shared_ptr<Transfer> transfer) : transfer_{std::move(transfer)} {}
    [[nodiscard]] bool test() override { return transfer_->done; }

  private:
    std::shared_ptr<Transfer> transfer_;
};

class RecvRequest final : public Communicator::Request {
  public:
    RecvRequest(
        std::shared_ptr<Wires> wires, Rank rank, Rank source, Tag tag, std::shared_ptr<Transfer> transfer)
        : wires_{std::move(wires)}, rank_{rank}, source_{source}, tag_{tag}, transfer_{std::move(transfer)} {}
    ~RecvRequest() override { wires_->cancel(rank_, source_, tag_, transfer_); }
    [[nodiscard]] bool test() override {
        if (!transfer_->done) {
            return false;
        }
        if (!transfer_->error.empty()) {
            throw std::runtime_error{
                "message from rank " + std::to_string(source_) + ": " + transfer_->error};
        }
        return true;
    }

  private:
    std::shared_ptr<Wires> wires_;
    Rank rank_;
    Rank source_;
    Tag tag_;
    std::shared_ptr<Transfer> transfer_;
};

class LoopbackCommunicator final : public Communicator {
  public:
    LoopbackCommunicator(std::shared_ptr<Wires> wires, Rank rank, config::Options options)
        : Communicator{std::move(options), nullptr}, wires_{std::move(wires)}, rank_{rank} {
        logger_.set_rank(rank);
        wires_->attach(rank, progress_thread());
        function_ = progress_thread()->add_function(
            [this] { return ProgressThread::TickResult::busy_if(progress()); });
    }

    ~LoopbackCommunicator() override {
        retire();
        progress_thread()->remove_function(function_);
        wires_->detach(rank_);
    }

    [[nodiscard]] Rank rank() const noexcept override { return rank_; }
    [[nodiscard]] Rank nranks() const noexcept override { return wires_->nranks(); }
    [[nodiscard]] std::string str() const override {
        return "LoopbackCommunicator(rank=" + std::to_string(rank_) + ", nranks=" + std::to_string(nranks())
               + ")";
    }

    [[nodiscard]] std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) override {
        check_peer(destination);
        Message out;
        out.size = message.size();
        out.bytes = std::move(message);
        return std::make_unique<SendRequest>(wires_->send(rank_, destination, tag, std::move(out)));
    }

    [[nodiscard]] std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) override {
        check_peer(destination);
        check_range(*buffer, offset, size);
        RAPIDSMPF_EXPECTS(buffer->is_ready(), "the buffer to send is still being written", std::logic_error);
        Message out;
        out.buffer = std::move(buffer);
        out.offset = offset;
        out.size = size;
        return std::make_unique<SendRequest>(wires_->send(rank_, destination, tag, std::move(out)));
    }

    [[nodiscard]] std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) override {
        check_peer(source);
        check_range(*buffer, offset, size);
        auto transfer = std::make_shared<Transfer>();
        transfer->target = std::move(buffer);
        transfer->offset = offset;
        transfer->size = size;
        wires_->post(rank_, source, tag, transfer);
        return std::make_unique<RecvRequest>(wires_, rank_, source, tag, std::move(transfer));
    }

    [[nodiscard]] std::optional<Arrived> recv_any(Tag tag) override { return wires_->take(rank_, tag); }

    bool progress() override {
        loopback::Wires::News news;
        bool const busy = wires_->progress(rank_, news);
        for (auto const rank : news.left) {
            note_closed(rank);
        }
        if (news.failure) {
            fail(std::move(*news.failure));
        }
        return busy;
    }

    void abort(std::string const& reason) override {
        wires_->kill(rank_, reason);
        fail(RankFailure{rank_, "loopback", 0, reason});
    }

    void report_protocol_violation(Rank culprit, std::string const& reason) override {
        wires_->kill(culprit, reason);
        fail(RankFailure{culprit, "loopback", 0, reason});
    }

  private:
    void check_peer(Rank peer) const {
        RAPIDSMPF_EXPECTS(
            peer >= 0 && peer < nranks() && peer != rank_,
            "rank " + std::to_string(peer) + " is not another rank of " + str(), std::invalid_argument);
    }
    static void check_range(Buffer const& buffer, std::size_t offset, std::size_t size) {
        RAPIDSMPF_EXPECTS(
            offset <= buffer.size() && size <= buffer.size() - offset,
            "a message beyond the end of its buffer", std::invalid_argument);
    }

    std::shared_ptr<Wires> wires_;
    Rank rank_;
    ProgressThread::FunctionId function_{0};
};

}  // namespace
}  // namespace loopback

LoopbackCluster::LoopbackCluster(Rank nranks, LoopbackFaults const& faults, config::Options options) {
    RAPIDSMPF_EXPECTS(nranks >= 1, "a cluster needs at least one rank", std::invalid_argument);
    wires_ = std::make_shared<loopback::Wires>(nranks, faults);
    for (Rank rank = 0; rank < nranks; ++rank) {
        comms_.push_back(detail::make_communicator<loopback::LoopbackCommunicator>(wires_, rank, options));
    }
}

void LoopbackCluster::kill(Rank rank, std::string const& reason) {
    RAPIDSMPF_EXPECTS(rank >= 0 && rank < nranks(), "there is no such rank to kill", std::invalid_argument);
    wires_->kill(rank, reason);
}

std::uint64_t LoopbackCluster::messages_sent_for_testing(Rank rank) const {
    return wires_->sent(rank);
}

}  // namespace rapidsmpf
