// Errors of MPI as exceptions.
#pragma once

#include <array>
#include <stdexcept>
#include <string>

#include <mpi.h>

namespace rapidsmpf::detail {

class MpiError : public std::runtime_error {
  public:
    MpiError(std::string const& call, int code) : std::runtime_error{call + " failed: " + text_of(code)} {}

  private:
    static std::string text_of(int code) {
        std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
        int length = 0;
        return MPI_Error_string(code, text.data(), &length) == MPI_SUCCESS ? std::string{text.data()}
                                                                           : "error " + std::to_string(code);
    }
};

inline void check_mpi(int code, char const* call) {
    if (code != MPI_SUCCESS) {
        throw MpiError{call, code};
    }
}

}  // namespace rapidsmpf::detail

// Calls MPI_<name>; throws MpiError unless it succeeds.
#define RAPIDSMPF_MPI(name, ...) ::rapidsmpf::detail::check_mpi(MPI_##name(__VA_ARGS__), "MPI_" #name)
