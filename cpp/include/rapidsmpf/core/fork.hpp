// What becomes of the library's objects in a fork of their process.
//
// A fork has the objects but not the threads that work on them, its locks are as they were at that moment, and its
// connections are the parent's. It can neither use such an object nor destroy it: it would wait for threads that do not
// exist, or say goodbye in the parent's name. So what has threads or connections is never destroyed in a fork, and to use
// it there is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace rapidsmpf {

// Has an object that shared pointers own live for ever in forks of this process.
void keep_in_forks(std::weak_ptr<void const> object);

// The process that made what this is part of.
class HomeProcess {
  public:
    HomeProcess() noexcept;
    // Whether this is that process, and no fork of it.
    [[nodiscard]] bool is_here() const noexcept;
    // Throws std::runtime_error in a fork; `what` is what was made, such as "communicator".
    void require(std::string const& what) const;

  private:
    std::uint64_t generation_;
    std::int64_t pid_;
};

}  // namespace rapidsmpf
