// The collective suite between real processes, over UCXX: each rank of a job started by rrun runs every body
// on one communicator. Arguments: the names of the bodies to run; none: all.
#include <exception>
#include <iostream>

#include <rapidsmpf/bootstrap/bootstrap.hpp>

#include "coll/suite_process.hpp"

int main(int argc, char** argv) {
    try {
        return rapidsmpf::suite::run_bodies(
            rapidsmpf::bootstrap::create_ucxx_comm(), {argv + 1, argv + argc});
    } catch (std::exception const& error) {
        std::cerr << "cannot start: " << error.what() << std::endl;
        return 1;
    }
}
