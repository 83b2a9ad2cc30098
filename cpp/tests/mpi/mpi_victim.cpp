// A rank of a job under mpirun in which one comes to a bad end: mpi_victim WHEN HOW RANK MEETING, see
// coll/shuffle_victim.hpp and survivors.hpp.
#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include <mpi.h>
#include <unistd.h>

#include <rapidsmpf/mpi/mpi.hpp>

#include "coll/shuffle_victim.hpp"
#include "mpi/survivors.hpp"

namespace {

int run(std::chrono::steady_clock::time_point begin, int argc, char** argv) {
    try {
        if (argc != 5) {
            throw std::invalid_argument{"mpi_victim WHEN HOW RANK MEETING"};
        }
        rapidsmpf::test::Survivors const survivors{argv[4]};
        rapidsmpf::suite::ShuffleVictim victim{argv[1], argv[2], std::stoi(argv[3])};
        auto const code = victim.run(rapidsmpf::make_mpi_communicator(MPI_Comm_c2f(MPI_COMM_WORLD)), begin);
        survivors.wait();
        return code;
    } catch (std::exception const& error) {
        std::cerr << "exception: " << error.what() << std::endl;
        return 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    auto const begin = std::chrono::steady_clock::now();
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    ::_exit(run(begin, argc, argv));  // MPI_Finalize would wait for the dead
}
