// A job in which rank 1 comes to an end, in the way that the argument says, while the other ranks wait for it. They say
// what they were told and end with code 9. See rrun_process_test.cpp.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <sstream>
#include <string>

#include <unistd.h>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "bootstrap/ranks.hpp"

namespace {

using namespace rapidsmpf;

constexpr int survivor_exit_code = 9;
constexpr Rank victim = 1;
constexpr std::chrono::seconds promised{5};
constexpr std::size_t size = std::size_t{16} << 20;

void say(std::string const& text) {
    // One write, so that the lines of the ranks do not mix.
    auto const line = "rank " + std::to_string(bootstrap::get_rank()) + ": " + text + "\n";
    [[maybe_unused]] auto const written = ::write(STDOUT_FILENO, line.data(), line.size());
}

[[noreturn]] void end_as(std::string const& how, std::shared_ptr<UcxxCommunicator> comm) {
    if (how == "kill") {
        ::raise(SIGKILL);
    } else if (how == "exit0") {
        ::_exit(0);
    } else if (how == "exit3") {
        ::_exit(3);
    } else if (how == "abort") {
        comm->abort("ValueError: enough");
        comm.reset();
        ::_exit(1);
    } else if (how == "report_abort") {
        bootstrap::report_abort("KeyError: 'x'");
        ::_exit(1);
    } else if (how == "stay") {
        // Says that it gives up, but does not end by itself.
        comm->abort("stuck");
        for (;;) {
            ::pause();
        }
    } else if (how == "leave") {
        comm.reset();
        ::_exit(0);
    }
    ::_exit(2);
}

// Two large messages from the victim that will never come, and one to it that it will never take.
void wait_for_the_dead(UcxxCommunicator& comm, BufferResource& br) {
    std::shared_ptr<Buffer> const in = br.allocate(MemoryType::HOST, size);
    std::shared_ptr<Buffer> const out = br.allocate(MemoryType::HOST, size);
    auto const first = comm.recv(in, 0, size, victim, Tag{1, 0});
    auto const sending = comm.send(out, 0, size, victim, Tag{2, 0});
    test::wait(comm, *first);
    test::wait(comm, *comm.recv(in, 0, size, victim, Tag{3, 0}));
}

int run(std::string const& how, std::chrono::steady_clock::time_point started) {
    if (how == "absent" && bootstrap::get_rank() == victim) {
        return 0;
    }
    config::Options options{{{"bootstrap_timeout", how == "late" ? "300ms" : "60s"}}};
    if (how == "late" && bootstrap::get_rank() == victim) {
        ::pause();  // until rrun ends it
    }
    // rrun ends the others two seconds after the first: on a slow machine they may need longer to say their lines.
    std::signal(SIGTERM, SIG_IGN);
    auto comm = bootstrap::create_ucxx_comm(options);
    auto const br = BufferResource::make();
    if (comm->rank() == victim) {
        // Something is under way to everyone when it ends.
        for (Rank peer = 0; peer < comm->nranks(); ++peer) {
            if (peer != victim && how != "leave") {
                std::shared_ptr<Buffer> const out = br->allocate(MemoryType::HOST, size);
                static_cast<void>(comm->send(out, 0, size, peer, Tag{1, 0}));
            }
        }
        comm->barrier();
        end_as(how, std::move(comm));
    }
    auto const begin = std::chrono::steady_clock::now();
    // On a machine where starting a rank takes a second, its news may take long as well.
    auto const allowed = std::max<std::chrono::steady_clock::duration>(promised, 10 * (begin - started));
    try {
        comm->barrier();  // the end may come as early as this
        wait_for_the_dead(*comm, *br);
        say("no failure");
    } catch (RankFailedError const& error) {
        auto const took = std::chrono::steady_clock::now() - begin;
        std::ostringstream text;
        text << "RankFailedError rank=" << error.rank() << " pid=" << (error.pid() > 0 ? "known" : "unknown")
             << (took < allowed ? " in time" : " late") << " reason=" << error.reason();
        say(text.str());
        // And from then on at once.
        try {
            comm->barrier();
            say("no failure afterwards");
        } catch (RankFailedError const&) {
            say("barrier refused");
        }
    }
    comm.reset();
    return survivor_exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    auto const started = std::chrono::steady_clock::now();
    try {
        return run(argc > 1 ? argv[1] : "", started);
    } catch (std::exception const& error) {
        say(std::string{"exception: "} + error.what());
        return survivor_exit_code;
    }
}
