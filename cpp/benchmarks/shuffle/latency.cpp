#include <algorithm>
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

using Clock = std::chrono::steady_clock;
// Microseconds of each of many.
using Samples = std::vector<double>;

double microseconds(Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
}

// The sample below which a share of them lies.
double at_share(Samples samples, double share) {
    auto const middle =
        samples.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
}

// Whether the progress threads stay awake between two messages. Parked they are woken by the kernel, as an engine
// that waits is.
enum class Between : std::uint8_t { awake, parked };

// Messages of 8 bytes between ranks 0 and 1, answered by the progress threads, as those of the protocol are.
class PingPong {
  public:
    PingPong(Communicator& comm, Between between) : comm_{comm}, between_{between}, tag_{op, 2} {}

    // Sends a message there and back `count` times; rank 0 takes the times of one way.
    void run(std::size_t count, Samples& samples) {
        samples_ = &samples;
        left_ = count;
        auto const id = comm_.progress_thread()->add_function([this] { return tick(); });
        {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [&] { return done_; });
        }
        comm_.progress_thread()->remove_function(id);
    }

  private:
    void send() {
        sent_ = Clock::now();
        (void)comm_.send(std::vector<std::uint8_t>(8, 1), 1 - comm_.rank(), tag_);
    }

    ProgressThread::TickResult tick() {
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
            if (comm_.rank() == 0) {
                samples_->push_back(microseconds(Clock::now() - sent_) / 2);
            }
            --left_;
            if (left_ > 0 || comm_.rank() == 1) {
                send();
            }
        }
        if (left_ == 0) {
            std::lock_guard const lock{mutex_};
            done_ = true;
            changed_.notify_all();
            return ProgressThread::TickResult::idle();
        }
        return ProgressThread::TickResult::busy_if(came || between_ == Between::awake);
    }

    Communicator& comm_;
    Between between_;
    Tag tag_;
    std::size_t left_{0};  // messages still to come; touched by the progress thread once it runs
    bool started_{false};
    Clock::time_point sent_;
    Samples* samples_{nullptr};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_{false};
};

void write(Job& job, std::string const& what, Samples const& samples) {
    if (job.rank() != 0) {
        return;
    }
    Record record;
    record.text("case", "latency");
    record.text("what", what);
    record.number("ranks", std::uint64_t{job.nranks()});
    record.number("count", std::uint64_t{samples.size()});
    record.number("microseconds_median", at_share(samples, 0.5));
    record.number("microseconds_10_percent", at_share(samples, 0.1));
    record.number("microseconds_90_percent", at_share(samples, 0.9));
    job.write(record);
}

}  // namespace

void latency(Job& job, Arguments const& arguments) {
    auto const count = arguments.size("count", "2000");
    arguments.check_all_used();
    if (job.nranks() != 2) {
        throw std::invalid_argument{"latency is between two ranks"};
    }
    auto const br = BufferResource::make();
    auto const measure = [&](std::string const& what, std::size_t n, auto const& body) {
        Samples warm_up;
        job.barrier();
        body(n / 10 + 1, warm_up);
        Samples samples;
        job.barrier();
        body(n, samples);
        job.barrier();
        write(job, what, samples);
    };
    auto const each = [](std::size_t n, Samples& samples, auto const& body) {
        for (std::size_t i = 0; i < n; ++i) {
            auto const start = Clock::now();
            body();
            samples.push_back(microseconds(Clock::now() - start));
        }
    };
    measure("message_8_bytes", count, [&](std::size_t n, Samples& samples) {
        PingPong{*job.comm(), Between::awake}.run(n, samples);
    });
    measure("message_8_bytes_parked", count, [&](std::size_t n, Samples& samples) {
        PingPong{*job.comm(), Between::parked}.run(n, samples);
    });
    measure("empty_shuffle", count / 2, [&](std::size_t n, Samples& samples) {
        each(n, samples, [&] {
            coll::Shuffler shuffler{job.comm(), op, 2, br};
            shuffler.insert_finished();
            auto const partition = shuffler.wait_any();
            if (!shuffler.extract(partition).empty()) {
                throw std::runtime_error{"something came out of an empty shuffle"};
            }
        });
    });
    measure("barrier", count / 2, [&](std::size_t n, Samples& samples) {
        each(n, samples, [&] { coll::barrier(job.comm(), op); });
    });
}

void wait(Job& job, Arguments const& arguments) {
    auto const seconds = arguments.size("seconds", "10");
    arguments.check_all_used();
    auto const br = BufferResource::from_options(job.options());
    Series series;
    series.add(job.measure([&] {
        coll::Shuffler shuffler{job.comm(), op, static_cast<coll::PartitionId>(job.nranks()), br};
        // Something that could be spilled, as there is while an engine waits: memory is watched then.
        shuffler.insert(
            static_cast<coll::PartitionId>(job.rank()),
            PackedData{std::vector<std::uint8_t>(8), br->allocate(MemoryType::DEVICE, 4096)});
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
