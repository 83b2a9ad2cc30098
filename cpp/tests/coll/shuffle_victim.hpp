// A job in which one rank comes to a bad end in the middle of a shuffle: its lines tell a test who ended when, what the
// others were told and when. The moments are reached by messages, so nothing depends on how fast a rank is.
//
//   WHEN  insert    the others have inserted something and go on doing so
//         wait      the others have inserted everything and wait for their partitions
//         teardown  the others have all their partitions and wait in a barrier, to leave together
//   HOW   kill      SIGKILL
//         raise     an exception, which ends in Communicator::abort()
//         stop      SIGSTOP; the others wait for a second and give up
//         absent    it never makes the shuffler; the others wait for a second and give up
//         malformed it sends bytes that are no message of the protocol to one other rank, and goes on
//         hang      it does nothing any more; the others wait
#pragma once

#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_set>

#include <unistd.h>

#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "bootstrap/ranks.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

class ShuffleVictim {
  public:
    static constexpr int survivor_exit_code = 9;
    static constexpr int raised_exit_code = 3;
    // Of those who give up on a rank that does not answer.
    static constexpr std::chrono::milliseconds short_timeout{1000};

    ShuffleVictim(std::string when, std::string how, Rank victim)
        : when_{std::move(when)}, how_{std::move(how)}, victim_{victim} {}

    // Returns the exit code. `begin`: of the program, by which a test can tell how slow the machine is.
    int run(std::shared_ptr<Communicator> comm, std::chrono::steady_clock::time_point begin) {
        me_ = comm->rank();
        // rrun ends the others two seconds after the first: on a slow machine they may need longer to say their lines.
        std::signal(SIGTERM, SIG_IGN);
        coll::barrier(comm, 1, patience);
        using std::chrono::duration_cast;
        auto const started =
            duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
        say("pid " + std::to_string(::getpid()) + " started in " + std::to_string(started) + " ms");
        auto const code = me_ == victim_ && how_ == "absent" ? stay_away() : shuffle(comm);
        comm.reset();
        say("closed");
        return code;
    }

  private:
    // One write, so that the lines of the ranks do not mix.
    void say(std::string const& text) const {
        auto const line = "rank " + std::to_string(me_) + ": " + text + "\n";
        [[maybe_unused]] auto const written = ::write(STDOUT_FILENO, line.data(), line.size());
    }
    // The clock is the same in all processes of a host.
    [[nodiscard]] static std::string now() {
        return std::to_string(
            std::chrono::duration_cast<std::chrono::milliseconds>(
                std::chrono::steady_clock::now().time_since_epoch())
                .count());
    }
    [[nodiscard]] static Tag tell_tag() { return Tag{9, 0}; }
    [[nodiscard]] static Tag stop_tag() { return Tag{9, 1}; }

    [[nodiscard]] bool is_victim() const { return me_ == victim_; }
    // Of the wait in which the victim is missed.
    [[nodiscard]] std::chrono::milliseconds timeout_at(char const* moment) const {
        bool const gives_up = how_ == "stop" || how_ == "absent";
        return gives_up && when_ == moment ? short_timeout : patience;
    }

    [[noreturn]] int stay_away() const {
        say("ends at " + now());
        do_nothing();
    }
    [[noreturn]] static void do_nothing() {
        std::signal(SIGTERM, SIG_DFL);
        for (;;) {
            ::pause();
        }
    }

