// The collective suite between real processes, over UCXX: each rank of a job started by rrun runs every body
// on one communicator. Arguments: the names of the bodies to run; none: all.
#include <exception>
#include <iostream>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>

#include "coll/suite_process.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

// The last rank leaves in good order while the others wait in a collective that needs it. Its first message to them
// may be the one that says so.
void one_rank_leaves(std::shared_ptr<Communicator> comm) {
    Rank const leaver = comm->nranks() - 1;
    coll::barrier(comm, 1, patience);
    if (comm->rank() == leaver) {
        return;
    }
    auto const start = std::chrono::steady_clock::now();
    auto const raises = [&](auto const& wait) {
        try {
            wait();
        } catch (RankFailedError const& error) {
            SUITE_CHECK(error.rank() == leaver);
            SUITE_CHECK(error.reason().find("it left before") == 0);
            return;
        }
        throw CheckFailed{"nothing was thrown"};
    };
    auto const br = BufferResource::make();
    coll::Shuffler shuffler{comm, 2, static_cast<coll::PartitionId>(comm->nranks()), br};
    coll::AllGather gather{comm, 3, br};
    raises([&] { shuffler.wait_on(static_cast<coll::PartitionId>(comm->rank()), patience); });
    raises([&] { (void)gather.wait_and_extract(coll::Ordered::yes, patience); });
    raises([&] { (void)coll::allreduce(comm, 4, 1, std::plus<>(), patience); });
    raises([&] { coll::barrier(comm, 4, patience); });
    if (comm->rank() == 0) {
        auto const took =
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
        std::cout << "ok one_rank_leaves (" << took.count() << " ms)" << std::endl;
    }
}

int run(std::vector<std::string> const& names) {
    std::shared_ptr<Communicator> comm =
        bootstrap::create_ucxx_comm(config::Options{config::get_environment_variables()});
    auto const code = run_bodies(comm, names);
    if (code == 0 && names.empty()) {
        one_rank_leaves(std::move(comm));
    }
    return code;
}

}  // namespace
}  // namespace rapidsmpf::suite

int main(int argc, char** argv) {
    try {
        return rapidsmpf::suite::run({argv + 1, argv + argc});
    } catch (std::exception const& error) {
        std::cerr << "cannot start: " << error.what() << std::endl;
        return 1;
    }
}
