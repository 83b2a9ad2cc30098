// All rows go to one rank, several times what its memory may hold, between real processes: the resident memory of
// every rank stays under 1.25 times its limit. A rank of a job started by rrun.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::size_t limit = 80 * mib;
constexpr std::size_t total = 320 * mib;
constexpr std::size_t size = mib / 2;
constexpr coll::PartitionId each = 16;

std::uint64_t status_bytes(std::string const& name) {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(name, 0) == 0) {
            return std::stoull(line.substr(name.size())) * 1024;
        }
    }
    throw CheckFailed{"no " + name + " in /proc/self/status"};
}

// The most memory that this rank has had. What a sender has mapped of the receiver's memory to write into it shows as
// its own resident memory, too, in the kernel's peak as well; so a sender looks for itself, whenever it has just made
// a chunk and when that has been taken.
class Peak {
  public:
    explicit Peak(Rank rank) : receives_{rank == 0} {}

    void look() {
        if (!receives_) {
            highest_ = std::max(highest_, status_bytes("RssAnon:") + status_bytes("RssFile:"));
        }
    }
    [[nodiscard]] std::uint64_t bytes() const { return receives_ ? status_bytes("VmHWM:") : highest_; }

  private:
    bool receives_;
    std::uint64_t highest_{0};
};

void skew(std::shared_ptr<Communicator> const& comm) {
    BufferResource::Settings settings;
    settings.limits[0] = static_cast<std::int64_t>(limit);
    auto const br = BufferResource::make(std::move(settings));
    auto const n = static_cast<coll::PartitionId>(comm->nranks());
    std::uint64_t const chunks = total / size / each / n;
    Peak peak{comm->rank()};
    {
        coll::Shuffler shuffler{comm, 1, each * n, br, coll::PartitionAssignment::contiguous};
        for (std::uint64_t index = 0; index < chunks; ++index) {
            for (coll::PartitionId p = 0; p < each; ++p) {
                auto chunk = make_chunk(*br, 1, comm->rank(), p, index, size);
                peak.look();
                shuffler.insert(p, std::move(chunk));
                peak.look();
            }
        }
        shuffler.insert_finished();
        std::uint64_t taken = 0;
        for (auto const p : shuffler.local_partitions()) {
            shuffler.wait_on(p, patience);
            for (auto& chunk : shuffler.extract(p)) {
                chunk.data = br->move_to_host_access(std::move(chunk.data));
                SUITE_CHECK(check_chunk(chunk).partition == p);
                chunk.data.reset();
                ++taken;
            }
        }
        SUITE_CHECK(taken == (comm->rank() == 0 ? chunks * each * n : 0));
    }
    std::cout << "peak of rank " << comm->rank() << ": " << peak.bytes() / mib << " MiB of " << limit / mib
              << std::endl;
    SUITE_CHECK(peak.bytes() < limit + limit / 4);
    coll::barrier(comm, 2, patience);  // a rank that fails says so while the others are still there
}

}  // namespace
}  // namespace rapidsmpf::suite

int main() {
    using namespace rapidsmpf;
    std::shared_ptr<Communicator> comm;
    try {
        comm = bootstrap::create_ucxx_comm();
        suite::skew(comm);
        return 0;
    } catch (std::exception const& error) {
        std::cerr << error.what() << std::endl;
        bootstrap::report_abort(error.what());
        return 1;
    }
}
