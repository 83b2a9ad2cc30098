#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/progress_thread.hpp>

#include "cases.hpp"

namespace rapidsmpf::bench {

namespace {

constexpr OpId op = 10;

// Whether the progress threads stay awake between two messages. Parked they are woken by the kernel, as an engine
// that waits is.
enum class Between : std::uint8_t { awake, parked };

// Messages of 8 bytes between ranks 0 and 1, answered by the progress threads, as those of the protocol are.
class PingPong {
  public:
    PingPong(Communicator& comm, Between between) : comm_{comm}, between_{between}, tag_{op, 2} {}

    // Sends a message there and back `count` times.
    void run(std::size_t count) {
        left_ = count;
        auto const id = comm_.progress_thread()->add_function([this] { return tick(); });
        {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [&] { return done_; });
        }
        comm_.progress_thread()->remove_function(id);
    }

  private:
    void send() { (void)comm_.send(std::vector<std::uint8_t>(8, 1), 1 - comm_.rank(), tag_); }

    ProgressThread::Progress tick() {
        if (!started_) {
            started_ = true;
            if (comm_.rank() == 0) {
                send();
            }
        }
        bool came = false;
        while (auto const message = comm_.recv_any(tag_)) {
            if (message->bytes.size() != 8) {
                throw std::runtime_error{"a message of another size"};
            }
            came = true;
            --left_;
            if (left_ > 0 || comm_.rank() == 1) {
                send();
            }
        }
        if (left_ == 0) {
            std::lock_guard const lock{mutex_};
            done_ = true;
            changed_.notify_all();
            return ProgressThread::Progress::idle;
        }
        return came || between_ == Between::awake ? ProgressThread::Progress::busy
                                                  : ProgressThread::Progress::idle;
    }

    Communicator& comm_;
    Between between_;
    Tag tag_;
    std::size_t left_{0};  // messages still to come; touched by the progress thread once it runs
    bool started_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_{false};
};

void write(Job& job, std::string const& what, std::size_t count, Series const& series) {
    Record record;
    record.text("case", "latency");
    record.text("what", what);
    record.number("ranks", std::uint64_t{job.nranks()});
    record.number("count", std::uint64_t{count});
    record.series("all", series);
    job.write(record);
}

}  // namespace

void latency(Job& job, Arguments const& arguments) {
    auto const count = arguments.size("count", "2000");
    auto const repeats = arguments.size("repeats", "5");
    arguments.check_all_used();
    if (job.nranks() != 2) {
        throw std::invalid_argument{"latency is between two ranks"};
    }
    auto const br = BufferResource::make();
    auto const measure = [&](std::string const& what, std::size_t n, auto const& body) {
        Series series;
        (void)job.measure([&] { body(n / 10 + 1); });
        for (std::size_t i = 0; i < repeats; ++i) {
            series.add(job.measure([&] { body(n); }));
        }
        write(job, what, n, series);
    };
    // A round trip is two messages.
    measure(
        "message_8_bytes", count, [&](std::size_t n) { PingPong{*job.comm(), Between::awake}.run(n / 2); });
    measure("message_8_bytes_parked", count, [&](std::size_t n) {
        PingPong{*job.comm(), Between::parked}.run(n / 2);
    });
    measure("empty_shuffle", count / 4, [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            coll::Shuffler shuffler{job.comm(), op, 2, br};
            shuffler.insert_finished();
            auto const partition = shuffler.wait_any();
            if (!shuffler.extract(partition).empty()) {
                throw std::runtime_error{"something came out of an empty shuffle"};
            }
        }
    });
    measure("barrier", count / 4, [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            coll::barrier(job.comm(), op);
        }
    });
}

void wait(Job& job, Arguments const& arguments) {
    auto const seconds = arguments.size("seconds", "10");
    arguments.check_all_used();
    auto const br = BufferResource::make();
    Series series;
    series.add(job.measure([&] {
        coll::Shuffler shuffler{job.comm(), op, static_cast<coll::PartitionId>(job.nranks()), br};
        if (job.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::seconds{seconds});
        }
        shuffler.insert_finished();
        (void)shuffler.wait_any();
    }));
    Record record;
    record.text("case", "wait");
    record.number("ranks", std::uint64_t{job.nranks()});
    record.series("all", series);
    job.write(record);
}

}  // namespace rapidsmpf::bench