    void insert_some(Communicator const& comm, coll::Shuffler& shuffler, std::uint64_t turn) const {
        for (coll::PartitionId p = 0; p < shuffler.total_partitions(); ++p) {
            shuffler.insert(p, make_chunk(*br_, turn, comm.rank(), p, turn, p % 2 == 0 ? 300'000 : 500));
        }
    }

    // The victim's moment has come as soon as all others have told it so.
    void meet_victim(Communicator& comm) const {
        if (!is_victim()) {
            (void)comm.send({1}, victim_, tell_tag());
            if (how_ == "stop") {
                (void)test::wait_any(comm, stop_tag());
            }
            return;
        }
        for (Rank peer = 1; peer < comm.nranks(); ++peer) {
            (void)test::wait_any(comm, tell_tag());
        }
        end(comm);
    }

    // The others begin to lose patience when it is stopped, not before.
    void announce_stop(Communicator& comm) const {
        for (Rank peer = 0; peer < comm.nranks(); ++peer) {
            if (peer != me_) {
                auto const said = comm.send({1}, peer, stop_tag());
                test::wait(comm, *said);
            }
        }
    }

    void end(Communicator& comm) const {
        say("ends at " + now());
        if (how_ == "kill") {
            ::raise(SIGKILL);
        } else if (how_ == "raise") {
            throw std::domain_error{"no such column: x"};
        } else if (how_ == "stop") {
            announce_stop(comm);
            std::signal(SIGTERM, SIG_DFL);
            ::raise(SIGSTOP);
        } else if (how_ == "hang") {
            do_nothing();
        } else if (how_ == "malformed") {
            Rank const next = (me_ + 1) % comm.nranks();
            (void)comm.send({1, 2, 3}, next, Tag{exchange::OperationDispatcher::control_op, 0});
        }
    }

    void take_all(coll::Shuffler& shuffler) const {
        for (std::size_t i = 0; i < shuffler.local_partitions().size(); ++i) {
            auto const partition = shuffler.wait_any(timeout_at("wait"));
            for (auto const& chunk : shuffler.extract(partition)) {
                SUITE_CHECK(check_chunk(chunk).partition == partition);
            }
        }
    }

    // No rank finishes before it hears of the failure: inserting is what raises.
    void insert_until_failure(std::shared_ptr<Communicator> const& comm, coll::Shuffler& shuffler) const {
        auto const failed = std::make_shared<std::promise<void>>();
        auto const listener =
            comm->add_failure_listener([failed](RankFailure const&) { failed->set_value(); });
        insert_some(*comm, shuffler, 1);
        auto const heard = failed->get_future().wait_for(patience);
        comm->remove_failure_listener(listener);
        SUITE_CHECK(heard == std::future_status::ready);
        insert_some(*comm, shuffler, 2);
        throw CheckFailed{"inserting goes on after a failure"};
    }

    void go_through(std::shared_ptr<Communicator> const& comm, coll::Shuffler& shuffler) const {
        insert_some(*comm, shuffler, 0);
        if (when_ == "insert") {
            meet_victim(*comm);
            insert_until_failure(comm, shuffler);
        }
        if (!is_victim() || when_ == "teardown") {
            shuffler.insert_finished();
        }
        if (when_ == "wait") {
            meet_victim(*comm);
        }
        take_all(shuffler);
        shuffler.shutdown(patience);
        meet_victim(*comm);
        coll::barrier(comm, 3, timeout_at("teardown"));
    }

    int shuffle(std::shared_ptr<Communicator> const& comm) {
        // Far less than the chunks take: they are spilled.
        br_ = BufferResource::from_options(config::Options{config::Strings{{"spill_device_limit", "1 MiB"}}});
        auto const partitions = 4 * static_cast<coll::PartitionId>(comm->nranks());
        std::optional<coll::Shuffler> shuffler;
        try {
            shuffler.emplace(comm, 2, partitions, br_);
            go_through(comm, *shuffler);
            say("no failure");
            return 0;
        } catch (RankFailedError const& error) {
            say("at " + now() + " RankFailedError rank=" + std::to_string(error.rank())
                + " reason=" + error.reason());
        } catch (TimeoutError const& error) {
            say("at " + now() + " TimeoutError " + error.what());
            comm->abort(std::string{"TimeoutError: "} + error.what());
        } catch (std::exception const& error) {
            comm->abort(std::string{"raised: "} + error.what());
            return raised_exit_code;
        }
        try {
            coll::barrier(comm, 4, patience);
            say("no failure later");
        } catch (RankFailedError const&) {
            say("later calls raise");
        }
        return survivor_exit_code;
    }

    std::string when_;
    std::string how_;
    Rank victim_;
    Rank me_{0};
    std::shared_ptr<BufferResource> br_;
};

}  // namespace rapidsmpf::suite
