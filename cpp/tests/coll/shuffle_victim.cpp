// A rank of a job in which one comes to a bad end, see shuffle_victim.hpp: under rrun
//
//   shuffle_victim WHEN HOW RANK
//
// or one that has been started by hand. The root writes its address into a FIFO for each of the others.
//
//   shuffle_victim WHEN HOW RANK root NRANKS FIFO...
//   shuffle_victim WHEN HOW RANK join NRANKS FIFO
#include "coll/shuffle_victim.hpp"

#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/bootstrap.hpp>

namespace {

using namespace rapidsmpf;

std::shared_ptr<UcxxCommunicator> be_root(Rank nranks, std::vector<std::string> const& fifos) {
    auto comm = bootstrap::join_ucxx_comm(nranks, nullptr, std::nullopt);
    auto const address = comm->worker_address();
    for (auto const& fifo : fifos) {
        std::ofstream out{fifo, std::ios::binary};
        out.write(
            reinterpret_cast<char const*>(address.data()), static_cast<std::streamsize>(address.size()));
    }
    return comm;
}

std::shared_ptr<UcxxCommunicator> join(Rank nranks, std::string const& fifo) {
    std::ifstream in{fifo, std::ios::binary};
    UcxxCommunicator::Address const address{std::istreambuf_iterator<char>{in}, {}};
    return bootstrap::join_ucxx_comm(nranks, nullptr, address);
}

std::shared_ptr<Communicator> make_communicator(std::vector<std::string> const& how) {
    if (how.empty()) {
        return bootstrap::create_ucxx_comm();
    }
    auto const nranks = std::stoi(how.at(1));
    std::vector<std::string> const fifos{how.begin() + 2, how.end()};
    auto comm = how.front() == "root" ? be_root(nranks, fifos) : join(nranks, fifos.at(0));
    comm->barrier(suite::patience);  // now all are connected
    return comm;
}

}  // namespace

int main(int argc, char** argv) {
    auto const begin = std::chrono::steady_clock::now();
    try {
        if (argc < 4) {
            throw std::invalid_argument{"shuffle_victim WHEN HOW RANK [root|join NRANKS FIFO...]"};
        }
        suite::ShuffleVictim victim{argv[1], argv[2], std::stoi(argv[3])};
        return victim.run(make_communicator({argv + 4, argv + argc}), begin);
    } catch (std::exception const& error) {
        std::cerr << "exception: " << error.what() << std::endl;
        return 1;
    }
}
