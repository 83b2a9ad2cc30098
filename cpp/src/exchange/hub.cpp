#include <rapidsmpf/exchange/hub.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/operation.hpp>
#include <rapidsmpf/exchange/wire.hpp>

namespace rapidsmpf::exchange {

namespace {
// How long a communicator that is destroyed waits for operations whose data is not sent yet.
constexpr std::chrono::seconds longest_farewell{3};
}  // namespace

std::shared_ptr<Hub> Hub::of(Communicator& comm) {
    return std::static_pointer_cast<Hub>(comm.companion([&] { return std::make_shared<Hub>(comm); }));
}

Hub::Hub(Communicator& comm) : comm_{comm}, control_tag_{control_op, 0} {
    listener_ = comm_.add_failure_listener([this](RankFailure const& failure) { on_failure(failure); });
    function_ = comm_.progress_thread()->add_function([this] { return tick(); });
}

Hub::~Hub() {
    auto const& progress = *comm_.progress_thread();
    {
        std::unique_lock lock{mutex_};
        closing_ = true;
        if (!all_.empty() && thread_ != std::this_thread::get_id() && progress.is_running()) {
            lock.unlock();
            comm_.progress_thread()->wake();
            lock.lock();
            if (!changed_.wait_for(lock, longest_farewell, [&] { return flushed_; })) {
                comm_.logger().warn(
                    "the communicator is destroyed while data of finished operations still waits for other "
                    "ranks");
            }
        }
    }
    comm_.progress_thread()->remove_function(function_);
    comm_.remove_failure_listener(listener_);
    for (auto const& operation : all_) {
        operation->cut_off(RankFailure{comm_.rank(), "", 0, "its communicator was destroyed"});
    }
}

void Hub::open(std::shared_ptr<Operation> operation) {
    {
        std::lock_guard lock{mutex_};
        opened_.push_back(operation);
        all_.push_back(operation);
    }
    // Either the listener saw it in the list, or the failure is visible here.
    if (auto const failure = comm_.failure()) {
        operation->cut_off(*failure);
    }
    comm_.progress_thread()->wake();
}

std::size_t Hub::open_operations() const {
    std::lock_guard lock{mutex_};
    return all_.size();
}

void Hub::on_failure(RankFailure const& failure) {
    std::vector<std::shared_ptr<Operation>> operations;
    {
        std::lock_guard lock{mutex_};
        operations = all_;
        failed_ = true;
        flushed_ = true;
        changed_.notify_all();
    }
    for (auto const& operation : operations) {
        operation->cut_off(failure);
    }
}

ProgressThread::Progress Hub::tick() {
    bool busy = false;
    try {
        busy = take_opened();
        busy = route_arrived() || busy;
        busy = drive() || busy;
        note_flushed();
    } catch (std::exception const& error) {
        // Not of one operation: this rank cannot go on.
        comm_.abort(std::string{"exchange cannot go on: "} + error.what());
    }
    return busy ? ProgressThread::Progress::busy : ProgressThread::Progress::idle;
}

bool Hub::take_opened() {
    std::vector<std::shared_ptr<Operation>> opened;
    {
        std::lock_guard lock{mutex_};
        thread_ = std::this_thread::get_id();
        opened.swap(opened_);
    }
    for (auto& operation : opened) {
        auto& line = lines_[operation->op()];
        line.operations.push_back(std::move(operation));
        if (line.operations.size() == 1) {
            feed(line);
        }
    }
    return !opened.empty();
}

bool Hub::route_arrived() {
    bool any = false;
    while (auto arrived = comm_.recv_any(control_tag_)) {
        any = true;
        auto const source = arrived->source;
        try {
            route(std::move(*arrived));
        } catch (FormatError const& error) {
            comm_.fail(
                RankFailure{source, "", 0, std::string{"it sent a malformed message: "} + error.what()});
        }
    }
    return any;
}

void Hub::route(Communicator::Arrived arrived) {
    auto const op = read_op(arrived.bytes);
    RAPIDSMPF_EXPECTS(op != control_op, "a reserved operation id", FormatError);
    auto& line = lines_[op];
    if (!line.operations.empty() && !line.operations.front()->final_received(arrived.source)) {
        line.operations.front()->receive(arrived.source, arrived.bytes);
    } else {
        line.early.push_back(std::move(arrived));
    }
}

void Hub::feed(Line& line) {
    auto& active = *line.operations.front();
    auto early = std::exchange(line.early, {});
    for (auto& arrived : early) {
        if (active.final_received(arrived.source)) {
            line.early.push_back(std::move(arrived));
        } else {
            active.receive(arrived.source, arrived.bytes);
        }
    }
}

bool Hub::drive() {
    bool busy = false;
    for (auto line = lines_.begin(); line != lines_.end();) {
        auto& operations = line->second.operations;
        while (!operations.empty()) {
            auto const tick = operations.front()->tick();
            busy = busy || tick.did_something || tick.in_flight;
            if (!tick.closed) {
                break;
            }
            auto const closed = std::move(operations.front());
            operations.pop_front();
            {
                std::lock_guard lock{mutex_};
                all_.erase(std::remove(all_.begin(), all_.end(), closed), all_.end());
            }
            if (!operations.empty()) {
                feed(line->second);
            }
        }
        bool const unused = operations.empty() && (line->second.early.empty() || failed_);
        line = unused ? lines_.erase(line) : std::next(line);
    }
    return busy;
}

void Hub::note_flushed() {
    std::unique_lock lock{mutex_};
    if (!closing_ || flushed_) {
        return;
    }
    auto const operations = all_;
    lock.unlock();
    bool const flushed = std::all_of(
        operations.begin(), operations.end(), [](auto const& operation) { return operation->flushed(); });
    if (flushed) {
        lock.lock();
        flushed_ = true;
        changed_.notify_all();
    }
}

}  // namespace rapidsmpf::exchange
