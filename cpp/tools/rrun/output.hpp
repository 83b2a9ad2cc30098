// The ranks' output with a tag in front of every line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rapidsmpf::rrun {

// Splits what one rank writes into lines and puts its tag in front of them.
class LineTagger {
  public:
    // A line without an end is passed on, as a line, when it gets longer than this.
    static constexpr std::size_t longest_line = std::size_t{1} << 20;

    explicit LineTagger(std::string tag) : tag_{std::move(tag)} {}

    // The whole lines that are complete with `bytes`, tagged.
    [[nodiscard]] std::string append(std::string_view bytes);
    // The last line, if it has no end.
    [[nodiscard]] std::string finish();

  private:
    std::string tag_;
    std::string line_;
};

// Writes to one of rrun's own descriptors without ever blocking on it: what does not fit waits here.
class OutputSink {
  public:
    // Producers are asked to stop when more than this waits.
    static constexpr std::size_t full_size = std::size_t{1} << 20;

    explicit OutputSink(int fd) noexcept : fd_{fd} {}

    [[nodiscard]] int fd() const noexcept { return fd_; }
    void add(std::string_view bytes);
    // To be called when the descriptor is writable.
    void write_some();
    [[nodiscard]] bool has_waiting() const noexcept { return done_ < waiting_.size(); }
    [[nodiscard]] bool is_full() const noexcept { return waiting_.size() - done_ > full_size; }
    // Its reader is gone (EPIPE): everything is dropped.
    [[nodiscard]] bool is_broken() const noexcept { return broken_; }

  private:
    int fd_;
    std::string waiting_;
    std::size_t done_{0};
    bool broken_{false};
};

}  // namespace rapidsmpf::rrun
