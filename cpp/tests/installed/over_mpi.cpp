// Ranks under mpirun add up their numbers.
#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include <mpi.h>

#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/mpi/mpi.hpp>

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int status = 0;
    try {
        auto const communicator = rapidsmpf::make_mpi_communicator(MPI_Comm_c2f(MPI_COMM_WORLD));
        auto const sum = rapidsmpf::coll::allreduce(communicator, 1, communicator->rank(), std::plus<>{});
        std::cout << "rank " + std::to_string(communicator->rank()) + " of "
                         + std::to_string(communicator->nranks()) + ": sum " + std::to_string(sum) + "\n";
    } catch (std::exception const& error) {
        std::cerr << error.what() << '\n';
        status = 1;
    }
    MPI_Finalize();
    return status;
}
