// Where the ranks of a job under mpirun meet once each has said what it was told: mpirun ends the others as soon as the
// first has ended, whatever they still have to say. A barrier in a file that all of them have mapped.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::test {

class Survivors {
  public:
    // Opens the barrier that make() has put there.
    explicit Survivors(std::string const& path) : Survivors{path, O_RDWR} {}
    ~Survivors() { ::munmap(barrier_, sizeof *barrier_); }
    Survivors(Survivors const&) = delete;
    Survivors& operator=(Survivors const&) = delete;

    // `count`: how many are to come.
    static void make(std::string const& path, unsigned count) {
        Survivors const made{path, O_RDWR | O_CREAT | O_EXCL};
        pthread_barrierattr_t shared;
        ::pthread_barrierattr_init(&shared);
        ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        ::pthread_barrier_init(made.barrier_, &shared, count);
        ::pthread_barrierattr_destroy(&shared);
    }
    void wait() const noexcept { ::pthread_barrier_wait(barrier_); }

  private:
    Survivors(std::string const& path, int flags) {
        FileDescriptor const file{::open(path.c_str(), flags | O_CLOEXEC, 0600)};
        if (!file.is_open() || ::ftruncate(file.get(), sizeof *barrier_) != 0) {
            throw SystemError{path, errno};
        }
        void* const at = ::mmap(nullptr, sizeof *barrier_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
        if (at == MAP_FAILED) {
            throw SystemError{path, errno};
        }
        barrier_ = static_cast<pthread_barrier_t*>(at);
    }

    pthread_barrier_t* barrier_;
};

}  // namespace rapidsmpf::test
