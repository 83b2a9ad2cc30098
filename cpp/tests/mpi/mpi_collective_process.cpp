// The collective suite between real processes, over MPI: each rank of a job started by mpirun runs every body on one
// communicator, and then on one that splits messages into small pieces. Arguments: the names of the bodies; none: all.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <mpi.h>

#include <rapidsmpf/mpi/mpi.hpp>

#include "coll/suite_process.hpp"

namespace {

int run(std::vector<std::string> const& names) {
    using namespace rapidsmpf;
    for (auto const* const chunk : {"", "10000"}) {
        config::Options const options{config::Strings{{"mpi_chunk_bytes", chunk}}};
        auto const code =
            suite::run_bodies(make_mpi_communicator(MPI_Comm_c2f(MPI_COMM_WORLD), options), names);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    int code = 1;
    try {
        code = run({argv + 1, argv + argc});
    } catch (std::exception const& error) {
        std::cerr << "cannot start: " << error.what() << std::endl;
    }
    if (code != 0) {
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    MPI_Finalize();
    return code;
}
