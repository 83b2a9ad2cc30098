// The process manager of a batch system, through PMIx: which of the step's processes this one is, and small values for
// the others. libpmix is opened at run time; nothing is linked.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rapidsmpf::bootstrap {

// Connected from open() to the destructor. At most one per process.
class PmixSession {
  public:
    // Null when this process was not started by a process manager that speaks PMIx (PMIX_RANK is not set), or there is
    // no libpmix.so.2. Throws std::runtime_error when the manager does not answer as it should.
    [[nodiscard]] static std::unique_ptr<PmixSession> open();
    ~PmixSession();
    PmixSession(PmixSession const&) = delete;
    PmixSession& operator=(PmixSession const&) = delete;

    [[nodiscard]] std::int32_t rank() const noexcept;
    [[nodiscard]] std::int32_t nranks() const noexcept;
    // On this host; -1 when the manager does not say.
    [[nodiscard]] std::int32_t local_rank() const noexcept;
    [[nodiscard]] std::int32_t local_nranks() const noexcept;

    // Rank 0's value reaches every rank; all have to call it. Throws std::runtime_error.
    [[nodiscard]] std::string broadcast(std::string const& key, std::string const& value_of_rank_zero);

  private:
    struct Library;
    explicit PmixSession(std::unique_ptr<Library> library);
    std::unique_ptr<Library> library_;
};

}  // namespace rapidsmpf::bootstrap
