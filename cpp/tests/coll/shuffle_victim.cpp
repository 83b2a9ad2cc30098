// A rank of a job under rrun in which one comes to a bad end: shuffle_victim WHEN HOW RANK, see shuffle_victim.hpp.
#include "coll/shuffle_victim.hpp"

#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include <rapidsmpf/bootstrap/bootstrap.hpp>

int main(int argc, char** argv) {
    auto const begin = std::chrono::steady_clock::now();
    try {
        if (argc != 4) {
            throw std::invalid_argument{"shuffle_victim WHEN HOW RANK"};
        }
        rapidsmpf::suite::ShuffleVictim victim{argv[1], argv[2], std::stoi(argv[3])};
        return victim.run(rapidsmpf::bootstrap::create_ucxx_comm(), begin);
    } catch (std::exception const& error) {
        std::cerr << "exception: " << error.what() << std::endl;
        return 1;
    }
}
